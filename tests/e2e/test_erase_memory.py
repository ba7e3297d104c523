"""What is held in memory of a session that was erased, and how long its remains are pursued (P6)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.core.wire.answered import Usage
from app.proxy.chronicle.usages import Usages
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.jobs import Jobs
from app.proxy.scrubbing import Scrubbing
from app.proxy.sessions.reader import MessageReader
from app.storage.erase.gone import REMEMBERED, Gone
from app.storage.migrate import migrate
from app.storage.open import open_store
from app.storage.sqlite.driver import driver
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.remains import remains
from tests.kit.serving import shared_tokenizer

WORD = "Kanarienvogel77"


def raw(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}).encode()


async def test_messages_are_forgotten_by_their_bytes() -> None:
    tokens = ModelTokens(shared_tokenizer(), lambda _: None)
    reader = MessageReader(lambda model: tokens.counter_of(model).count_message, 100_000)
    raws = [raw("one"), raw("two"), raw("three")]
    messages = await reader.read(raws, "m")
    await reader.read(raws, "other model")
    reader.forget({messages[0].digest, messages[2].digest})
    for model in ("m", "other model"):
        assert [reader.has_accepted(model, one) for one in raws] == [False, True, False]


async def test_usage_of_a_session_is_forgotten() -> None:
    usages = Usages()
    for session in ("s", "other"):
        usages.count("ns", session, Usage(prompt_tokens=5, completion_tokens=1))
    usages.erased("ns", "s")
    for session, requests in (("s", 0), ("other", 1)):
        async with usages.taken("ns", session) as taken:
            assert taken.usage.requests == requests


def test_what_is_gone_is_bounded() -> None:
    gone = Gone()
    for number in range(REMEMBERED + 10):
        gone.add(("ns", str(number)))
    assert ("ns", "9") not in gone
    assert ("ns", str(REMEMBERED + 9)) in gone
    assert ("other", str(REMEMBERED + 9)) not in gone


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


async def test_a_scrub_goes_on_until_it_is_done(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="tour")
        await chat.says(f"Hello, {WORD}.")
        with reading(tmp_path / "palimpsest.db"):
            reply = await proxy.http.delete("/api/sessions/tour", headers=chat.headers)
            assert reply.json()["files"] == "pending"
            assert remains(tmp_path, WORD)
        async with asyncio.timeout(30):
            await asyncio.to_thread(until_gone, tmp_path)


async def test_scrubs_that_are_asked_for_at_once_are_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    await migrate(url)
    store = await open_store(url, new_id=lambda: "ns")
    scrubbing = Scrubbing(store, Jobs())
    first = scrubbing.begin()
    assert scrubbing.begin() is first
    assert await scrubbing.done(20.0) == "scrubbed"
    # What was erased since may have come too late for it.
    assert scrubbing.begin() is not first
    assert await scrubbing.done(20.0) == "scrubbed"
    await store.close()


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
