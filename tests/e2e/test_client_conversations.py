"""Clients as they are: the SDK that is here anyway in long conversations, and a habit of qwen-code (S12).

The other clients are run by `make clients`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients import checks
from tests.clients.roster import CLIENTS, Client
from tests.clients.running import migrated, run
from tests.kit.chat import Chat
from tests.kit.judge import INSTRUCTIONS, is_sound
from tests.kit.model import ModelServer, Seen
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 3_000
EXTRACTOR = {"role": "system", "content": "You extract from conversations what is worth remembering."}
EXTRACT = {"role": "user", "content": "List what is worth remembering of the conversation above."}


class Ours(Client):
    """A client that the project's own interpreter has."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", f"tests.clients.drivers.{self.driver}"]


@pytest.mark.spec("S12", "P1", "P4", "P9")
async def test_the_sdk_ends_up_with_the_same(tmp_path: Path) -> None:
    sdk = CLIENTS[0]
    await migrated(tmp_path)
    held = await run(Ours(sdk.name, sdk.package, sdk.driver, sdk.environment), tmp_path, twins=False)
    checks.ends_up_with_the_same(held)
    checks.nothing_is_changed(held)
    checks.prompts_are_sound(held)
    checks.archive_is_whole(held)
    checks.nobody_else_is_called(held)


def turns_in(messages: list[Json]) -> set[str]:
    return {found for message in messages for found in re.findall(r"Turn \d+ of", str(message["content"]))}


async def extracts(chat: Chat, model: ModelServer, upto: int) -> Seen:
    """What the model was shown when it was asked what to remember of the first so many messages."""
    asked = [EXTRACTOR, *[m for m in chat.said[:upto] if m["role"] not in INSTRUCTIONS], EXTRACT]
    reply = await chat.posts(asked)
    assert reply.status_code == 200
    is_sound(model.prompts[-1], asked, WINDOW)
    assert turns_in(model.prompts[-1].messages) <= turns_in(asked)
    return model.prompts[-1]


@pytest.mark.spec("S12", "S14")
async def test_a_request_for_memories_gets_no_later_summary(tmp_path: Path) -> None:
    """qwen-code sends the same messages under other instructions, now and then only the first of them."""
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the records of a harbour.")
        for turn in range(1, 25):
            await chat.says(f"Turn {turn} of the day. {prose(turn, 190)}")
            is_sound(model.prompts[-1], chat.said[:-1], WINDOW)
            assert EXTRACT["content"] not in model.prompts[-1].text
            if turn % 3 == 0:
                await extracts(chat, model, len(chat.said))
                early = await extracts(chat, model, 6)
                # Short enough to go out whole: nothing stands in for what was not sent.
                assert turns_in(early.messages) == turns_in(chat.said[:6])
        await chat.says("And what of today?")
        assert len(await chat.compactions()) > 1
        assert await chat.transcript() == chat.said
