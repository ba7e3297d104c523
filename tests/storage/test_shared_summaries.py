"""Two servers on one PostgreSQL: one of them writes a session's summary, the other knows of it (B17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kit.chat import Chat
from tests.kit.judge import is_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import Front, fronting
from tests.kit.serving import served
from tests.kit.summaries import ROLLING, WINDOW, Writer, grown, is_compacting
from tests.kit.words import prose

pytestmark = [pytest.mark.timeout(60), pytest.mark.parametrize("url", ["postgresql"], indirect=True)]


@asynccontextmanager
async def two(model: ModelServer, folder: Path, url: str) -> AsyncIterator[tuple[Front, Front]]:
    """Two servers of one operator, before the same upstream."""
    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1", folder, ROLLING, url=url) as one,
        fronting(f"{upstream}/v1", folder, ROLLING, url=url) as other,
    ):
        yield one, other


def at(front: Front, chat: Chat) -> Chat:
    """The same client, at this server."""
    same = front.chat()
    same.said, same.replies = list(chat.said), list(chat.replies)
    return same


@pytest.mark.spec("B17", "B18")
async def test_what_one_server_writes_the_other_does_not_ask_for(url: str, tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with two(model, tmp_path, url) as (one, other):
        chat = one.chat(system="You keep notes.")
        await grown(chat, 5_600)
        await writer.is_asked()
        there = at(other, chat)
        assert await is_compacting(other, there)
        await there.says("This one fits.")
        assert model.prompts[-1].messages == there.sent[-1]
        here = at(one, there)
        writer.let_go.set()
        while await is_compacting(other, there):
            pass
        await here.says("And this one uses it.")
        assert len(model.summaries) == 1
        assert [row["author"] for row in await here.compactions()] == ["model"]


@pytest.mark.spec("B17", "B18")
async def test_who_cannot_go_on_waits_for_the_other_and_goes_on_with_its_compaction(
    url: str, tmp_path: Path
) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with two(model, tmp_path, url) as (one, other):
        chat = one.chat(system="You keep notes.")
        await grown(chat, 5_100)
        large = [*chat.said, {"role": "user", "content": f"This one does not fit. {prose(99, 2_300)}"}]
        first, second = at(one, chat), at(other, chat)
        answered = len(model.prompts)
        waiting = [asyncio.create_task(first.posts(large))]
        await writer.is_asked()
        waiting.append(asyncio.create_task(second.posts(large)))
        while not await is_compacting(other, second):
            pass
        writer.let_go.set()
        assert [reply.status_code for reply in await asyncio.gather(*waiting)] == [200, 200]
        assert len(model.summaries) == 1
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        prompts = model.prompts[answered:]
        assert len(prompts) == 2
        for prompt in prompts:
            is_sound(prompt, large, WINDOW)
        assert prompts[0].messages == prompts[1].messages
