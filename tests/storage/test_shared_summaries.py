"""Two servers on one PostgreSQL: one of them writes a session's summary, the other knows of it (B17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import read
from tests.kit.judge import is_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Front, fronting
from tests.kit.serving import served
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
ROLLING: Json = {"policy.name": "rolling", "policy.trigger_reserve_tokens": 0}
pytestmark = [pytest.mark.timeout(60), pytest.mark.parametrize("url", ["postgresql"], indirect=True)]


class Held:
    """A model that has written no summary before it is let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()
        self.model = ModelServer(window=WINDOW, summary=self.summary)

    async def summary(self, seen: Seen) -> Says:
        self.asked.set()
        await self.let_go.wait()
        return Says({"role": "assistant", "content": plain_summary(seen)})


@asynccontextmanager
async def two(model: ModelServer, folder: Path, url: str) -> AsyncIterator[tuple[Front, Front]]:
    """Two servers of one operator, before the same upstream."""
    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1", folder, ROLLING, url=url) as one,
        fronting(f"{upstream}/v1", folder, ROLLING, url=url) as other,
    ):
        yield one, other


async def grown(chat: Chat, tokens: int) -> None:
    while not chat.replies or int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < tokens:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 390)}")


def at(front: Front, chat: Chat) -> Chat:
    """The same client, at this server."""
    same = front.chat()
    same.said, same.replies = list(chat.said), list(chat.replies)
    return same


async def is_compacting(front: Front, chat: Chat) -> bool:
    return bool((await read(front.http, chat, f"sessions/{chat.session}/status"))["compacting"])


@pytest.mark.spec("B17", "B18")
async def test_what_one_server_writes_the_other_does_not_ask_for(url: str, tmp_path: Path) -> None:
    held = Held()
    async with two(held.model, tmp_path, url) as (one, other):
        chat = one.chat(system="You keep notes.")
        await grown(chat, 5_600)
        await held.asked.wait()
        there = at(other, chat)
        assert await is_compacting(other, there)
        await there.says("This one fits.")
        assert held.model.prompts[-1].messages == there.sent[-1]
        here = at(one, there)
        held.let_go.set()
        while await is_compacting(other, there):
            pass
        await here.says("And this one uses it.")
        assert len(held.model.summaries) == 1
        assert [row["author"] for row in await here.compactions()] == ["model"]


@pytest.mark.spec("B17", "B18")
async def test_who_cannot_go_on_waits_for_the_other_and_goes_on_with_its_compaction(
    url: str, tmp_path: Path
) -> None:
    held = Held()
    async with two(held.model, tmp_path, url) as (one, other):
        chat = one.chat(system="You keep notes.")
        await grown(chat, 5_100)
        large = [*chat.said, {"role": "user", "content": f"This one does not fit. {prose(99, 2_300)}"}]
        first, second = at(one, chat), at(other, chat)
        answered = len(held.model.prompts)
        waiting = [asyncio.create_task(first.posts(large))]
        await held.asked.wait()
        waiting.append(asyncio.create_task(second.posts(large)))
        while not await is_compacting(other, second):
            pass
        held.let_go.set()
        assert [reply.status_code for reply in await asyncio.gather(*waiting)] == [200, 200]
        assert len(held.model.summaries) == 1
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        prompts = held.model.prompts[answered:]
        assert len(prompts) == 2
        for prompt in prompts:
            is_sound(prompt, large, WINDOW)
        assert prompts[0].messages == prompts[1].messages
