"""`working_state` as a session's state and view tell it: what is noted of a day of work with tools."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.core.summary.working.session import session
from tests.kit.chat import Chat
from tests.kit.journal import read
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

Json = dict[str, Any]
pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]
SETTINGS = {"policy.name": "working_state", "policy.advanced.llm_extraction": False}


class Day:
    """A session in which the day of work was said, and what is told of it."""

    def __init__(self, proxy: Proxy, chat: Chat) -> None:
        self.proxy, self.chat = proxy, chat

    async def state(self) -> Json:
        told = await read(self.proxy.http, self.chat, f"sessions/{self.chat.session}/state")
        return dict(told["state"])

    async def file(self, path: str) -> list[Json]:
        """What was done to a file."""
        (actions,) = [note["actions"] for note in (await self.state())["files"] if note["path"] == path]
        return list(actions)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def day(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Day]:
    async with proxied(ModelServer(), tmp_path_factory.mktemp("day"), SETTINGS) as proxy:
        chat = proxy.chat(system="You are a careful engineer.")
        messages = [json.loads(message.raw) for message in session()]
        chat.said += messages[:-1]
        await chat.sends(messages[-1])
        yield Day(proxy, chat)


@pytest.mark.spec("D03")
async def test_files_and_what_was_done_to_them(day: Day) -> None:
    kinds = [action["kind"] for action in await day.file("services/queue.py")]
    assert kinds == ["read", "edit", "edit"]
    edit = (await day.file("services/queue.py"))[1]
    assert (edit["before"], edit["after"]) == ("range(3)", "range(limit)")
    (made,) = await day.file("docs/queue.md")
    assert made["kind"] == "create"
    assert re.search(r"\b3 lines\b", made["detail"])
    assert [action["kind"] for action in await day.file("docs/old-notes.md")] == ["delete"]


@pytest.mark.spec("D04")
async def test_failures_are_what_failed_and_nothing_else(day: Day) -> None:
    (failure,) = (await day.state())["failures"]
    assert "pytest tests/test_queue.py -q" in failure["label"]
    assert failure["text"]
    assert len(failure["text"]) <= 300


@pytest.mark.spec("D05")
async def test_results_in_short(day: Day) -> None:
    told = (await day.state())["tool_results"]
    by_label = {note["label"]: note["text"] for note in told}
    (passed,) = [text for label, text in by_label.items() if "42 passed" in text]
    assert len(passed) <= 900
    (found,) = [text for text in by_label.values() if "services/worker1.py" in text]
    assert "14" in found
    assert found.count("services/worker") <= 10


@pytest.mark.spec("D06")
async def test_task_and_requirements(day: Day) -> None:
    state = await day.state()
    assert state["task"] == "Make the retries of services/queue.py configurable, ticket QUE-4471."
    wanted = state["user_requirements"]
    assert "Good. Keep the default at 3." in wanted
    assert "Commit it on the branch feature/retries." in wanted
    assert state["task"] not in wanted


@pytest.mark.spec("D07", "D08")
async def test_decisions_and_discoveries(day: Day) -> None:
    state = await day.state()
    assert any("Settings object" in line for line in state["decisions"])
    found = " ".join(state["discoveries"])
    assert "ignores its third attempt" in found
    assert "off-by-one" in found


@pytest.mark.spec("D09")
async def test_plan_environment_and_notes(day: Day) -> None:
    state = await day.state()
    plan = {step["label"]: step["status"] for step in state["plan"]}
    assert plan == {
        "Read services/queue.py": "done",
        "Make the number of retries a setting": "active",
        "Document QUEUE_RETRIES": "pending",
    }
    assert any("3.11.9" in fact["value"] for fact in state["environment"])
    assert any("9f3c2ab" in note for note in state["assistant_notes"])


@pytest.mark.spec("D10")
async def test_its_markdown_has_its_sections_in_their_order(day: Day) -> None:
    # Said by a caller of its own, so that the state of the others stays without a compaction.
    chat = day.proxy.chat(key="another", system="You are a careful engineer.")
    # A failure that nothing has cured: one that was is told by nobody.
    failing = {
        "id": "b9",
        "type": "function",
        "function": {"name": "Bash", "arguments": '{"command": "make docs"}'},
    }
    first, *said, _ = day.chat.said
    chat.said = [
        first,
        {"role": "assistant", "content": None, "tool_calls": [failing]},
        {"role": "tool", "tool_call_id": "b9", "content": "error: no rule for docs"},
        *said,
    ]
    await chat.says("And now?")
    reply = await day.proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    block = reply.json()["compaction"]["summary"]
    titles = re.findall(r"^#+ (.+)$", block, re.MULTILINE)
    order = (
        *("Task", "User Requirements", "Plan", "Environment", "Files Touched", "Key Decisions"),
        *("Assistant Notes", "Tool Results", "Errors & Failures", "Discoveries"),
    )
    assert [title for title in titles if title in order] == [*order]
    assert day.proxy.model.summaries == []


@pytest.mark.spec("D05", "D16")
async def test_the_thirty_newest_results_are_kept(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, SETTINGS) as proxy:
        chat = proxy.chat()
        for number in range(34):
            call = {"name": "Bash", "arguments": json.dumps({"command": f"make part-{number}"})}
            calls = [{"id": f"c{number}", "type": "function", "function": call}]
            chat.said += [
                {"role": "user", "content": f"Make part {number}."},
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": f"c{number}", "content": f"part {number} is made"},
            ]
        await chat.says("What next?")
        state = (await read(proxy.http, chat, f"sessions/{chat.session}/state"))["state"]
        told = [note["text"] for note in state["tool_results"]]
        assert len(told) == 30
        assert "part 4 is made" in told[0]
        assert "part 33 is made" in told[-1]
