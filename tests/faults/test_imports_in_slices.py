"""A large import is written beside the turns of others, and one that a kill cuts leaves nothing to see."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from palimpsest.storage.migrate import migrate
from palimpsest.storage.sqlite_files import driver

from benchmarks.kill_loop import Server, server
from tests.kit.postgres import empty_database, server_address
from tests.kit.wire import answer_body
from tests.upstream.scripted import Scripted, replies

pytestmark = pytest.mark.timeout(240)
EVENTS = 99_000
# The longest wait of another caller's turn: some slices of some 10 ms, on a machine that is busy otherwise.
# In one transaction it was that of the whole import, 4 to 10 s.
MOST_SECONDS = 3.0


def document(events: int) -> bytes:
    said = [
        {
            "id": f"m{place}",
            "type": f"{role}_message",
            "payload": {"message": {"role": role, "content": "hi"}},
        }
        for place, role in enumerate(("user", "assistant"))
    ]
    more = [
        {"id": f"e{place}", "type": "usage", "created_at": 1.0 + place, "payload": {"prompt_tokens": place}}
        for place in range(events)
    ]
    return json.dumps({"name": "large", "model": "m", "events": [*said, *more]}).encode()


async def imports(running: Server, body: bytes) -> httpx.Response:
    async with httpx.AsyncClient(base_url=running.url, timeout=200, trust_env=False) as http:
        headers = {"content-type": "application/json", "authorization": "Bearer importer"}
        return await http.post("/api/sessions/import", content=body, headers=headers)


async def slowest_turn(running: Server, until: asyncio.Task[httpx.Response]) -> float:
    """The seconds of the slowest turn of another caller while the import runs."""
    slowest, turn = 0.0, 0
    async with httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False) as http:
        while not until.done():
            said = {"model": "m", "messages": [{"role": "user", "content": f"turn {turn}"}]}
            began = time.monotonic()
            answer = await http.post(
                "/v1/chat/completions", json=said, headers={"authorization": "Bearer other"}
            )
            assert answer.status_code == 200, answer.text
            slowest, turn = max(slowest, time.monotonic() - began), turn + 1
    return slowest


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_turns_of_others_are_answered_beside_a_large_import(kind: str, tmp_path: Path) -> None:
    async with Scripted() as upstream, empty_database(server_address()) as url:
        upstream.always(replies(answer_body("Noted.")))
        settings = {"PALIMPSEST_ACCESS__UNPROVEN_MESSAGES": "1000000"}
        if kind == "postgresql":
            await migrate(url)
            settings |= {"PALIMPSEST_DATABASE__URL": url}
        async with server(tmp_path, upstream.url, 1_000_000, **settings) as running:
            importing = asyncio.create_task(imports(running, document(EVENTS)))
            assert await slowest_turn(running, importing) < MOST_SECONDS
            reply = importing.result()
            assert reply.status_code == 201, reply.text
            assert reply.json()["events"] == EVENTS


def rows(file: Path, table: str) -> int:
    with closing(driver.connect(file)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def test_an_import_that_a_kill_cuts_is_not_there_and_can_be_repeated(tmp_path: Path) -> None:
    settings = {"PALIMPSEST_ACCESS__UNPROVEN_MESSAGES": "1000000"}
    file, body, headers = tmp_path / "palimpsest.db", document(20_000), {"authorization": "Bearer importer"}
    async with Scripted() as upstream:
        async with server(tmp_path, upstream.url, 1_000_000, **settings) as running:
            importing = asyncio.create_task(imports(running, body))
            while not rows(file, "events"):
                await asyncio.wait([importing], timeout=0.01)
                assert not importing.done()
            running.kill()
            with pytest.raises(httpx.TransportError):
                await importing
        assert 0 < rows(file, "events") < 20_000
        async with (
            server(tmp_path, upstream.url, 1_000_000, **settings) as running,
            httpx.AsyncClient(base_url=running.url, timeout=60, headers=headers, trust_env=False) as http,
        ):
            assert (await http.get("/api/sessions")).json()["total"] == 0
            assert (await http.get("/api/sessions/large/messages")).status_code == 404
            # What was written of it goes in the background.
            while rows(file, "sessions"):
                await http.get("/api/sessions")
            assert rows(file, "events") == rows(file, "messages") == rows(file, "bodies") == 0
            assert (await imports(running, body)).status_code == 201
            assert (await http.get("/api/sessions")).json()["total"] == 1
            assert rows(file, "messages") == 2
