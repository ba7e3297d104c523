"""Agents that put outputs of commands into user messages: these are results, and no person's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied

# How agents write a command, and its output.
AGENTS = {
    "mini-swe-agent": (
        "THOUGHT: I look.\n\n```bash\nls d{0}\n```",
        "<returncode>0</returncode>\n<output>\n{1}\n</output>",
    ),
    "InterCode": ("execute[ls d{0}]", "Output: {1}"),
    "ReAct": ("Thought: I look.\nAction: list[d{0}]", "Observation: {1}"),
    "OpenHands": (
        "I look.\n<execute_bash>\nls d{0}\n</execute_bash>",
        "EXECUTION RESULT of [execute_bash]:\n{1}",
    ),
    "AutoGen": (
        "```python\nprint(listdir('d{0}'))\n```",
        "exitcode: 0 (execution succeeded)\nCode output:\n{1}",
    ),
    "Terminus": ('{{"commands": [{{"keystrokes": "ls d{0}"}}]}}', "New Terminal Output:\n{1}"),
}
TASK = "Please build it.\n" + "\n".join(f"{n}. Widget W{n}Q is {n * 7} mm wide." for n in range(1, 11))


def listing(step: int, tokens: int) -> str:
    return "\n".join(f"total {line} never use file_{step}_{line}.txt" for line in range(tokens // 12))


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_task_stays_and_the_newest_output_is_shortened(agent: str, tmp_path: Path) -> None:
    command, output = AGENTS[agent]
    async with proxied(ModelServer(window=8_000), tmp_path) as proxy:
        chat, said = proxy.chat(system="You are an agent."), TASK
        for step, tokens in enumerate((200, 200, 200, 6_800, 7_100)):
            proxy.model.says(command.format(step))
            await chat.says(said)
            said = output.format(step, listing(step, tokens))
        await chat.says(said)
        shown = proxy.model.prompts[-1].text
    assert [n for n in range(1, 11) if f"W{n}Q" not in shown] == []


@pytest.mark.parametrize("preset", ["auto", "handoff", "working_state"])
@pytest.mark.parametrize("agent", AGENTS)
async def test_an_output_is_no_wish_of_the_user(agent: str, preset: str, tmp_path: Path) -> None:
    command, output = AGENTS[agent]
    refused = Says(status=500, error={"error": {"message": "No."}})
    model = ModelServer(window=8_000, summary=lambda _: refused)
    async with proxied(model, tmp_path, {"policy.name": preset}) as proxy:
        chat, said = proxy.chat(system="You are an agent."), TASK
        for step in range(24):
            proxy.model.says(command.format(step))
            await chat.says(said)
            said = output.format(step, listing(step, 500))
        (*_, record) = await chat.compactions()
        roles = {row["role"] for row in (await chat.rows())[3::2]}
    assert "never use" not in record["summary"]
    assert "user: " not in record["summary"].replace("1 user: Please build it.", "")
    assert all("USER [2]" not in seen.text for seen in model.summaries)
    assert roles == {"tool"}


PEOPLE = ["Please fix the output:\nit is blue.", "Results look good. Never use red.", "Use tabs, not spaces."]


@pytest.mark.parametrize("words", PEOPLE)
async def test_a_person_who_answers_a_command_stays_a_person(words: str, tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat()
        for said in (TASK, words, "Output: is that what you see?"):
            proxy.model.says("Run this:\n```bash\nls\n```" if said is TASK else "I see. What else?")
            await chat.says(said)
        assert [row["role"] for row in await chat.rows()] == ["user", "assistant"] * 3
