"""kill -9 of one of two servers in the middle of a stream: the other takes up what is left (S10)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says
from tests.kit.postgres import asked
from tests.kit.replicas import Replicas, replicated, until
from tests.kit.summaries import WINDOW, Writer, grown

QUICK = {"PALIMPSEST_DATABASE__HEARTBEAT_TIMEOUT_SECONDS": "1.5"}
PARTIAL = "SELECT partial FROM exchanges WHERE partial IS NOT NULL"
HELD = "SELECT key FROM leases WHERE key LIKE 'compact:%'"
OPEN = "SELECT count(*) FROM exchanges WHERE state = 'open'"
pytestmark = pytest.mark.timeout(120)


async def changed(database: str, question: str, holds: Callable[[list[tuple[object, ...]]], bool]) -> None:
    """The rows are as they should be."""

    async def are_so() -> bool:
        return holds(await asked(database, question))

    await until(are_so)


async def streamed(both: Replicas, chat: Chat, text: str, midway: Callable[[], object]) -> None:
    """The first server streams an answer that never ends; `midway` is called when a part of it is saved."""

    async def saved() -> None:
        await changed(both.database, PARTIAL, bool)
        midway()
        await asyncio.Event().wait()

    both.model.answers.append(Says({"role": "assistant", "content": "Once upon a time. " * 3}, midway=saved))
    body = {
        "model": "test-model",
        "stream": True,
        "messages": [*chat.said, {"role": "user", "content": text}],
    }
    with suppress(httpx.TransportError):
        await both.clients[0].post("/v1/chat/completions", json=body, headers=chat.headers)


async def rows_of(chat: Chat) -> list[tuple[str, str]]:
    return [(row["message"]["content"], row["state"]) for row in await chat.rows()]


@pytest.mark.spec("S10")
async def test_the_other_server_goes_on_from_what_there_is_of_an_answer(tmp_path: Path) -> None:
    async with replicated(ModelServer(), tmp_path, QUICK, window=100_000) as both:
        chat = both.chat(1)
        await chat.says("Hello.")
        await streamed(both, chat, "Tell me a story.", both.servers[0].kill)
        await changed(both.database, PARTIAL, lambda rows: not rows)
        assert await asked(both.database, OPEN) == [(0,)]
        told = await rows_of(chat)
        assert told[:-1] == [("Hello.", "live"), ("Answer 1.", "live"), ("Tell me a story.", "live")]
        text, state = told[-1]
        assert state == "incomplete"
        assert "Once upon a time. ".startswith(text[:18])
        question, answer = (
            {"role": "user", "content": "Tell me a story."},
            {"role": "assistant", "content": text},
        )
        await chat.sends(question, answer, {"role": "user", "content": "Go on."})
        assert [text for text, _ in await rows_of(chat)] == [message["content"] for message in chat.said]
        assert len((await both.clients[1].get("/api/sessions", headers=chat.headers)).json()["sessions"]) == 1


@pytest.mark.spec("S10")
async def test_a_retry_after_the_kill_joins_the_session(tmp_path: Path) -> None:
    async with replicated(ModelServer(), tmp_path, QUICK, window=100_000) as both:
        chat = both.chat(1)
        await streamed(both, chat, "Tell me a story.", both.servers[0].kill)
        await changed(both.database, PARTIAL, lambda rows: not rows)
        await chat.says("Tell me a story.")
        assert await chat.transcript() == chat.said
        assert await asked(both.database, "SELECT count(*) FROM sessions") == [(1,)]


@pytest.mark.spec("S10")
async def test_who_went_on_at_once_keeps_the_branch(tmp_path: Path) -> None:
    """Nobody can know yet that the first server is dead; what it left comes beside, not before."""
    async with replicated(ModelServer(), tmp_path, QUICK, window=100_000) as both:
        chat = both.chat(1, session="story")
        await chat.says("Hello.")
        await streamed(both, chat, "Tell me a story.", both.servers[0].kill)
        question, heard = (
            {"role": "user", "content": "Tell me a story."},
            {"role": "assistant", "content": "Once"},
        )
        await chat.sends(question, heard, {"role": "user", "content": "Go on."})
        await changed(both.database, PARTIAL, lambda rows: not rows)
        assert await chat.transcript() == chat.said
        kept = await asked(both.database, "SELECT count(*) FROM messages WHERE state = 'incomplete'")
        assert kept == [(1,)]


@pytest.mark.spec("S10")
async def test_a_server_that_starts_closes_nothing_of_one_that_lives(tmp_path: Path) -> None:
    let_go = asyncio.Event()
    model = ModelServer()
    async with replicated(model, tmp_path, QUICK, window=100_000) as both:
        chat = both.chat(0, stream=True)
        story = {"role": "assistant", "content": "Once upon a time. " * 3}

        async def waits() -> None:
            await let_go.wait()

        model.answers.append(Says(story, midway=waits))
        telling = asyncio.create_task(chat.says("Tell me a story."))
        await changed(both.database, OPEN, lambda rows: rows == [(1,)])
        others = "SELECT beats FROM servers ORDER BY beats DESC"
        async with both.one_more() as third:
            # The one that was started last has looked often enough to have given it up.
            await changed(both.database, others, lambda rows: len(rows) == 3 and rows[-1] > (6,))
            assert await asked(both.database, OPEN) == [(1,)]
            let_go.set()
            assert await telling == story
            assert await chat.transcript() == chat.said
            again = Chat(third)
            again.said = chat.said
            await again.says("And then?")
            assert await again.transcript() == again.said
        await changed(both.database, others, lambda rows: len(rows) == 2)


@pytest.mark.spec("S10")
async def test_a_server_that_stood_still_loses_nothing(tmp_path: Path) -> None:
    """It was taken for dead, and ends its answer all the same."""
    model = ModelServer()
    async with replicated(model, tmp_path, QUICK, window=100_000) as both:
        first = both.servers[0].process.pid

        async def stands_still() -> None:
            await changed(both.database, PARTIAL, bool)
            os.kill(first, signal.SIGSTOP)
            await changed(both.database, PARTIAL, lambda rows: not rows)
            os.kill(first, signal.SIGCONT)

        chat = both.chat(0, stream=True)
        story = {"role": "assistant", "content": "Once upon a time. " * 3}
        model.answers.append(Says(story, midway=stands_still))
        assert await chat.says("Tell me a story.") == story
        assert await chat.transcript() == chat.said


@pytest.mark.spec("S10", "B17")
async def test_a_summary_that_died_with_its_server_is_written_by_the_other(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    settings = QUICK | {
        "PALIMPSEST_POLICY__NAME": "rolling",
    }
    async with replicated(model, tmp_path, settings, window=WINDOW) as both:
        chat = both.chat(0, system="You keep notes.")
        await grown(chat, 5_600)
        await writer.is_asked()
        both.servers[0].kill()
        await changed(
            both.database, "SELECT key FROM leases WHERE key LIKE 'compact:%'", lambda rows: not rows
        )
        writer.let_go.set()
        other = both.chat(1)
        other.said = chat.said
        await other.says("Still there?")
        while "x-palimpsest-compaction" not in other.reply.headers:
            await other.says("Go on.")
        assert [row["author"] for row in await other.compactions()] == ["model"]
