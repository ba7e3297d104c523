"""`rolling` on the running program: what its summarizer reads, what it writes, and what is made of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import carries_out, read
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
ROLLING: Json = {"policy.name": "rolling", "policy.advanced.trigger_reserve_tokens": 0}
CAPS = {
    **{"decisions": 8, "constraints": 6, "tasks": 10, "questions": 5, "risks": 5, "artifacts": 10},
    "agent_contributions": 6,
}
NEEDLE = "the hidden thought of the lighthouse"
pytestmark = pytest.mark.timeout(60)


def told(changes: Json | None = None) -> Says:
    body = "## KEY FACTS\n- The ferry is late.\n## CONVERSATION FLOW\n- It went on.\n## OPEN THREADS\n- More."
    return Says({"role": "assistant", "content": f"{body}\n\n```json\n{json.dumps(changes or {})}\n```"})


async def by_hand(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json().get("compacted"), reply.text
    record: Json = reply.json()["compaction"]
    return record


def worked(chat: Chat) -> None:
    """Turns with tools on the list and beside it, and an answer with its thoughts."""
    for number, name in enumerate(("userQuestions", "linear_search", "bash", "myLinear")):
        call = {"name": name, "arguments": json.dumps({"about": f"topic {number}"})}
        calls = [{"id": f"c{number}", "type": "function", "function": call}]
        chat.said += [
            {"role": "user", "content": f"Request {number}. {prose(number, 120)}"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"outcome-{number} of {name}"},
            {"role": "assistant", "content": f"Reply {number}.", "reasoning_content": NEEDLE},
            {"role": "user", "content": "And then?"},
            {"role": "assistant", "content": f"<think>{NEEDLE}</think>Then the tide came."},
        ]


@pytest.mark.spec("B06", "B07", "B14")
@pytest.mark.parametrize(
    ("more", "outcomes"),
    [
        ({}, {"0", "1"}),
        ({"policy.advanced.read_tools": ["bash"], "policy.advanced.read_tool_prefixes": ["my"]}, {"2", "3"}),
    ],
)
async def test_only_text_and_allowed_tools_are_read_numbered(
    more: Json, outcomes: set[str], tmp_path: Path
) -> None:
    model = ModelServer(window=60_000, summary=lambda _: told())
    async with proxied(model, tmp_path, ROLLING | more) as proxy:
        chat = proxy.chat(system="You keep notes.")
        worked(chat)
        for _ in range(4):
            await chat.says("Go on.")
        await by_hand(proxy, chat)
        (question,) = [str(seen.messages[-1]["content"]) for seen in model.summaries]
        parts = ("previous-summary", "existing-workstream-state", "new-messages")
        places = [question.index(f"<{part}>") for part in parts]
        assert places == sorted(places)
        news = question[places[-1] :]
        assert set(re.findall(r"outcome-(\d)", news)) == outcomes
        assert NEEDLE not in question
        assert "Then the tide came." in news
        numbers = [int(number) for number in re.findall(r"^[A-Z]+ \[(\d+)\]: ", news, re.MULTILINE)]
        assert numbers == sorted(numbers)
        assert len(numbers) > 16
        assert numbers[0] == 1


@pytest.mark.spec("B08", "B15")
async def test_the_block_has_its_three_sections_under_the_sources_heading(tmp_path: Path) -> None:
    model = ModelServer(window=60_000, summary=lambda _: told())
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        worked(chat)
        await chat.says("Go on.")
        await by_hand(proxy, chat)
        await chat.says("And on.")
        system, block = model.prompts[-1].messages[:2]
        assert system == {"role": "system", "content": "You keep notes."}
        assert "Compacted context summary" in block["content"]
        titles = re.findall(r"^#+ (KEY FACTS|CONVERSATION FLOW|OPEN THREADS)", block["content"], re.MULTILINE)
        assert titles == ["KEY FACTS", "CONVERSATION FLOW", "OPEN THREADS"]
        assert "The ferry is late." in block["content"]


@pytest.mark.spec("B15")
@pytest.mark.parametrize(("lost", "stands"), [("", True), ("summary", False), ("watermark", False)])
async def test_a_summary_is_shown_only_with_its_watermark(lost: str, stands: bool, tmp_path: Path) -> None:
    model = ModelServer(window=60_000, summary=lambda _: told())
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.", session="notes")
        worked(chat)
        await chat.says("Go on.")
        await by_hand(proxy, chat)
    if lost:
        carries_out(tmp_path, f"UPDATE compactions SET {lost} = x''")
    async with proxied(model, tmp_path, ROLLING) as proxy:
        again = proxy.chat(session="notes")
        again.said = chat.said
        await again.says("Still there?")
        shown = model.prompts[-1]
        assert ("Compacted context summary" in shown.text) is stands
        if not stands:
            assert shown.messages == again.sent[-1]


@pytest.mark.spec("B05")
async def test_the_six_newest_stay_and_the_groups_that_they_belong_to(tmp_path: Path) -> None:
    """However many questions stand behind the calls, a call stays with all of its results."""
    calls = [
        {"id": f"p{at}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        for at in range(5)
    ]
    group: list[Json] = [{"role": "assistant", "content": None, "tool_calls": calls}]
    group += [{"role": "tool", "tool_call_id": f"p{at}", "content": f"{at} is done"} for at in range(5)]
    model = ModelServer(window=60_000, summary=lambda _: told())
    async with proxied(model, tmp_path, ROLLING | {"policy.advanced.memory_entries": False}) as proxy:
        for asked in range(6):
            chat = proxy.chat(key=f"{asked} questions", system="You keep notes.")
            worked(chat)
            chat.said += [{"role": "user", "content": "All at once."}, *group]
            for number in range(asked):
                chat.said.append({"role": "assistant", "content": f"Reply {number}."})
                chat.said.append({"role": "user", "content": f"Question {number}."})
            await chat.sends(*([{"role": "user", "content": "And on."}] if asked else []))
            await by_hand(proxy, chat)
            parts = (await chat.view())["parts"]
            tail = [part["message"] for part in parts if part["kind"] == "tail"]
            assert tail == chat.said[len(chat.said) - len(tail) :]
            assert len(tail) >= 6
            assert [message for message in tail if message in group] in ([], group)
            # No more than the group makes necessary.
            assert len(tail) == 6 or tail[0] == group[0]


@pytest.mark.spec("B09", "B10")
async def test_the_lists_of_the_state_keep_their_caps(tmp_path: Path) -> None:
    rounds = 0

    def summary(_: Seen) -> Says:
        nonlocal rounds
        rounds += 1
        lists = {kind: [{"text": f"{kind} {rounds}-{at} holds"} for at in range(CAPS[kind])] for kind in CAPS}
        return told(lists)

    model = ModelServer(window=20_000, summary=summary)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.", session="notes")
        for _ in range(2):
            worked(chat)
            for _ in range(8):
                await chat.says(f"Go on. {prose(len(chat.sent), 400)}")
            await by_hand(proxy, chat)
        state = (await read(proxy.http, chat, "sessions/notes/state"))["state"]
        for kind, cap in CAPS.items():
            texts = [entry["text"] for entry in state[kind]]
            # Twice as many came; the oldest went.
            asked = int(texts[0].split()[1].split("-")[0])
            assert 2 <= asked <= rounds
            assert texts == [f"{kind} {asked}-{at} holds" for at in range(cap)], kind
