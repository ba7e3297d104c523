"""Two sessions that begin alike, without any session header, stay two (S2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied


@pytest.mark.spec("S2")
async def test_a_twin_that_is_one_answer_behind_keeps_its_own_session(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        ahead, behind = proxy.chat(system="Same."), proxy.chat(system="Same.")
        model.says("Same answer.", "Of the one ahead.", "Same answer.", "Of the one behind.")
        await ahead.says("Same opening")
        await ahead.says("Same second message")
        await behind.says("Same opening")
        await behind.says("Same second message")
        assert ahead.session != behind.session
        await ahead.says("The secret of the one ahead is ALPHA.")
        await behind.says("The secret of the one behind is OMEGA.")
        assert await ahead.transcript() == ahead.said
        assert await behind.transcript() == behind.said


@pytest.mark.spec("S2")
async def test_regenerating_is_a_branch_where_nobody_else_waits(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(system="Same.")
        await chat.says("Opening")
        await chat.says("Second message")
        session = chat.session
        await chat.posts(chat.said[:-1])
        assert chat.session == session


@pytest.mark.spec("S2")
async def test_twins_that_ask_in_the_same_moment_stay_two(tmp_path: Path) -> None:
    """Both stand behind the same answer, and neither's request is stored when the other one is resolved."""
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        twins = left, right = proxy.chat(system="Same."), proxy.chat(system="Same.")
        for turn in range(4):
            model.says(*[f"Answer {turn}."] * 2)
            await asyncio.gather(*(twin.says(f"Question {turn}") for twin in twins))
        await asyncio.gather(left.says("I am the left one."), right.says("I am the right one."))
        assert left.session != right.session
        assert await left.transcript() == left.said
        assert await right.transcript() == right.said


@pytest.mark.spec("S2")
async def test_a_twin_does_not_join_the_request_that_is_under_way(tmp_path: Path) -> None:
    """The other one's message is stored already, and waits for its answer."""
    model = ModelServer()
    asked, both = asyncio.Event(), asyncio.Barrier(2)
    async with proxied(model, tmp_path) as proxy:
        left, right = proxy.chat(system="Same."), proxy.chat(system="Same.")
        for twin in (left, right):
            model.says("Same answer.")
            await twin.says("Same opening")

        async def meets() -> None:
            asked.set()
            await both.wait()

        answer = Says({"role": "assistant", "content": "Second answer."}, after=meets)
        model.answers.extend([answer] * 2)
        first = asyncio.create_task(left.says("Same second message"))
        await asked.wait()
        await right.says("Same second message")
        await first
        assert left.session != right.session
        assert await left.transcript() == left.said
        assert await right.transcript() == right.said
