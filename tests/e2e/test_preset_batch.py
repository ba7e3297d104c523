"""`batch`: one summary of everything older, in seven sections, with the plan word for word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
BATCH: Json = {"policy.name": "batch"}
TITLES = (
    *("Environment", "Files Touched", "Tool Results", "Key Decisions", "Work Completed"),
    *("Errors & Resolutions", "Current State"),
)
PLAN = [
    {"id": "1", "content": "Count the lanterns on pier seven", "status": "completed"},
    {"id": "2", "content": "Repair the winch of berth QUE-4471", "status": "pending"},
]
pytestmark = pytest.mark.timeout(60)


def sections(seen: Seen) -> Says:
    """Six of the seven sections, and a plan of the model's own, which nobody wants."""
    told = [title for title in TITLES if title != "Files Touched"]
    # No two answers are equal: what the record says already is not said again.
    body = "\n".join(
        f"## {title}\n- What the model says of {title.lower()}: {len(seen.raw)}." for title in told
    )
    return Says({"role": "assistant", "content": f"{body}\n## Plan\n- Something else altogether."})


def history() -> list[Json]:
    """Twelve long messages behind a task, a plan and a file that was written."""
    calls = [
        ("t1", "TodoWrite", {"todos": PLAN}),
        ("w1", "Write", {"file_path": "docs/harbour.md", "content": "# Harbour\n"}),
    ]
    made = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in calls
    ]
    said: list[Json] = [
        {"role": "user", "content": "Bring the harbour into order."},
        {"role": "assistant", "content": None, "tool_calls": made},
        {"role": "tool", "tool_call_id": "t1", "content": "Todos have been modified"},
        {"role": "tool", "tool_call_id": "w1", "content": f"HEAD {prose(1, 3_000)} TAIL"},
    ]
    for turn in range(6):
        said.append({"role": "user", "content": f"HEAD {turn} {prose(turn, 2_000)} TAIL {turn}"})
        said.append({"role": "assistant", "content": f"Reply {turn}. {prose(100 + turn, 2_000)}"})
    return said


@pytest.mark.spec("D20", "D01", "D15")
async def test_seven_sections_within_their_limits_and_the_plan_word_for_word(tmp_path: Path) -> None:
    model = ModelServer(window=200_000, summary=sections)
    async with proxied(model, tmp_path, BATCH | {"policy.trigger_tokens": 30_000}) as proxy:
        chat = proxy.chat(system="You are the harbour master.")
        chat.said += history()
        await chat.says("What is left?")
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        block = compaction["summary"]
        assert [title for title in TITLES if f"## {title}" in block] == list(TITLES)
        assert "What the model says of key decisions" in block
        # What the model left out code has noted; the plan is nobody's version of it.
        assert "docs/harbour.md" in block
        assert all(step["content"] in block for step in PLAN)
        assert "Something else altogether" not in block
        assert "Bring the harbour into order." in block
        # The newest four messages, back to a user turn.
        assert model.prompts[-1].messages[2:] == chat.sent[-1][-5:]
        asked = model.summaries
        assert asked
        assert all(seen.body["max_tokens"] == 8_192 for seen in asked)
        entries = [
            entry
            for seen in asked
            for entry in re.split(r"(?m)^(?=[A-Z]+ \[\d+|</new-messages>)", seen.messages[-1]["content"])
            if "HEAD" in entry
        ]
        assert len(entries) == 5
        for entry in entries:
            most = 8_000 if entry.startswith("TOOL") else 6_000
            # Cut to what may be read of one message, head and tail.
            assert most * 0.9 < len(entry) < most + 200
            assert "TAIL" in entry
        are_sound(model.prompts, chat.sent, 200_000)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("D20", "E05")
async def test_the_next_question_holds_the_summary_before(tmp_path: Path) -> None:
    model = ModelServer(window=8_000, summary=sections)
    async with proxied(model, tmp_path, BATCH) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or len(await chat.compactions()) < 2:
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 450)}")
        first, *_, last = model.summaries
        assert "What the model says of" not in first.text
        assert "What the model says of current state" in last.text
        assert "Note 0." in first.text
        new = last.messages[-1]["content"].partition("<new-messages>")[2]
        assert "Note 0." not in new
        are_sound(model.prompts, chat.sent, 8_000)


@pytest.mark.spec("D21", "F09")
async def test_a_summary_of_a_few_words_is_refused(tmp_path: Path) -> None:
    model = ModelServer(
        window=8_000, summary=lambda _: Says({"role": "assistant", "content": "All is well, zanzibar."})
    )
    async with proxied(model, tmp_path, BATCH) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or not (made := await chat.compactions()):
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 450)}")
        assert made[0]["author"] == "deterministic"
        assert "Note 0." in made[0]["summary"]
        assert len(model.summaries) == 2
        assert not any("zanzibar" in prompt.text for prompt in model.prompts)
        are_sound(model.prompts, chat.sent, 8_000)
