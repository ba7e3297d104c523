"""`by_content`: code notes work with tools, a model tells of talk, and what either kept the other keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.asking import INSTRUCTIONS

from tests.kit.agent import TOOLS, Call, works
from tests.kit.chat import Chat
from tests.kit.journal import read
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
BY_CONTENT: Json = {"policy.name": "by_content"}
TITLES = (
    *("Environment", "Files Touched", "Tool Results", "Key Decisions", "Work Completed"),
    *("Errors & Resolutions", "Current State"),
)
pytestmark = pytest.mark.timeout(120)


def honest(seen: Seen) -> Says:
    """Seven sections: every reason that it is told of, in the conversation or in the summary before."""
    reasons = dict.fromkeys(re.findall(r"because of the \w+ \d+", str(seen.messages[-1]["content"])))
    lines = dict.fromkeys(TITLES, "- Nothing new in this part.")
    lines["Current State"] = f"- It goes on after {len(seen.raw)}."
    lines["Key Decisions"] = "\n".join(f"- It is so {reason}." for reason in reasons)
    return Says(
        {"role": "assistant", "content": "\n".join(f"## {title}\n{line}" for title, line in lines.items())}
    )


def found(_: str, function: Json) -> str:
    path = json.loads(function["arguments"])["path"]
    return f"# {path}\n{prose(sum(path.encode()), 260)}"


def steps(first: int, count: int) -> list[list[Call]]:
    return [[(f"call_{n}", "read_file", {"path": f"src/part{n}.py"})] for n in range(first, first + count)]


async def talks(chat: Chat, model: ModelServer, compactions: int) -> None:
    """Questions and answers, a reason in every sixth, until there are so many compactions more."""
    goal = compactions + (len(await chat.compactions()) if chat.replies else 0)
    while not chat.replies or len(await chat.compactions()) < goal:
        number = len(chat.sent)
        reason = f"It must be so because of the harbour {number}." if number % 6 == 0 else "As you say."
        model.says(f"{reason} {prose(number, 400)}")
        await chat.says(f"Question {number}: why is it so?")
        assert number < 200


@pytest.mark.spec("D24")
async def test_a_mechanical_session_asks_no_more_than_working_state(tmp_path: Path) -> None:
    asked = {}
    for preset in ("working_state", "by_content"):
        folder = tmp_path / preset
        folder.mkdir()
        model = ModelServer(window=WINDOW, summary=honest)
        async with proxied(model, folder, {"policy.name": preset}) as proxy:
            chat = proxy.chat(system="You are a careful engineer.", extra={"tools": TOOLS})
            for goal in range(3):
                await works(chat, model, f"Goal {goal}: read every module.", steps(goal * 25, 25), found)
            made = await chat.compactions()
            assert len(made) > 2
            assert {one["policy"] for one in made} == {preset}
            asked[preset] = [seen.messages for seen in model.summaries]
            assert "Goal 0: read every module." in made[-1]["summary"]
            assert "src/part3.py" in made[-1]["summary"]
            are_sound(model.prompts, chat.sent, WINDOW)
    assert asked["by_content"] == asked["working_state"] == []


@pytest.mark.spec("D24")
async def test_a_session_of_prose_asks_the_model(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=honest)
    async with proxied(model, tmp_path, BY_CONTENT) as proxy:
        chat = proxy.chat(system="You explain.")
        await talks(chat, model, 3)
        made = await chat.compactions()
        assert [one["author"] for one in made] == ["model"] * 3
        assert [seen.messages[0]["content"] for seen in model.summaries] == [INSTRUCTIONS] * 3
        assert [title in made[-1]["summary"] for title in TITLES] == [True] * len(TITLES)
        assert "because of the harbour 0" in made[-1]["summary"]
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("D24")
async def test_a_mixed_session_alternates_and_loses_no_planted_fact(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=honest)
    # In so small a window the schemas of our tools would take a tenth of it from the blocks.
    async with proxied(model, tmp_path, BY_CONTENT | {"recall.tools": False}) as proxy:
        chat = proxy.chat(system="You are a careful engineer.", extra={"tools": TOOLS})
        for round_ in range(2):
            await talks(chat, model, 1 + round_)
            await works(chat, model, f"Goal {round_}: read modules.", steps(round_ * 40, 40), found)
        made = await chat.compactions()
        authors = [one["author"] for one in made]
        # A model, then code, then a model again, then code.
        turns = [author for at, author in enumerate(authors) if not at or author != authors[at - 1]]
        assert turns == ["model", "deterministic"] * 2
        by_code = [one["summary"] for one in made if one["author"] == "deterministic"]
        # What a model told first outlasts every round without one, and what code noted the model's rounds.
        assert all("because of the harbour 0" in summary for summary in by_code)
        assert "Goal 0: read modules." in by_code[-1]
        state = (await read(proxy.http, chat, f"sessions/{chat.session}/state"))["state"]
        assert {"src/part0.py", "src/part39.py", "src/part60.py"} <= {note["path"] for note in state["files"]}
        assert "because of the harbour 0" in made[-1]["summary"]
        assert rewritten(model.prompts) == len(made)
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said
