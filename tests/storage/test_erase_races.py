"""Erasing while something is under way: the client has its answer, and nothing comes back (P6, rule 30)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.proxy.answering import holdback
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import with_connection
from sqlalchemy import Connection, text

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied
from tests.kit.remains import remains
from tests.kit.summaries import Held
from tests.kit.words import prose
from tests.storage.test_erase import KEPT
from tests.storage.test_standing import rows_in

pytestmark = pytest.mark.timeout(120)
WINDOW = 4_000
WORD = "Kanarienvogel77"
NAME = f"{WORD}-name"
Settings = dict[str, Any]


async def erases(proxy: Proxy, chat: Chat, query: str = "") -> httpx.Response:
    name = chat.headers.get("x-session-id") or chat.session
    return await proxy.http.delete(f"/api/sessions/{name}{query}", headers=chat.headers)


async def settled(proxy: Proxy, chat: Chat) -> None:
    """What goes on beside the turns has had time to end."""
    for _ in range(3):
        await asyncio.sleep(0.05)
        await proxy.http.get("/api/sessions", headers=chat.headers)


async def is_clean(url: str, folder: Path) -> None:
    """Nothing of the word, and on both databases no row of anybody's but the numbers learned of models."""
    kept = KEPT | {"learned_windows", "calibrations"}
    left = {table: rows for table, rows in (await rows_in(url)).items() if rows and table not in kept}
    assert left == {}
    if sqlite_path(url) is not None:
        assert remains(folder, WORD) == {}


def erasing_first(erase: Callable[[], Awaitable[object]], text: str) -> Says:
    async def after() -> None:
        await erase()

    return Says({"role": "assistant", "content": text}, after=after)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.spec("P6")
async def test_an_answer_that_comes_after_the_erase_is_delivered_and_not_stored(
    stream: bool, url: str, tmp_path: Path
) -> None:
    async with proxied(ModelServer(window=WINDOW), tmp_path, url=url) as proxy:
        chat = proxy.chat(session=NAME, stream=stream)
        await chat.says(f"Hello, {WORD}.")
        receipts = []

        async def erase() -> None:
            receipts.append(await erases(proxy, chat))

        proxy.model.answers.append(erasing_first(erase, f"An answer with {WORD}."))
        answer = await chat.says(f"Once more, {WORD}.")
        assert answer["content"] == f"An answer with {WORD}."
        assert [receipt.status_code for receipt in receipts] == [200]
        await settled(proxy, chat)
        await is_clean(url, tmp_path)
        # The client goes on with all it has: a session of its own, with nothing missing.
        await chat.says("And on.")
        assert await chat.transcript() == chat.said
        assert chat.session != receipts[0].json()["session"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_first_answer_of_a_session_too(stream: bool, url: str, tmp_path: Path) -> None:
    async with proxied(ModelServer(window=WINDOW), tmp_path, url=url) as proxy:
        chat = proxy.chat(session=NAME, stream=stream)

        async def erase() -> None:
            assert (await erases(proxy, chat)).status_code == 200

        proxy.model.answers.append(erasing_first(erase, f"An answer with {WORD}."))
        await chat.says(f"Hello, {WORD}.")
        await settled(proxy, chat)
        await is_clean(url, tmp_path)


async def test_an_answer_that_is_saved_while_it_comes_is_not_saved_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Erased in the middle of a stream whose partial answers are saved at every piece."""
    monkeypatch.setattr(holdback, "SECONDS", 0.001)
    async with proxied(ModelServer(window=WINDOW), tmp_path, url=url) as proxy:
        chat = proxy.chat(session=NAME, stream=True)
        await chat.says(f"Hello, {WORD}.")
        proxy.model.says(f"{WORD} {prose(1, 3_000)}")
        telling = asyncio.ensure_future(chat.says("A long story, please."))
        while not await _is_partial(url):
            assert not telling.done()
        assert (await erases(proxy, chat)).status_code == 200
        assert (await telling)["content"].startswith(WORD)
        await settled(proxy, chat)
        await is_clean(url, tmp_path)


async def _is_partial(url: str) -> bool:
    def read(connection: Connection) -> bool:
        query = "SELECT count(*) FROM exchanges WHERE partial IS NOT NULL"
        return bool(connection.execute(text(query)).scalar_one())

    return await with_connection(url, read)


def _with_the_word(seen: Seen) -> Says:
    return Says({"role": "assistant", "content": f"{plain_summary(seen)} {WORD}"})


@pytest.mark.spec("P6")
async def test_a_summary_that_comes_after_the_erase_is_no_ones(url: str, tmp_path: Path) -> None:
    """In the background: the session is erased while it is written, and begins anew under its name."""
    slow = Held(_with_the_word)
    async with proxied(ModelServer(window=WINDOW, summary=slow), tmp_path, url=url) as proxy:
        chat = proxy.chat(session=NAME)
        turn = 0
        while not slow.asked.is_set():
            await chat.says(f"{WORD} {turn} {prose(turn, 300)}")
            turn += 1
            assert turn < 40
        assert (await erases(proxy, chat)).status_code == 200
        slow.let_go.set()
        await settled(proxy, chat)
        await is_clean(url, tmp_path)
        chat.said = []
        await chat.says("Something else.")
        assert await chat.compactions() == []


@pytest.mark.spec("P6")
async def test_who_waits_for_a_summary_of_an_erased_session_has_an_answer(url: str, tmp_path: Path) -> None:
    slow = Held(_with_the_word)
    settings = {"compaction.background": False}
    async with proxied(ModelServer(window=WINDOW, summary=slow), tmp_path, settings, url=url) as proxy:
        chat = proxy.chat(session=NAME)
        talking = asyncio.ensure_future(_grown(chat, slow))
        await slow.asked.wait()
        assert (await erases(proxy, chat)).status_code == 200
        slow.let_go.set()
        await talking
        # A view that fits was sent, though nothing of it is stored.
        assert proxy.model.prompts[-1].tokens <= WINDOW
        assert len(proxy.model.prompts[-1].messages) < len(chat.sent[-1])
        await settled(proxy, chat)
        await is_clean(url, tmp_path)


async def _grown(chat: Chat, slow: Held) -> None:
    turn = 0
    while not slow.asked.is_set():
        await chat.says(f"{WORD} {turn} {prose(turn, 300)}")
        turn += 1
        assert turn < 40


@pytest.mark.spec("P6")
async def test_who_goes_on_while_others_erase_keeps_what_came_after(url: str, tmp_path: Path) -> None:
    """Many clients of one key talk and erase at random; in the end every list is whole, or erased."""
    chance = random.Random(5)
    # Who waits for whom is asked here, not how fast the disk is.
    patient = {"database.store_deadline_seconds": 60}
    async with proxied(ModelServer(window=WINDOW), tmp_path, patient, url=url) as proxy:

        async def one(number: int) -> None:
            chat = proxy.chat(session=f"{NAME}-{number % 3}" if number % 2 else None)
            for turn in range(12):
                await chat.says(f"{WORD} of {number}, turn {turn}. {prose(turn, 120)}")
                if chance.random() < 0.25:
                    await erases(proxy, chat)

        await asyncio.gather(*(one(number) for number in range(6)))
        alone = proxy.chat()
        for turn in range(3):
            await alone.says(f"{WORD} alone, turn {turn}")
        assert await alone.transcript() == alone.said
        reply = await proxy.http.delete("/api/namespace?confirm=everything", headers=alone.headers)
        assert reply.status_code == 200, reply.text
        assert reply.json()["files"] == ("scrubbed" if sqlite_path(url) else "vacuumed")
        await settled(proxy, alone)
        await is_clean(url, tmp_path)


@pytest.mark.parametrize("name", [NAME, None])
async def test_what_was_blocked_does_not_come_back(name: str | None, url: str, tmp_path: Path) -> None:
    async with proxied(ModelServer(window=WINDOW), tmp_path, url=url) as proxy:
        chat = proxy.chat(session=name, system="Be kind.")
        other = proxy.chat(system="Be kind.")
        for talk in (chat, other):
            await talk.says("Hi.")
        await chat.says(f"Hello, {WORD}.")
        assert (await erases(proxy, chat, "?block=true")).json()["blocked"]
        if sqlite_path(url) is not None:
            assert remains(tmp_path, WORD) == {}
        seen = len(proxy.model.seen)
        for _ in range(2):
            reply = await chat.posts([*chat.said, {"role": "user", "content": "Go on."}])
            assert (reply.status_code, reply.json()["error"]["code"]) == (410, "session_erased")
            assert reply.headers["x-should-retry"] == "false"
        assert len(proxy.model.seen) == seen
        # Without its end, too; and under its name whatever comes.
        assert (await chat.posts(chat.said[:3])).status_code == 410
        opening = await chat.posts([{"role": "user", "content": "Hi."}])
        assert opening.status_code == (410 if name else 200)
        # Who begins alike was answered by itself.
        await other.says("Hello.")
        assert await other.transcript() == other.said
