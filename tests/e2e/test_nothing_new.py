"""A summary that stands is not touched where there is nothing new, or nothing new is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.forms import TITLES

from tests.kit.chat import Chat
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
FACT = "The ferry Bluebell moors at berth seven of the old harbour and is painted in the colour of copper."
pytestmark = pytest.mark.timeout(60)


def written(body: str) -> Says:
    """A summary with this in each of its sections."""
    text = "\n".join(f"## {place}. {title}\n{body}" for place, title in enumerate(TITLES, 1))
    return Says({"role": "assistant", "content": text})


async def by_hand(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    fields: Json = reply.json()
    return fields


async def grown(chat: Chat, turns: int) -> None:
    for _ in range(turns):
        number = len(chat.sent)
        await chat.says(f"Entry {number} on the Bluebell and her berth. {prose(number, 250)}")


@pytest.mark.spec("F10", "F35")
@pytest.mark.parametrize("preset", ["auto", "handoff", "rolling", "working_state", "batch", "worker"])
async def test_asked_twice_for_the_same_the_summary_is_the_same(preset: str, tmp_path: Path) -> None:
    model = ModelServer(window=40_000)
    overrides = {"policy.name": preset, "policy.tail_messages": 4}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 14)
        assert (await by_hand(proxy, chat))["compacted"]
        before, view, asked = await chat.compactions(), await chat.view(), len(model.summaries)
        for _ in range(2):
            assert (await by_hand(proxy, chat))["compacted"] is False
        assert await chat.compactions() == before
        assert await chat.view() == view
        assert len(model.summaries) == asked


@pytest.mark.spec("F10")
@pytest.mark.parametrize("nothing", ["None.", "N/A", "- None recorded.", "[what was done]", ""])
async def test_a_summary_of_headings_takes_nothing_from_the_one_before(nothing: str, tmp_path: Path) -> None:
    told = [FACT]

    def summary(_: Seen) -> Says:
        return written(told[0])

    model = ModelServer(window=WINDOW, summary=summary)
    async with proxied(model, tmp_path, {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or not (made := await chat.compactions()):
            await grown(chat, 1)
        assert made[0]["author"] == "model"
        assert FACT in made[0]["summary"]
        told[0], asked = nothing, len(model.summaries)
        while len(made := await chat.compactions()) == 1:
            await grown(chat, 1)
        assert len(model.summaries) > asked
        # The skeleton is not taken: what was known is still there, and no empty heading came in its place.
        assert made[-1]["author"] == "deterministic"
        assert FACT in made[-1]["summary"]
        assert FACT in model.prompts[-1].text
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("F12")
@pytest.mark.parametrize("preset", ["auto", "handoff"])
async def test_what_would_free_next_to_nothing_is_not_folded_and_nobody_is_asked(
    preset: str, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, {"policy.name": preset}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        # The instructions fill the window, and stay: what could be folded is small talk.
        chat.said[0]["content"] = prose(1, 6_450)
        for turn in range(6):
            await chat.says(f"Small talk {turn}.")
        tokens = int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0])
        assert 0.9 * WINDOW < tokens < WINDOW
        assert model.summaries == []
        assert await chat.compactions() == []
        assert model.prompts[-1].messages == chat.sent[-1]
