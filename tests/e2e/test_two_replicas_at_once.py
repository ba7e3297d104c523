"""Requests at both of two servers in the same moment: nothing is lost, nobody is told of it (S10)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says
from tests.kit.postgres import asked
from tests.kit.replicas import Replicas, replicated
from tests.kit.words import prose

WINDOW = 4_000
pytestmark = pytest.mark.timeout(120)


async def count(both: Replicas, table: str) -> int:
    ((rows,),) = await asked(both.database, f"SELECT count(*) FROM {table}")
    assert isinstance(rows, int)
    return rows


async def branches(both: Replicas, chat: Chat) -> list[list[dict[str, Any]]]:
    """Every branch of the conversation's session, as the first server tells it."""
    reply = await both.clients[0].get(f"/api/sessions/{chat.session}", headers=chat.headers)
    return [await chat.transcript(branch["branch"]) for branch in reply.json()["branches"]]


@pytest.mark.spec("S10")
async def test_two_requests_of_one_conversation_at_once_are_two_branches(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with replicated(model, tmp_path, window=WINDOW) as both:
        chat = both.chat(system="You keep notes.")
        for turn in range(14):
            await chat.says(f"Note {turn}. {prose(turn, 300)}")
            sides = both.chat(0), both.chat(1)
            for side in sides:
                side.said = list(chat.said)
            await asyncio.gather(*(side.says(f"Side {i} of {turn}.") for i, side in enumerate(sides)))
            for side in sides:
                assert side.session == chat.session
        assert [prompt.faults for prompt in model.prompts if prompt.faults] == []
        assert await chat.compactions()
        # One row for each question and answer, the sides' too; the instructions have none.
        assert await count(both, "messages") == 14 * 6
        assert await count(both, "sessions") == 1
        for side in sides:
            assert side.said in await branches(both, side)


@pytest.mark.spec("S10")
async def test_the_first_requests_of_one_name_at_once_are_one_session(tmp_path: Path) -> None:
    async with replicated(ModelServer(), tmp_path, window=100_000) as both:
        for number in range(12):
            name = f"talk-{number}"
            sides = both.chat(0, session=name), both.chat(1, session=name)
            await asyncio.gather(*(side.says(f"I am side {i}.") for i, side in enumerate(sides)))
            assert sides[0].session == sides[1].session
        assert await count(both, "sessions") == 12
        assert await count(both, "messages") == 48


@pytest.mark.spec("S10", "S2")
async def test_twins_that_change_servers_lose_nothing(tmp_path: Path) -> None:
    """Two nameless conversations that begin alike, at the other server each time, in the same moment."""
    model = ModelServer()
    async with replicated(model, tmp_path, window=100_000) as both:
        twins = both.chat(0, system="Same."), both.chat(1, system="Same.")
        for turn in range(3):
            model.says(*[f"Answer {turn}."] * 2)
            await asyncio.gather(*(twin.says(f"Question {turn}") for twin in twins))
        secrets = "I am ALPHA.", "I am OMEGA."
        await asyncio.gather(*(twin.says(text) for twin, text in zip(twins, secrets, strict=True)))
        for turn in range(3):
            crossed = both.chat((turn + 1) % 2), both.chat(turn % 2)
            for twin, other in zip(twins, crossed, strict=True):
                other.said = twin.said
            await asyncio.gather(*(other.says(f"Go on {turn}.") for other in crossed))
        for twin, other in zip(twins, crossed, strict=True):
            assert twin.said in await branches(both, other)
        assert not [prompt for prompt in model.prompts if all(secret in prompt.text for secret in secrets)]


@pytest.mark.spec("S10", "S2")
async def test_a_twin_does_not_join_a_request_under_way_at_the_other_server(tmp_path: Path) -> None:
    """The other one's message is stored already, and waits for its answer there."""
    model = ModelServer()
    under_way, both_ask = asyncio.Event(), asyncio.Barrier(2)
    async with replicated(model, tmp_path, window=100_000) as both:
        twins = left, right = both.chat(0, system="Same."), both.chat(1, system="Same.")
        for twin in twins:
            model.says("Same answer.")
            await twin.says("Same opening")

        async def meets() -> None:
            under_way.set()
            await both_ask.wait()

        model.answers.extend([Says({"role": "assistant", "content": "Second."}, after=meets)] * 2)
        first = asyncio.create_task(left.says("Same second message"))
        await under_way.wait()
        await right.says("Same second message")
        await first
        assert left.session != right.session
        assert await left.transcript() == left.said
        assert await right.transcript() == right.said
