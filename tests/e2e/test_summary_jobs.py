"""Summary jobs: one for a conversation, two at once, two attempts (B17), and what a request waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.summaries import ROLLING, WINDOW, Writer, broken, grown, is_compacting, quiet
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(60)


async def failures(proxy: Proxy, chat: Chat) -> list[Json]:
    return [event["payload"] for event in await events(proxy.http, chat, ["compaction_failed"])]


async def failed(proxy: Proxy, chat: Chat) -> list[Json]:
    """As `failures`, when there is one."""
    async with asyncio.timeout(20):
        while not (told := await failures(proxy, chat)):
            pass
    return told


@pytest.mark.spec("B17")
async def test_five_triggers_are_one_job(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await writer.is_asked()
        for _ in range(3):
            await chat.says("Small talk.")
        # Two more of the same place, at the same time.
        again = [*chat.said, {"role": "user", "content": "Twice."}]
        await asyncio.gather(chat.posts(again), chat.posts(again))
        writer.let_go.set()
        await quiet(proxy, chat)
        await chat.says("The next one uses it.")
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        assert len(model.summaries) == 1


@pytest.mark.spec("B17")
async def test_of_three_sessions_two_are_written_at_once(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chats = [proxy.chat(session=f"session {number}") for number in range(3)]
        for chat in chats:
            await grown(chat)
        await writer.is_asked()
        await writer.is_asked()
        # The third is on its way, and has asked nobody.
        assert [await is_compacting(proxy, chat) for chat in chats] == [True] * 3
        assert writer.running == 2
        writer.let_go.set()
        await writer.is_asked()
        for chat in chats:
            await quiet(proxy, chat)
            await chat.says("The next one uses it.")
            assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert writer.most == 2
        assert len(model.summaries) == 3


@pytest.mark.spec("B17", "B18")
async def test_a_request_that_waits_does_not_stand_behind_background_work(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.concurrent_summaries": 1}) as proxy:
        first, second = proxy.chat(session="first"), proxy.chat(session="second")
        await grown(first)
        await writer.is_asked()
        # Its own summary stands in line behind the other one until a turn needs it.
        await grown(second)
        assert await is_compacting(proxy, second)
        assert writer.running == 1
        large = asyncio.create_task(second.says(f"This one does not fit. {prose(99, 1_800)}"))
        await writer.is_asked()
        writer.let_go.set()
        await large
        assert [row["author"] for row in await second.compactions()] == ["model"]
        assert len(model.summaries) == 2


async def test_what_a_request_waits_for_takes_no_place_of_background_work(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.concurrent_summaries": 1}) as proxy:
        first, second = proxy.chat(session="first"), proxy.chat(session="second")
        await grown(first, 4_000)
        large = asyncio.create_task(first.says(f"This one does not fit. {prose(99, 3_500)}"))
        await writer.is_asked()
        await grown(second)
        await writer.is_asked()
        writer.let_go.set()
        await large
        assert writer.most == 2


@pytest.mark.spec("B17")
async def test_a_failing_job_is_tried_twice_and_leaves_an_event(tmp_path: Path) -> None:
    pause = 0.3
    writer = Writer(broken(), broken())
    model = ModelServer(window=WINDOW, summary=writer)
    overrides = ROLLING | {"compaction.summary_backoff_seconds": pause}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        (told,) = await failed(proxy, chat)
        assert [word for word, _ in writer.calls] == ["began", "ended"] * 2
        assert writer.calls[2][1] - writer.calls[1][1] >= pause
        assert (told["reason"], told["trigger"]) == ("status_500", "proactive")
        assert told["watermark"]
        assert await chat.compactions() == []
        # The next turn begins another job, and that one is written.
        await chat.says("Small talk.")
        await writer.is_asked()
        await quiet(proxy, chat)
        await chat.says("More of it.")
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert len(await failures(proxy, chat)) == 1


@pytest.mark.spec("B17")
async def test_the_second_attempt_may_succeed(tmp_path: Path) -> None:
    writer = Writer(broken())
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await writer.is_asked()
        await writer.is_asked()
        await quiet(proxy, chat)
        await chat.says("The next one uses it.")
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert len(model.summaries) == 2
        assert await failures(proxy, chat) == []


async def test_a_style_that_asks_nobody_is_not_tried_again_and_has_not_failed(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    asks_nobody = {
        "policy.name": "working_state",
        "policy.advanced.in_background": True,
        "policy.advanced.llm_extraction": False,
        "compaction.summary_backoff_seconds": 300,
    }
    async with proxied(model, tmp_path, asks_nobody) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_700)
        await quiet(proxy, chat)
        await chat.says(f"This one does not fit. {prose(99, 1_800)}")
        assert [row["author"] for row in await chat.compactions()] == ["deterministic"]
        assert model.summaries == []
        assert await failures(proxy, chat) == []


async def test_a_refused_key_is_not_tried_again(tmp_path: Path) -> None:
    writer = Writer(broken(401))
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        (told,) = await failed(proxy, chat)
        assert told["reason"] == "key_refused"
        assert len(model.summaries) == 1


@pytest.mark.spec("B18")
async def test_a_request_does_not_wait_for_the_pause_before_the_second_attempt(tmp_path: Path) -> None:
    writer = Writer(broken())
    model = ModelServer(window=WINDOW, summary=writer)
    overrides = ROLLING | {"compaction.summary_backoff_seconds": 300, "compaction.deadline_seconds": 20}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await writer.is_asked()
        await chat.says(f"This one does not fit. {prose(99, 1_800)}")
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert len(model.summaries) == 2


@pytest.mark.spec("B18", "A45")
async def test_where_a_request_waits_one_attempt_is_made_and_the_record_says_who_wrote(
    tmp_path: Path,
) -> None:
    writer = Writer(broken(), broken())
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_100)
        await chat.says(f"This one is above the mark. {prose(99, 600)}")
        assert [row["author"] for row in await chat.compactions()] == ["deterministic"]
        assert len(model.summaries) == 1
        assert await failures(proxy, chat) == []
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("H05")
async def test_a_callers_many_summaries_do_not_keep_anothers_waiting(tmp_path: Path) -> None:
    """One place: whoever asks first has it, then each in turn, whatever is behind him."""
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.concurrent_summaries": 1}) as proxy:
        greedy = [proxy.chat(session=f"greedy {number}", key="greedy") for number in range(4)]
        for chat in greedy:
            await grown(chat)
        await writer.is_asked()
        other = proxy.chat(session="other", key="other")
        await grown(other)
        assert len(model.summaries) == 1
        writer.let_go.set()
        for chat in (*greedy, other):
            await quiet(proxy, chat)
        keys = [seen.headers["authorization"].removeprefix("Bearer ") for seen in model.summaries]
        assert keys.index("other") <= 2
