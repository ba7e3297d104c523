"""At the bound of stored bytes nothing more is sent or stored; what is there is read, exported and erased."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from palimpsest.cli.commands import KeyTerms, change_key, create_key

from tests.kit.postgres import empty_database, server_address
from tests.kit.processes import ran
from tests.kit.wire import Json, Line, Reply, answer_body, chat_body, deployed, post, settings_for, wired
from tests.upstream.scripted import replies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

BOUND = 20_000
BOUNDED = {"access.max_bytes": BOUND, "database.on_store_failure": "passthrough"}
KEYS = {"access.mode": "keys", "upstream.api_key": "sk-operator"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(each_database: Json, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy with a bound, on each database."""
    async with wired(tmp_path_factory.mktemp("bounded"), BOUNDED | each_database) as running:
        running.upstream.always(replies(answer_body()))
        yield running


def asks(text: str, key: str, session: bytes = b"s", **more: object) -> bytes:
    """A request with a text of its own."""
    return post(chat_body(text, **more), [(b"X-Session-Id", session)], key=key)


async def fills(line: Line, key: str) -> int:
    """Sessions of 6 kB until one is refused; returns how many were stored."""
    for turn in range(20):
        reply = await line.asks(asks(f"{key} {turn} " * 600, key, b"s%d" % turn))
        if reply.status != 200:
            assert is_refused(reply)
            return turn
    raise AssertionError("it was never full")


def is_refused(reply: Reply | httpx.Response) -> bool:
    """A refusal for what is stored, as OpenAI's SDKs and a person read it."""
    told = reply.json()["error"]
    assert (told["code"], told["type"]) == ("storage_full", "insufficient_quota")
    assert f"of {BOUND:,} that may be" in told["message"]
    assert "palimpsest erase" in told["message"]
    if isinstance(reply, Reply):
        assert reply.header("x-should-retry") == "false"
        # Time makes no room.
        assert reply.header("retry-after") is None
        return reply.status == 429
    return reply.status_code == 429


async def test_at_the_bound_all_works_but_what_would_store_more(line: Line) -> None:
    stored = await fills(line, "full")
    assert stored >= 3
    forwarded = len(line.upstream.requests)
    for more in ([], [(b"X-Palimpsest", b"off")]):
        assert is_refused(await line.asks(post(chat_body(stream=True), more, key="full")))
    body = json.dumps({"model": "m", "input": "hello"}).encode()
    assert is_refused(await line.asks(post(body, path="/v1/responses", key="full")))
    assert len(line.upstream.requests) == forwarded
    headers = {"authorization": "Bearer full", "content-type": "application/json"}
    exported = await line.http.get("/api/sessions/s0/export", headers=headers)
    assert exported.status_code == 200
    document = exported.json() | {"name": "copy"}
    assert is_refused(await line.http.post("/api/sessions/import", json=document, headers=headers))
    assert len(await line.rows("s0", "full")) == 2
    # What stores nothing goes through, and so does everybody else.
    assert (await line.asks(post(chat_body(), [(b"X-Palimpsest", b"no-store")], key="full"))).status == 200
    assert (await line.asks(post(chat_body(), key="full", path="/v1/embeddings"))).status == 200
    assert (await line.asks(asks("hello", "another"))).status == 200
    assert (await line.http.delete("/api/sessions/s0", headers=headers)).status_code == 200
    assert (await line.asks(asks("there is room at once", "full"))).status == 200


async def test_two_servers_know_of_each_other(tmp_path: Path) -> None:
    async with empty_database(server_address()) as database:
        given = BOUNDED | {"database.url": database}
        async with wired(tmp_path, given) as line:
            settings = settings_for(tmp_path, line.upstream.url, given)
            line.upstream.always(replies(answer_body()))
            async with (
                deployed(settings) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as beside,
            ):
                headers = {"authorization": "Bearer k", "content-type": "application/json"}
                await fills(line, "k")
                refused = await beside.post("/v1/chat/completions", headers=headers, content=chat_body())
                assert is_refused(refused)
                assert (await beside.delete("/api/sessions/s0", headers=headers)).status_code == 200
                assert (await line.asks(post(chat_body(), key="k"))).status == 200


async def test_a_key_has_a_bound_of_its_own(tmp_path: Path) -> None:
    given = KEYS | BOUNDED
    async with wired(tmp_path, given) as line:
        settings = settings_for(tmp_path, line.upstream.url, given)
        line.upstream.always(replies(answer_body()))
        row, key = await create_key(settings, "ann", None, KeyTerms(max_bytes=1_000))
        assert (await line.asks(asks("x" * 2_000, key))).status == 200
        refused = await line.asks(asks("more", key))
        assert refused.code == "storage_full"
        assert f"palimpsest keys set {row.id} --max-bytes" in refused.json()["error"]["message"]
        # A twin sees the same conversations, and has the general bound.
        _, twin = await create_key(settings, "twin", row.id)
        assert (await line.asks(asks("more", twin))).status == 200
        changed = await change_key(settings, row.id, KeyTerms(max_bytes=0, retention_days=9))
        assert changed is not None
        assert (changed.row.max_bytes, changed.row.retention_days) == (None, 9)


async def test_limits_of_keys_are_set_and_shown_by_the_commands(tmp_path: Path) -> None:
    variables = {"PALIMPSEST_DATABASE__URL": f"sqlite:///{tmp_path / 'p.db'}"}

    def run(*words: str) -> str:
        done = ran(tmp_path, *words, settings=variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("db", "migrate")
    limits = ("--max-bytes", "5000", "--retention-days", "30", "--retention-bytes", "4000")
    made = json.loads(run("keys", "create", "--label", "ann", *limits, "--daily-tokens", "7", "--json"))
    names = ("max_bytes", "retention_days", "retention_bytes", "daily_tokens")
    assert [made[name] for name in names] == [5_000, 30, 4_000, 7]
    assert "stores 5,000 bytes  keeps 30 days, 4,000 bytes  ann" in run("keys", "list")
    changed = json.loads(
        run("keys", "set", made["id"], "--retention-days", "0", "--max-bytes", "9", "--json")
    )
    assert [changed[name] for name in names] == [9, None, 4_000, 7]
