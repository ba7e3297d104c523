"""What is held in memory of a session that was erased, and how long its remains are pursued (P6)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.proxy.erasing import Erased, Forgetting
from palimpsest.proxy.jobs import Again, Jobs
from palimpsest.proxy.model_facts import ModelTokens
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.storage.migrate import migrate
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.store import Store, open_store

from tests.kit.chat import Chat
from tests.kit.held import held
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.remains import remains
from tests.kit.serving import served, shared_tokenizer

WORD = "Kanarienvogel77"
APPEND = {"x-session-mode": "append"}


def raw(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}).encode()


async def test_messages_are_forgotten_by_their_bytes() -> None:
    tokens = ModelTokens(shared_tokenizer().counter_for)
    reader = MessageReader(lambda model: tokens.counter_of(model).count_message, 100_000)
    raws = [raw("one"), raw("two"), raw("three")]
    messages = await reader.read(raws, "m")
    await reader.read(raws, "other model")
    reader.forget({messages[0].digest, messages[2].digest})
    for model in ("m", "other model"):
        assert reader.unaccepted(model, raws) == [raws[0], raws[2]]


@pytest.mark.spec("P6")
async def test_nothing_of_an_erased_session_is_held(tmp_path: Path) -> None:
    """No text: said, called, returned, summarized, searched for; also if a turn of it is answered later."""
    model = ModelServer(window=2_000, summary=lambda _: Says(status=500, error={"message": "No."}))
    async with served(model, lifespan="off") as upstream, held(upstream, tmp_path) as proxy:
        chat = proxy.chat(session="gone")
        for number in range(12):
            text = f"Never ship {WORD}-{number} before noon. Where is it? " + "A long day. " * 50
            if number % 3 == 1:
                model.calls((f"c{number}", "read_file", {"path": f"src/{WORD}{number}.py"}))
                await chat.posts([{"role": "user", "content": text}], APPEND)
                read = {"role": "tool", "tool_call_id": f"c{number}", "content": f"{WORD} is here.\n" * 200}
                reply = await chat.posts([read], APPEND)
            else:
                reply = await chat.posts([{"role": "user", "content": text}], APPEND)
            found = await proxy.http.get(f"/api/sessions/gone/search?q={WORD}", headers=chat.headers)
        assert (reply.headers["x-palimpsest-view"], found.status_code) == ("compacted", 200)
        assert await proxy.holders(WORD) >= {"Message", "Note", "Masked", "SplitResult"}

        async def erase() -> None:
            erased = await proxy.http.delete("/api/sessions/gone", headers=chat.headers)
            assert erased.status_code == 200

        model.answers.append(Says({"role": "assistant", "content": f"{WORD} sings."}, after=erase))
        await chat.posts([{"role": "user", "content": f"And {WORD}?"}], APPEND)
        for _ in range(30):
            # What was begun for the answer ends first; on a busy machine it may wait.
            if not (left := await proxy.holders(WORD)):
                break
            await asyncio.sleep(0.5)
        assert left == set()


async def test_what_is_held_is_cleared_until_nothing_adds_to_it() -> None:
    jobs, answering, cache = Jobs(), Jobs(), [WORD]
    reader, again = MessageReader(lambda _: lambda _: 1, 10**6), Again(0.02, first_seconds=0.01)
    forgetting = Forgetting(answering, jobs, asyncio.Event(), InFlight(), reader, again)
    forgetting.others.append(cache.clear)
    end = asyncio.Event()

    async def late() -> None:
        await end.wait()
        cache.append(WORD)

    answering.start(late())
    forgetting.clear(Erased("ns", ["s"], ()))
    assert cache == []
    forgetting.clear_for_good(Erased("ns", ["s"], ()))
    forgetting.clear_for_good(Erased("ns", ["other"], ()))
    assert len(jobs.running) == 1
    await asyncio.sleep(0.05)
    assert len(jobs.running) == 1
    end.set()
    await jobs.ended()
    assert cache == []
    # It ends there: what comes later belongs to others.
    cache.append("theirs")
    await asyncio.sleep(0.05)
    assert cache == ["theirs"]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Somebody reads the database as it is now."""
    connection = driver.connect(path)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sessions").fetchall()
    try:
        yield
    finally:
        connection.close()


def until_gone(folder: Path) -> None:
    while remains(folder, WORD):
        time.sleep(0.05)


async def scrub(proxy: Proxy, chat: Chat) -> dict[str, Any]:
    """What the receipt of another erase says of the files."""
    reply = await proxy.http.delete("/api/namespace?confirm=everything", headers=chat.headers)
    told: dict[str, Any] = reply.json()
    return told


async def test_a_scrub_goes_on_until_it_is_done(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="tour")
        await chat.says(f"Hello, {WORD}.")
        with reading(tmp_path / "palimpsest.db"):
            reply = await proxy.http.delete("/api/sessions/tour", headers=chat.headers)
            receipt = reply.json()
            assert receipt["files"] == "pending"
            assert receipt["scrub"]["since"] >= receipt["erased_at"]
            assert remains(tmp_path, WORD)
            told = await scrub(proxy, chat)
            assert told["files"] == "pending"
            assert told["scrub"]["attempts"] >= 1
        async with asyncio.timeout(30):
            await asyncio.to_thread(until_gone, tmp_path)
            while (told := await scrub(proxy, chat))["files"] == "pending":
                pass
        assert (told["files"], told["scrub"]) == ("scrubbed", None)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    await migrate(url)
    opened = await open_store(url, new_id=lambda: "ns")
    yield opened
    await opened.close()


async def test_what_a_stop_left_undone_the_next_start_does(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="tour")
        await chat.says(f"Hello, {WORD}.")
        await proxy.http.get(f"/api/sessions/tour/search?q={WORD}", headers=chat.headers)
    # As it is left by a kill between an erase and its scrub.
    store = await open_store(f"sqlite:///{tmp_path / 'palimpsest.db'}", new_id=lambda: "other")
    with driver.connect(tmp_path / "palimpsest.db") as database:
        ((namespace, session),) = database.execute("SELECT namespace, id FROM sessions").fetchall()
    await store.erasure.session(namespace, session, [], time.time())
    assert await store.search.needs_scrub()
    await store.close()
    assert remains(tmp_path, WORD.lower())
    async with proxied(ModelServer(), tmp_path):
        async with asyncio.timeout(30):
            await asyncio.to_thread(until_gone, tmp_path)


async def test_a_session_keeps_a_spelling_that_its_twin_had_before(tmp_path: Path) -> None:
    """What is remembered of stored spellings is remembered of one session: the twin may be erased."""
    async with proxied(ModelServer(), tmp_path) as proxy:

        async def says(name: str, said: list[dict[str, Any]], text: str, answer: str) -> None:
            """A client that sends answers back byte for byte, which the proxy remembers."""
            proxy.model.says(answer)
            said.append({"role": "user", "content": text})
            body = json.dumps({"model": "m", "messages": said})
            reply = await proxy.http.post("/v1/chat/completions", content=body, headers=named(name))
            said.append(reply.json()["choices"][0]["message"])

        one: list[dict[str, Any]] = []
        two: list[dict[str, Any]] = []
        for name, said in (("one", one), ("two", two)):
            await says(name, said, "Hello.", "Good day.")
        await says("two", two, "Are you there?", "I am.")
        one[0] = two[0] = {"content": "Hello.", "role": "user"}
        await says("one", one, "Are you there?", "I am.")
        await says("two", two, "Still?", "Still.")
        for name in ("one", "two"):
            reply = await proxy.http.delete(f"/api/sessions/{name}", headers=named(name))
            assert reply.json()["rows"]["variants"] == 1
        assert remains(tmp_path, "Are you there?") == {}


def named(session: str) -> dict[str, str]:
    return {"authorization": "Bearer one", "x-session-id": session, "content-type": "application/json"}
