"""Scenarios 3 and 4: long work with tools in one human turn, and results larger than the window."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.agent import TOOLS, Call, works
from tests.kit.judge import are_sound, is_sound, rewritten
from tests.kit.model import ModelServer, counter
from tests.kit.proxy import proxied
from tests.kit.words import prose

GOAL = "Read every module of the harbour project and tell me which of them open a socket."


def steps_of(count: int, *, fresh_ids: bool) -> list[list[Call]]:
    """One call a step, three at once every third step; ids of their own or the same ones every time."""
    steps = []
    for step in range(count):
        width = 3 if step % 3 == 2 else 1
        ids = [f"call_{step}_{at}" if fresh_ids else f"call_{at}" for at in range(width)]
        steps.append([(ids[at], "read_file", {"path": f"src/part{step}_{at}.py"}) for at in range(width)])
    return steps


@pytest.mark.spec("S3", "F01", "F02", "A10", "E04", "P9", "P10")
@pytest.mark.parametrize(("window", "stream", "fresh_ids"), [(8_000, True, True), (12_000, False, False)])
async def test_forty_five_steps_in_one_human_turn(
    window: int, stream: bool, fresh_ids: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=window)

    def found(_: str, function: dict[str, Any]) -> str:
        path = json.loads(function["arguments"])["path"]
        return f"# {path}\n{prose(sum(path.encode()), 220)}"

    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You are a careful engineer.", stream=stream, extra={"tools": TOOLS})
        await works(chat, model, GOAL, steps_of(45, fresh_ids=fresh_ids), found)
        assert len(model.prompts) == 46
        are_sound(model.prompts, chat.sent, window)
        # The one request stands where the work goes on: first, and later behind the record of what was done.
        assert all(prompt.messages.count(chat.said[1]) == 1 for prompt in model.prompts)
        assert all(
            prompt.messages[2] == chat.said[1] for prompt in model.prompts if "Handoff from" in prompt.text
        )
        assert len(await chat.compactions()) == rewritten(model.prompts) > 1
        assert await chat.transcript() == chat.said


@pytest.mark.spec("S4", "A08", "A20", "E10", "A28", "P11")
@pytest.mark.parametrize("offered", [True, False])
async def test_a_result_of_two_megabytes(offered: bool, tmp_path: Path) -> None:
    model = ModelServer(window=10_000)
    middle = prose(3, 330_000)
    dump = f"FIRST LINE OF THE DUMP\n{middle}\nLAST LINE OF THE DUMP"
    assert len(dump) > 2_000_000
    async with proxied(model, tmp_path, {"recall.tools": offered}) as proxy:
        chat = proxy.chat(system="You read logs.", stream=True, extra={"tools": TOOLS})
        model.calls(("call_1", "read_file", {"path": "dump.log"}))
        await chat.says("Look at dump.log.")
        await chat.sends({"role": "tool", "tool_call_id": "call_1", "content": dump})
        for turn in range(6):
            await chat.says(f"Question {turn}. {prose(turn, 1_100)}")
        are_sound(model.prompts, chat.sent, 10_000)
        first = model.prompts[1].messages[-1]["content"]
        assert first.startswith("FIRST LINE OF THE DUMP")
        assert first.endswith("LAST LINE OF THE DUMP")
        head, _, rest = first.partition("[... ")
        assert 0.69 < len(head) / (len(head) + len(rest.partition(" ...]")[2])) < 0.71
        # The marker says how the rest is read where the model has the tool for it, else no name that is of no
        # use; under the name that the record has it is all there, to the character.
        (mask, *_) = (await chat.compactions())[0]["masks"]
        stubs = re.findall(r"characters left out(.*?) \.\.\.\]", first)
        assert stubs == [f"; the whole result: context_describe {mask['message']}" if offered else ""]
        assert ("dcm_" in first) is offered
        assert await chat.recalls(mask["message"]) == dump
        assert model.summaries
        assert all(len(seen.raw) < 100_000 for seen in model.seen)
        assert await chat.transcript() == chat.said


def rows_of(shown: str) -> list[Any]:
    rows: list[Any] = json.loads(shown)
    return rows


@pytest.mark.spec("A07", "A08", "E10")
async def test_large_results_are_shortened_as_what_they_are_and_nobody_is_asked(tmp_path: Path) -> None:
    """Where that is enough (A07): an array keeps fifty items, an object its members, a document thrice."""
    records = json.dumps([{"row": row, "text": prose(row, 90)} for row in range(740)])
    pages = json.dumps({"status": "ok", "content": prose(1, 74_000), "size": 1e2})
    results = {"rows.json": records, "page.json": pages, "plain.log": prose(2, 74_000)}
    results["lease.pdf"] = prose(3, 74_000)
    # In larger windows the limits alone count.
    model = ModelServer(window=120_000)
    shown, kinds = {}, []
    async with proxied(model, tmp_path, {"policy.name": "handoff"}) as proxy:
        for path, result in results.items():
            chat = proxy.chat(key=path, system="You read files.", extra={"tools": TOOLS})
            model.calls(("call_1", "read_file", {"path": path}))
            await chat.says(f"Read {path}.")
            await chat.sends({"role": "tool", "tool_call_id": "call_1", "content": result})
            while not (made := await chat.compactions()):
                await chat.says(f"Question {len(chat.sent)}. {prose(len(chat.sent), 2_000)}")
            kinds += [one["kind"] for one in made]
            (shown[path],) = [m["content"] for m in model.prompts[-1].messages if m["role"] == "tool"]
            assert await chat.recalls(made[0]["masks"][0]["message"]) == result
            assert await chat.transcript() == chat.said
    assert kinds == ["tool_truncation_only"] * len(results)
    assert model.summaries == []
    # Of fifty items seven tenths stand before the note and three tenths behind it.
    rows, whole = rows_of(shown["rows.json"]), rows_of(records)
    assert [*rows[:35], *rows[36:]] == [*whole[:35], *whole[-15:]]
    assert "50 of 740" in rows[35]
    page = json.loads(shown["page.json"])
    assert list(page) == ["status", "content", "size"]
    assert shown["page.json"].endswith('"size": 100.0}')
    assert page["content"].startswith(prose(1, 74_000)[:1_000])
    tokens = {path: counter().count_text(text) for path, text in shown.items()}
    assert 9_000 < tokens["plain.log"] <= 10_000
    assert 9_000 < tokens["page.json"] <= 10_000
    assert 27_000 < tokens["lease.pdf"] <= 30_000


@pytest.mark.spec("F33", "A28")
async def test_ten_results_at_once_larger_than_the_window(tmp_path: Path) -> None:
    model = ModelServer(window=16_000)
    calls = [(f"call_{at}", "read_file", {"path": f"big{at}.txt"}) for at in range(10)]
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You read logs.", extra={"tools": TOOLS})
        await works(chat, model, "Compare the ten files.", [calls], lambda ident, _: ident + prose(1, 25_000))
        prompt = model.prompts[-1]
        is_sound(prompt, chat.sent[-1], 16_000)
        shown = {message["tool_call_id"]: message["content"] for message in prompt.messages[3:]}
        assert set(shown) == {ident for ident, _, _ in calls}
        assert all(content.startswith(ident) for ident, content in shown.items())
        (compaction,) = await chat.compactions()
        assert compaction["trigger"] == "reactive"
        assert model.summaries == []
