"""Who waits for a slow summary, by preset: nobody, or the turn that needs it and no longer than the deadline.

The wait itself is never timed: a summary that is not let go cannot have been waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_scenario_thrash import SlowSummarizer
from tests.kit.chat import Chat
from tests.kit.extract import extract
from tests.kit.judge import are_sound, is_sound, rewritten
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.summaries import Held
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
MANY = 20
# One summary is one call.
NUMBERS: Json = {"summarizer.window_tokens": 100_000, "database.synchronous": "normal"}
# Turns are placed by their count: the preset's own guess is twice as much for such words.
ROLLING: Json = {"policy.name": "rolling", "policy.advanced.trigger_reserve_tokens": 0}
IN_TURN = ("handoff", "working_state", "batch", "worker")
pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def held_back(preset: str, folder: Path, deadline: float = 20) -> AsyncIterator[tuple[Proxy, Held]]:
    """A proxy whose summarizer answers when it is let go."""
    summarizer = Held(extract)
    model = ModelServer(window=WINDOW, summary=summarizer)
    numbers: Json = {"worker": {"policy.tail_messages": 6}, "rolling": ROLLING}.get(preset, {})
    overrides = {"policy.name": preset, "compaction.deadline_seconds": deadline, **NUMBERS, **numbers}
    async with proxied(model, folder, overrides) as proxy:
        try:
            yield proxy, summarizer
        finally:
            summarizer.let_go.set()


async def grown(chat: Chat, tokens: int) -> None:
    """The conversation stands at or above so many tokens, in steps of about 540."""
    while not chat.replies or int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < tokens:
        number = len(chat.sent)
        await chat.says(
            f"Note {number}: we decided that berth QUE-{1_000 + number} is free. {prose(number, 390)}"
        )


def questions(chat: Chat, words: int) -> list[list[Json]]:
    """So many next requests of one conversation, no two alike."""
    texts = [f"Question {at}. {prose(at, words)}" for at in range(MANY)]
    return [[*chat.said, {"role": "user", "content": text}] for text in texts]


async def are_all_kept(proxy: Proxy, chat: Chat, lists: list[list[Json]]) -> None:
    """Every request is in the archive with its past and its answer, on a branch of its own."""
    session = (await proxy.http.get("/api/sessions/notes", headers=chat.headers)).json()
    kept = [await chat.transcript(branch["branch"]) for branch in session["branches"]]
    assert sorted(rows[-2]["content"] for rows in kept) == sorted(said[-1]["content"] for said in lists)
    assert all(rows[:-1] in lists for rows in kept)


@pytest.mark.spec("F16")
@pytest.mark.parametrize("preset", IN_TURN)
async def test_twenty_turns_that_need_a_summary_wait_for_one(preset: str, tmp_path: Path) -> None:
    async with held_back(preset, tmp_path) as (proxy, summarizer):
        chat = proxy.chat(system="You keep notes.", session="notes")
        await grown(chat, 4_800)
        assert not summarizer.asked.is_set()
        answered = len(proxy.model.prompts)
        lists = questions(chat, 1_900)
        posting = [asyncio.create_task(chat.posts(messages)) for messages in lists]
        await summarizer.asked.wait()
        assert len(proxy.model.prompts) == answered
        summarizer.let_go.set()
        replies = await asyncio.gather(*posting)
        assert [reply.status_code for reply in replies] == [200] * MANY
        assert len(proxy.model.summaries) == 1
        assert {one["author"] for one in await chat.compactions()} == {"model"}
        for prompt in proxy.model.prompts[answered:]:
            (sent,) = [messages for messages in lists if messages[-1] == prompt.messages[-1]]
            is_sound(prompt, sent, WINDOW)
        await are_all_kept(proxy, chat, lists)


@pytest.mark.spec("F16", "B03")
@pytest.mark.parametrize("preset", ["auto", "rolling"])
async def test_twenty_turns_beside_a_summary_do_not_wait_for_it(preset: str, tmp_path: Path) -> None:
    async with held_back(preset, tmp_path) as (proxy, summarizer):
        chat = proxy.chat(system="You keep notes.", session="notes")
        await grown(chat, 5_000)
        while not summarizer.asked.is_set():
            await chat.says(f"A little more. {prose(len(chat.sent), 100)}")
        lists = questions(chat, 8)
        replies = await asyncio.gather(*(chat.posts(messages) for messages in lists))
        assert [reply.status_code for reply in replies] == [200] * MANY
        # All of them were answered, and nobody has written anything yet.
        assert not summarizer.let_go.is_set()
        assert len(proxy.model.summaries) == 1
        await are_all_kept(proxy, chat, lists)
        summarizer.let_go.set()
        while not (made := await chat.compactions()):
            await chat.says("And on.")
        assert [one["author"] for one in made] == ["model"]
        assert len(proxy.model.summaries) == 1


# The deadline that holds when none is set is longer than this test may take.
@pytest.mark.timeout(15)
@pytest.mark.spec("F32", "A45", "W18")
@pytest.mark.parametrize("preset", IN_TURN)
async def test_a_turn_that_needs_a_summary_waits_no_longer_than_the_deadline(
    preset: str, tmp_path: Path
) -> None:
    async with held_back(preset, tmp_path, deadline=0.2) as (proxy, summarizer):
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 4_800)
        await chat.says(f"The question. {prose(99, 1_900)}")
        await chat.says("And the next.")
        # Both are answered, although nobody has written anything.
        assert summarizer.asked.is_set()
        assert len(proxy.model.summaries) == 1
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "deterministic"
        are_sound(proxy.model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("S1", "B03", "P10")
@pytest.mark.parametrize("turns", [1, 2])
async def test_rolling_asks_rarely_and_waits_never(turns: int, tmp_path: Path) -> None:
    model = ModelServer(window=16_000)
    summarizer = SlowSummarizer(model, turns)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep the harbour's log.")
        for turn in range(36):
            await chat.says(f"Entry {turn}. {prose(turn, 700)}")
            summarizer.turn_ended()
        are_sound(model.prompts, chat.sent, 16_000)
        compactions = await chat.compactions()
        # A turn that waited would have been answered with a summary by code, at the deadline.
        assert {compaction["author"] for compaction in compactions} == {"model"}
        assert 2 <= len(compactions) == rewritten(model.prompts) <= len(model.summaries) <= 5
        extending = [later.extends(earlier) for earlier, later in pairwise(model.prompts)]
        assert sum(extending) >= 0.85 * len(extending)
        assert await chat.transcript() == chat.said
        summarizer.let_go()
