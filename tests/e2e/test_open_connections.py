"""What is open when a key ends reads nothing more five seconds later: streams, and look-ups of a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.cli.keys import change_key, create_key, revoke_key
from palimpsest.settings.settings import Settings

from tests.kit.agent import TOOLS
from tests.kit.journal import compacted
from tests.kit.model import ModelServer, Seen
from tests.kit.postgres import empty_database, server_address
from tests.kit.proxy import proxied
from tests.kit.recalls import GREP, RECALLING, saying
from tests.kit.wire import answer_body, chat_body, deployed, opened, post, settings_for, wired
from tests.upstream.scripted import replies

KEYS = {"access.mode": "keys", "upstream.api_key": "sk-operator"}
ADMIN_KEY = "operator-0123456789abcdef=="
# Five are promised; an hour passes where nobody asks again.
SECONDS = 30
pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def stream(http: httpx.AsyncClient, headers: dict[str, str]) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of the session's events as they happen, once the stream is open."""
    asked = headers | {"accept": "text/event-stream"}
    async with asyncio.timeout(SECONDS), http.stream("GET", "/api/sessions/s/events", headers=asked) as reply:
        assert reply.status_code == 200
        lines = reply.aiter_lines()
        assert await anext(lines) == ": open"
        yield lines


async def expires(settings: Settings, folder: Path, ident: str) -> None:
    """The key's time is over."""
    await change_key(settings, ident, expires="1d")
    with opened(folder / "palimpsest.db") as connection:
        connection.execute("UPDATE keys SET expires_at = created_at - 1 WHERE id = ?", [ident])


async def is_revoked(settings: Settings, folder: Path, ident: str) -> None:
    del folder
    assert await revoke_key(settings, ident)


async def is_deleted(settings: Settings, folder: Path, ident: str) -> None:
    """By hand, in the database."""
    del settings
    with opened(folder / "palimpsest.db") as connection:
        connection.execute("DELETE FROM keys WHERE id = ?", [ident])


@pytest.mark.parametrize("ends", [is_revoked, expires, is_deleted])
async def test_a_stream_of_events_ends_with_its_key(tmp_path: Path, ends: Any) -> None:
    async with wired(tmp_path, KEYS) as line:
        line.upstream.always(replies(answer_body()))
        settings = settings_for(tmp_path, line.upstream.url, KEYS)
        row, key = await create_key(settings, "ann")
        _, twin = await create_key(settings, "twin", row.id)
        named = [(b"X-Session-Id", b"s")]
        assert (await line.asks(post(chat_body("one"), named, key=key))).status == 200
        mine, theirs = ({"authorization": f"Bearer {each}"} for each in (key, twin))
        async with stream(line.http, mine) as lines:
            await ends(settings, tmp_path, row.id)
            # It ends as a stream should, not by a cut connection.
            assert [one async for one in lines][-1] == ""
        assert (await line.http.get("/api/sessions", headers=mine)).status_code == 401
        assert (await line.http.get("/api/sessions", headers=theirs)).status_code == 200


async def test_a_stream_ends_that_another_server_of_the_database_serves(tmp_path: Path) -> None:
    async with empty_database(server_address()) as database:
        given = KEYS | {"database.url": database}
        async with wired(tmp_path, given) as line:
            line.upstream.always(replies(answer_body()))
            settings = settings_for(tmp_path, line.upstream.url, given)
            row, key = await create_key(settings, "ann")
            assert (await line.asks(post(chat_body(), [(b"X-Session-Id", b"s")], key=key))).status == 200
            async with (
                deployed(settings) as url,
                httpx.AsyncClient(base_url=url, timeout=30, trust_env=False, verify=False) as beside,
                stream(beside, {"authorization": f"Bearer {key}"}) as lines,
            ):
                await revoke_key(settings, row.id)
                assert [one async for one in lines][-1] == ""


async def test_the_operators_stream_ends_with_the_namespace_that_it_reads(tmp_path: Path) -> None:
    given = {"access.admin_key": ADMIN_KEY, "access.admin_reads": True}
    async with wired(tmp_path, given) as line:
        # Its credential was never accepted: an erase leaves nothing of it.
        line.upstream.always(replies(b'{"error":{"message":"no"}}', status=401))
        assert (await line.asks(post(chat_body(), [(b"X-Session-Id", b"s")]))).status == 401
        ((namespace,),) = line.query("SELECT id FROM namespaces")
        admin = {"authorization": f"Bearer {ADMIN_KEY}", "x-palimpsest-namespace": namespace}
        async with stream(line.http, admin) as lines:
            with opened(line.database) as connection:
                connection.execute("DELETE FROM namespaces")
            assert [one async for one in lines][-1] == ""


async def test_a_model_reads_nothing_for_a_key_that_ended_during_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody waits for seconds: the key is looked up each time.
    monkeypatch.setattr("palimpsest.proxy.access.KEY_SECONDS", 0.0)
    model = ModelServer(window=8_000)
    async with proxied(model, tmp_path, RECALLING | KEYS) as proxy:
        row, key = await create_key(settings_for(tmp_path, proxy.url, KEYS), "ann")
        chat = proxy.chat(system="You help.", extra={"tools": TOOLS}, key=key)
        await compacted(chat, words=1_500)
        model.seen.clear()

        def is_asked(seen: Seen) -> None:
            with opened(tmp_path / "palimpsest.db") as connection:
                connection.execute("UPDATE keys SET revoked_at = 1.0 WHERE id = ?", [row.id])

        model.script = is_asked
        model.answers.extend([saying(None, GREP), saying("I cannot say.")])
        await chat.posts([*chat.said, {"role": "user", "content": "Which port?"}])
        result = model.prompts[1].messages[-1]["content"]
        assert "8000" not in result
        assert json.loads(result)["error"]["code"] == "invalid_api_key"
