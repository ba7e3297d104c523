"""What a model can still answer after six compactions: a fact, its files, the open task, a decision.

Every preset is asked the same, with an honest summarizer and with none that answers. The summarizer
invents nothing, so that a probe that fails was lost on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.presets import PRESETS

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.extract import extract
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 16_000
# What a preset's source would have set for these tools and this window.
NUMBERS: dict[str, Json] = {
    "rolling": {
        "policy.advanced.trigger_reserve_tokens": 0,
        "policy.advanced.read_tools": ["read_file", "edit_file"],
    }
}
pytestmark = pytest.mark.timeout(120)

FACT = "the harbour code is 4471-KLM"
FOUND = "QUE-3391"
FILES = (
    "src/crane/load.py",
    "docs/berths.md",
    "src/ferry/table.py",
    "tests/test_tide.py",
    "config/lamps.yaml",
    "src/tide.py",
)
OLD, NEW = "SQLite-41", "Postgres-77"
TASK = "move the winch of pier W-9 to its own module, then give every motor a brake"
NEXT = "give motor 2 a brake"

PROBES = ("recall", "artifact", "continuation", "decision", "nothing stale")
_REQUESTS = "User Requirements lists what users said, in order: the old word stands above the new one (D06)"
_READ = "of a file that was read its name stays; what it said goes first where the block is small (D03)"
_TOOLS = "what only a tool's output said is looked up, not retold: a result gives commands and changes"
_BOTH = "the user's words stand in their order: the old word above the one that replaced it"
_TOLD = "a record that repeats the old word keeps it, and no line of it is deleted: it may stand below"
_SLOTS = "slots are noted as messages pass: the old word may stand in one below the new one"
# What a preset loses, with a summarizer or without one, and why.
LOST: Mapping[tuple[str, str], str] = {
    ("auto", "recall"): _TOOLS,
    ("auto", "nothing stale"): _BOTH,
    ("auto", "decision"): _TOLD,
    ("handoff", "recall"): _TOOLS,
    ("handoff", "nothing stale"): _BOTH,
    ("handoff", "decision"): _TOLD,
    ("batch", "recall"): f"without a model: {_READ}",
    ("batch", "nothing stale"): _REQUESTS,
    ("by_content", "recall"): f"without a model: {_READ}",
    ("by_content", "nothing stale"): _REQUESTS,
    ("rolling", "recall"): _TOOLS,
    (
        "rolling",
        "artifact",
    ): "a summary that copies leaves its room to code, which names the newest of what was read",
    ("rolling", "nothing stale"): _BOTH,
    ("rolling", "decision"): "memory of the session, below the summary, is written every twelve exchanges",
    ("worker", "recall"): _TOOLS,
    ("worker", "nothing stale"): _BOTH,
    ("worker", "decision"): _TOLD,
    ("working_state", "recall"): _READ,
    ("working_state", "decision"): _SLOTS,
    ("working_state", "nothing stale"): _REQUESTS,
}


def nobody(_: Seen) -> Says:
    return Says(status=503, error={"error": {"message": "no summarizer today", "type": "server_error"}})


async def until_compacted(chat: Chat, model: ModelServer, times: int) -> None:
    """Small talk until the session has been compacted so many times more."""
    wanted = len(await chat.compactions()) + times
    while len(await chat.compactions()) < wanted:
        model.says("Understood.")
        await chat.says(prose(len(chat.said), 700))
        assert len(chat.said) < 1_000


async def works(chat: Chat, model: ModelServer) -> None:
    """Each file is read or changed, in a request of its own."""
    for at, path in enumerate(FILES):
        model.calls((f"file_{at}", "read_file" if at % 2 else "edit_file", {"path": path}))
        await chat.says(f"Look after this: {prose(900 + at, 8)}")
        model.says("It is done.")
        found = f"It belongs to berth {FOUND}.\n{prose(at, 300)}" if at == 1 else prose(at, 300)
        await chat.sends({"role": "tool", "tool_call_id": f"file_{at}", "content": found})


async def begins_a_task(chat: Chat, model: ModelServer) -> None:
    """The task is begun and not ended: its steps go on until it has been folded twice."""
    wanted = len(await chat.compactions()) + 2
    model.calls(("step_0", "read_file", {"path": "src/winch.py"}))
    said = model.answers[-1].message
    assert said is not None
    said["content"] = f"The module is there. Next step: {NEXT}."
    await chat.says(f"Task: {TASK}.")
    step = 0
    while len(await chat.compactions()) < wanted:
        model.calls((f"step_{step + 1}", "read_file", {"path": "src/winch.py"}))
        await chat.sends(
            {"role": "tool", "tool_call_id": f"step_{step}", "content": prose(5_000 + step, 600)}
        )
        step += 1
        assert step < 200


async def readable(chat: Chat, view: str) -> str:
    """The view, and all that the ids named in it lead to."""
    return "\n".join(
        [view, *[await chat.recalls(ident) for ident in set(re.findall(r"dcm_[0-9a-f]+", view))]]
    )


async def held(chat: Chat, view: str) -> set[str]:
    """The names of the probes that are answered."""
    lines = [line for line in view.split("\n") if OLD in line or NEW in line]
    everything = await readable(chat, view)
    answers = {
        "recall": all(fact in everything for fact in (FACT, FOUND)),
        "artifact": all(path in view for path in FILES),
        "continuation": TASK in view and NEXT in view,
        # Of all that is said about it the last word is the new one.
        "decision": bool(lines) and NEW in lines[-1],
        "nothing stale": all(NEW in line for line in lines),
    }
    assert set(answers) == set(PROBES)
    return {name for name, holds in answers.items() if holds}


def shown(prompt: Seen) -> str:
    """All that the model saw, line by line as it stands in the messages."""
    return "\n".join(f"{message.get('content')}\n{message.get('tool_calls')}" for message in prompt.messages)


# Of two presets code alone writes the blocks: whoever summarizes is not asked.
@pytest.mark.parametrize(
    ("preset", "summary"),
    [
        (preset, summary)
        for preset in sorted(PRESETS)
        for summary in (extract, nobody)
        if summary is nobody or preset not in ("by_content", "working_state")
    ],
)
async def test_what_is_left_after_six_compactions(
    preset: str, summary: Callable[[Seen], Says], tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW, summary=summary)
    numbers = {"policy.advanced.breaker_failures": 100, **NUMBERS.get(preset, {})}
    overrides = {"policy.name": preset, "database.synchronous": "normal", **numbers}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep the harbour's software.", extra={"tools": TOOLS})
        await chat.says("You will help me with the harbour today.")
        await chat.says(f"Please note that {FACT}.")
        await chat.says(f"We decided: the ledger is kept in {OLD}.")
        await until_compacted(chat, model, 1)
        await works(chat, model)
        await until_compacted(chat, model, 2)
        await chat.says(f"I changed my mind: the ledger is kept in {NEW} instead of {OLD}.")
        await until_compacted(chat, model, 1)
        await begins_a_task(chat, model)
        assert len(await chat.compactions()) >= 6
        are_sound(model.prompts, chat.sent, WINDOW)
        lost = {probe for (name, probe) in LOST if name == preset}
        missing = set(PROBES) - await held(chat, shown(model.prompts[-1]))
        assert missing <= lost


def test_what_is_lost_has_a_reason() -> None:
    assert all(name in PRESETS and probe in PROBES and why for (name, probe), why in LOST.items())
