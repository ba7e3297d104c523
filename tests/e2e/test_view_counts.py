"""Exact counts decide when a conversation is compacted, and what may go out (B04)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
pytestmark = pytest.mark.timeout(120)


def whole(chat: Chat) -> int:
    """The newest request's prompt, unfolded, in our count."""
    return int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0])


async def until_compacted(chat: Chat, text: str) -> list[int]:
    """The counts of all turns up to the first with a compaction."""
    counts: list[int] = []
    while not chat.replies or not await chat.compactions():
        await chat.says(f"{text} {len(chat.sent)}. {prose(len(chat.sent), 150)}")
        counts.append(whole(chat))
        assert len(counts) < 80
    return counts


@pytest.mark.spec("B04")
@pytest.mark.parametrize(("preset", "trigger"), [("handoff", 7_200), ("rolling", 5_600)])
async def test_the_count_decides_the_turn(preset: str, trigger: int, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    # Asked for in the turn that reaches the trigger, so that the turn is exactly the one.
    numbers = {"policy.advanced.trigger_reserve_tokens": 0, "policy.advanced.in_background": False}
    async with proxied(model, tmp_path, {"policy.name": preset, **numbers}) as proxy:
        chat = proxy.chat()
        counts = await until_compacted(chat, "Note")
        assert [count >= trigger for count in counts] == [False] * (len(counts) - 1) + [True]


@pytest.mark.spec("B04", "P9")
@pytest.mark.parametrize("preset", ["handoff", "auto", "rolling"])
async def test_text_of_many_tokens_a_character_is_sent_only_where_it_fits(
    preset: str, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    random = Random(4)
    overrides = {"policy.name": preset, "policy.advanced.trigger_reserve_tokens": 0}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat()
        for _ in range(24):
            await chat.says("".join(chr(random.randrange(0x4E00, 0x9FA5)) for _ in range(420)))
        assert len(await chat.compactions()) > 1
        assert not any(reply.status_code != 200 for reply in chat.replies)
        are_sound(model.prompts, chat.sent, WINDOW)
