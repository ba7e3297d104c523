"""Folds that follow each other: then no model is asked (F04)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from palimpsest.proxy.compacting.breaker import LoopBreaker

from tests.kit.chat import Chat
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 6_000
# One summary is one call.
IN_TURN: Json = {"compaction.background": False, "summarizer.window_tokens": 100_000}
pytestmark = pytest.mark.timeout(120)


async def told(chat: Chat, turns: int, words: int = 300) -> None:
    for turn in range(len(chat.replies), len(chat.replies) + turns):
        await chat.says(f"Entry {turn}. {prose(turn, words)}")


def authors(compactions: list[Json]) -> list[str]:
    return [row["author"] for row in compactions if row["kind"] == "message_removal"]


def test_three_folds_in_three_turns_are_a_loop_and_it_ends_by_itself() -> None:
    now = [0.0]
    loops = LoopBreaker(60.0, lambda: now[0])
    for turn in (4, 5, 5, 5):
        loops.folded("s", turn)
    assert not loops.is_open("s")
    loops.folded("s", 7)
    assert not loops.is_open("s")
    loops.folded("s", 6)
    loops.folded("s", 7)
    loops.folded("s", 8)
    assert loops.is_open("s")
    assert not loops.is_open("other")
    now[0] = 60.0
    assert not loops.is_open("s")
    loops.folded("s", 9)
    assert not loops.is_open("s")


@pytest.mark.spec("F04")
async def test_a_session_folded_at_every_turn_is_masked_and_no_model_is_asked_for_it(tmp_path: Path) -> None:
    """Every turn brings nearly a window: whatever is folded, the next one is above the trigger again."""
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, IN_TURN) as proxy:
        chat = proxy.chat(session="log")
        await told(chat, 4, words=3_300)
        made = authors(await chat.compactions())
        # Of folds that the next one follows at once a model writes every second.
        assert made == ["deterministic", "model", "deterministic"]
        asked = len(model.summaries)
        await told(chat, 3, words=3_300)
        assert len(model.summaries) == asked
        assert authors(await chat.compactions())[3:] == ["deterministic"] * 3
        # What can be masked is masked now, and nothing is folded: the first result fits below the trigger.
        await told(chat, 1, words=2_600)
        folds = len(authors(await chat.compactions()))
        await reads(model, chat, 0, words=600)
        await reads(model, chat, 1, words=360)
        compactions = await chat.compactions()
        assert compactions[-1]["kind"] == "tool_truncation_only"
        assert len(authors(compactions)) == folds
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said


async def reads(model: ModelServer, chat: Chat, number: int, words: int) -> None:
    """A call and its result."""
    model.calls((f"c{number}", "read", {}))
    await chat.says(f"Read log {number}.")
    await chat.sends({"role": "tool", "tool_call_id": f"c{number}", "content": prose(90 + number, words)})


async def test_an_echo_of_the_shown_conversation_is_no_summary(tmp_path: Path) -> None:
    """Many short messages: without their framing an echo is smaller than what it would replace."""

    def echo(seen: Seen) -> Says:
        is_riding = seen.messages[0].get("content") != "" and len(seen.messages) > 3
        said = "\n".join(str(message["content"]) for message in seen.messages[:-1])
        text = f"# Echo\n{said}" if is_riding else plain_summary(seen)
        return Says({"role": "assistant", "content": text})

    model = ModelServer(window=WINDOW, summary=echo)
    # At the trigger a question does not fit behind the prompt.
    async with proxied(model, tmp_path, IN_TURN | {"policy.trigger_ratio": 0.7}) as proxy:
        chat = proxy.chat(session="log")
        while not (chat.replies and await chat.compactions()):
            await chat.says("yes " + str(len(chat.replies)))
        assert len(model.summaries) == 2
        (made,) = await chat.compactions()
        assert made["author"] == "model"
        assert "# Echo" not in made["summary"]
