"""What a question for a summary says, how long its answer may be, and what becomes of one that comes late."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.asking import INSTRUCTIONS

from tests.kit.judge import are_sound
from tests.kit.model import SUMMARY_MODEL, ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.summaries import WINDOW, Writer, grown, quiet
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(60)
# One question of its own for each fold, in the turn that needs it.
OWN: Json = {
    "compaction.background": False,
    "summarizer.model": SUMMARY_MODEL,
    "summarizer.window_tokens": 60_000,
}


async def folded(chat: Any) -> None:
    await grown(chat, 6_000)
    await chat.says(f"This one does not fit. {prose(99, 1_900)}")


@pytest.mark.spec("A12", "A15")
async def test_a_question_states_its_length_and_what_stays_visible(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, OWN) as proxy:
        chat = proxy.chat(system="You keep the harbour log.")
        await chat.says("Begin the log of the night.")
        await folded(chat)
        (row,) = await chat.compactions()
        assert row["author"] == "model"
    (asked,) = model.summaries
    system, user = (message["content"] for message in asked.messages)
    assert system == INSTRUCTIONS
    # Words that take less than half of the tokens that the answer may have; the block may have fewer.
    state, entry = map(int, re.findall(r"(?i)at most (\d+) words", user))
    assert 0.2 * asked.body["max_tokens"] / 2 < state + entry < 0.5 * asked.body["max_tokens"] / 2
    beside = user.partition("<record>")[0]
    assert "<always-shown> (the assistant sees these anyway" in beside
    assert "You keep the harbour log." in beside
    assert "Begin the log of the night." in beside


async def test_an_operators_prompt_takes_the_place_of_ours_and_a_line_is_added(tmp_path: Path) -> None:
    own = tmp_path / "prompt.txt"
    own.write_text("Write three lists: Ships, Berths, Debts.\n", encoding="utf-8")
    model = ModelServer(window=WINDOW, summary=_lists)
    settings = {"summarizer.prompt_file": str(own), "summarizer.extra_instructions": "Name every ship."}
    async with proxied(model, tmp_path, OWN | settings) as proxy:
        chat = proxy.chat(system="You keep the harbour log.")
        await folded(chat)
        assert [row["author"] for row in await chat.compactions()] == ["model"]
    question = model.summaries[0].messages[-1]["content"]
    assert re.search(
        r"\nWrite three lists: Ships, Berths, Debts.\nWrite at most \d+ words.\nName every ship.$", question
    )
    assert "## Entry" not in question


def _lists(seen: Seen) -> Says:
    text = "\n".join(f"## {title}\n{prose(5, 30)}" for title in ("Ships", "Berths", "Debts"))
    return Says({"role": "assistant", "content": text})


@pytest.mark.spec("F09", "A12")
async def test_an_answer_cut_by_its_length_is_used_as_far_as_it_is_whole(tmp_path: Path) -> None:
    def cut(seen: Seen) -> Says:
        text = f"{plain_summary(seen)}\n- The pilot wants to be cal"
        return Says({"role": "assistant", "content": text}, finish="length")

    model = ModelServer(window=WINDOW, summary=cut)
    async with proxied(model, tmp_path, OWN) as proxy:
        chat = proxy.chat(system="You keep the harbour log.")
        await folded(chat)
        (row,) = await chat.compactions()
        assert row["author"] == "model"
        assert "The pilot wants" not in row["summary"]


@pytest.mark.spec("A12")
async def test_a_model_that_thinks_is_given_room_for_its_thoughts(tmp_path: Path) -> None:
    def thinks(seen: Seen) -> Says:
        if len(model.summaries) == 1:
            return Says({"role": "assistant", "content": ""}, finish="length")
        return Says({"role": "assistant", "content": plain_summary(seen)})

    model = ModelServer(window=WINDOW, summary=thinks)
    async with proxied(model, tmp_path, OWN) as proxy:
        chat = proxy.chat(system="You keep the harbour log.")
        await folded(chat)
        assert [row["author"] for row in await chat.compactions()] == ["model"]
    first, second = (seen.body["max_tokens"] for seen in model.summaries)
    assert second == 3 * first


@pytest.mark.spec("F32")
async def test_a_summary_that_comes_late_is_adopted_at_the_next_turn(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, OWN | {"compaction.deadline_seconds": 3}) as proxy:
        chat = proxy.chat(system="You keep the harbour log.")
        await folded(chat)
        (first,) = await chat.compactions()
        assert first["author"] == "deterministic"
        assert "the model had not answered at the deadline" in first["reason"]
        writer.let_go.set()
        # It arrives between two of these turns.
        while len(rows := await chat.compactions()) < 2 and len(chat.sent) < 60:
            await chat.says("Go on.")
        assert sorted(row["author"] for row in rows) == ["deterministic", "model"]
        (late,) = [row for row in rows if row["author"] == "model"]
        assert late["watermark"] == first["watermark"]
        await chat.says("And on.")
        assert len(await chat.compactions()) == 2
        assert len(model.summaries) == 1
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("B03")
async def test_a_record_written_ahead_that_frees_too_little_is_used_and_code_folds_on(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=Writer())
    ahead = OWN | {
        "compaction.background": True,
        "policy.trigger_ratio": 0.6,
        "policy.advanced.precompute_ratio": 0.4,
    }
    async with proxied(model, tmp_path, ahead) as proxy:
        chat = proxy.chat(system="You keep the harbour log.")
        while not model.summaries:
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 150)}")
            assert len(chat.sent) < 60
        await quiet(proxy, chat)
        # What it folds is small beside what comes now: the view would be above the trigger with it alone.
        await chat.says(f"A long one. {prose(98, 1_900)}")
        (row,) = await chat.compactions()
        assert row["author"] == "model"
        assert row["tokens_after"] < 0.6 * WINDOW
        assert len(model.summaries) == 1
        are_sound(model.prompts, chat.sent, WINDOW)


async def test_code_tells_what_is_hardly_longer_than_a_summary_of_it(tmp_path: Path) -> None:
    """A client's tools take most of the window: each fold stands for a few hundred tokens."""
    model = ModelServer(window=7_000)
    large = {"name": "search", "description": prose(1, 4_100), "parameters": {"type": "object"}}
    async with proxied(model, tmp_path, {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You help.", extra={"tools": [{"type": "function", "function": large}]})
        await chat.says("Hello.")
        for turn in range(60):
            await chat.says(f"Note {turn}. {prose(turn, 40)}")
        rows = await chat.compactions()
        # After a fold by code a model writes the next one.
        authors = [row["author"] for row in rows]
        assert authors[:3] == ["model", "deterministic", "model"]
        assert rows[1]["reason"].endswith("a model's summary would save little")
        assert len(model.summaries) == sum(row["author"] == "model" for row in rows)
    are_sound(model.prompts, chat.sent, 7_000)
