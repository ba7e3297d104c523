"""Every preset over sixty turns of work with tools in a small window, with a restart in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.presets import PRESETS

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
TURNS = 60
# The source's reserve would leave a window of this size nothing.
NUMBERS: dict[str, Json] = {"rolling": {"policy.advanced.trigger_reserve_tokens": 0}}
pytestmark = pytest.mark.timeout(120)


def settings_for(preset: str) -> Json:
    return {"policy.name": preset, "database.synchronous": "normal", **NUMBERS.get(preset, {})}


async def works(chat: Chat, model: ModelServer, turns: range) -> None:
    """In every turn a request; in most of them calls, up to three at once, before the answer."""
    for turn in turns:
        width = turn % 4
        paths = [f"src/part{turn}_{at}.py" for at in range(width)]
        if not width:
            model.says(f"I found that step {turn} needs no file. {prose(turn, 60)}")
            await chat.says(f"Request {turn}. {prose(1_000 + turn, 60)}")
            continue
        model.calls(*((f"call_{turn}_{at}", "read_file", {"path": path}) for at, path in enumerate(paths)))
        answer = await chat.says(f"Request {turn}: look at {', '.join(paths)}. {prose(turn, 40)}")
        model.says(f"I'll use part {turn} as it is. {prose(2_000 + turn, 30)}")
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": prose(turn * 7 + at, 120)}
            for at, call in enumerate(answer["tool_calls"])
        ]
        await chat.sends(*results)


@pytest.mark.spec("A01", "A33", "E01", "F01", "F15", "F25", "P4", "P9", "P10")
@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_sixty_turns_with_tools(preset: str, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, settings_for(preset)) as proxy:
        before = proxy.chat(system="You are a careful engineer.", extra={"tools": TOOLS}, stream=True)
        await works(before, model, range(TURNS // 2))
        assert await before.transcript() == before.said
        made = await before.compactions()
    async with proxied(model, tmp_path, settings_for(preset)) as proxy:
        chat = proxy.chat(extra={"tools": TOOLS})
        chat.said = list(before.said)
        await works(chat, model, range(TURNS // 2, TURNS))
        are_sound(model.prompts, [*before.sent, *chat.sent], WINDOW)
        assert chat.session == before.session
        assert await chat.transcript() == chat.said
        compactions = await chat.compactions()
    assert compactions[: len(made)] == made
    assert {one["policy"] for one in compactions} == {preset}
    # One change of the prefix for each compaction, and none for anything else (P10).
    assert len(compactions) == rewritten(model.prompts) > 2
    assert all(seen.tokens + seen.body["max_tokens"] <= WINDOW for seen in model.summaries)
