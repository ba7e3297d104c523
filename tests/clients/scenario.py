"""The conversation that every client with tools holds, and the model server's part in it.

What the model answers follows from the newest turn alone, so that it is the same directly, through the proxy
and behind a compaction; only the ids of its calls are new every time, as a real server's are. Knows nothing
of clients and of how a prompt is judged.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

from tests.kit.model import Says, Seen
from tests.kit.words import prose

Json = dict[str, Any]
SYSTEM = "You keep the records of a harbour. Use the tools, and answer in one sentence."
TURNS = 12
# A turn's steps: how many calls each step makes. None at all, one, two at once, one after the other.
_STEPS: tuple[tuple[int, ...], ...] = ((), (1,), (2,), (1, 1), (), (2, 1))
_SAYING = re.compile(r"Turn (\d+) of (\w+)\.")
_CALL = re.compile(r"call_(\d+)_(\d+)_")
_WRITING = "Write it into notes.md."
# Two conversations at once begin alike: the first turn names nobody.
_NOBODY = "nobody"


@dataclass(frozen=True)
class Story:
    """One conversation. `house` is a word that stands in nearly all of its messages and in no other's.

    `alike`: the first turn names nobody, so that two conversations begin with the same words. `writes`: each
    turn has a file rewritten.
    """

    house: str
    turns: int = TURNS
    alike: bool = True
    writes: bool = False

    @property
    def says(self) -> list[str]:
        ending = f" {_WRITING}" if self.writes else ""
        return [_saying(number, self._named(number)) + ending for number in range(1, self.turns + 1)]

    @property
    def records(self) -> dict[str, str]:
        """What the tool `lookup` finds by name."""
        numbers = range(1, self.turns + 1)
        names = [name for number in numbers for name in _names(number, self._named(number))]
        return {name: f"Record {name}. {prose(sum(name.encode()), 190)}" for name in names}

    @property
    def answers(self) -> list[str]:
        """What a client has at the end of each turn when it asks for plain text."""
        told = written if self.writes else answer
        return [told(number, self._named(number)) for number in range(1, self.turns + 1)]

    def _named(self, number: int) -> str:
        return self.house if number > 1 or not self.alike else _NOBODY


def answer(number: int, house: str) -> str:
    """The model's words at the end of a turn."""
    return f"Answer {number} for {house}: {prose(10_000 + number, 14)}"


def written(number: int, house: str) -> str:
    """The model's words where a file is to be rewritten: the whole file, a line for every turn."""
    lines = "".join(f"Line {line} for {house}: {prose(20_000 + line, 12)}\n" for line in range(1, number + 1))
    return f"{answer(number, house)}\n\nnotes.md\n```\n{lines}```"


def _saying(number: int, house: str) -> str:
    decided = f"We decided to take berth {house}-{number}."
    return f"Turn {number} of {house}. {prose(1_000 * len(house) + number, 100)} {decided}"


def _names(number: int, house: str) -> list[str]:
    steps = _STEPS[number % len(_STEPS)]
    return [f"{house}-{number}-{step}-{at}" for step, width in enumerate(steps) for at in range(width)]


def script(seen: Seen) -> Says:
    """The model's answer to a prompt of this conversation; always the same words to any other prompt."""
    said = [_SAYING.search(_text(m)) for m in seen.messages if m["role"] == "user"]
    if not said or said[-1] is None:
        return Says({"role": "assistant", "content": "Noted."})
    number, house = int(said[-1][1]), said[-1][2]
    newest = seen.messages[-1]
    done = _CALL.match(str(newest.get("tool_call_id"))) if newest["role"] == "tool" else None
    step = int(done[2]) + 1 if done else 0
    steps = _STEPS[number % len(_STEPS)]
    if step < len(steps) and seen.body.get("tools"):
        offered = {tool["function"]["name"] for tool in seen.body["tools"]}
        calls = [_call(number, step, at, house, offered) for at in range(steps[step])]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return Says(message, finish="tool_calls", in_pieces=True)
    text = (written if _WRITING in said[-1].string else answer)(number, house)
    if seen.body.get("response_format"):
        text = json.dumps({"turn": number, "note": text})
    return Says({"role": "assistant", "content": text})


def _call(number: int, step: int, at: int, house: str, offered: set[str]) -> Json:
    """Every third call is of a number, written as clients like to write it otherwise.

    A client that has tools of its own is asked for a file and a command instead.
    """
    record = f"{house}-{number}-{step}-{at}"
    name, arguments = "lookup", json.dumps({"name": record})
    if "read" in offered:
        name, arguments = "read", json.dumps({"filePath": f"records/{record}.txt"})
    if (number + step + at) % 3 == 0:
        name, arguments = "measure", '{"metres":1e2}'
        if "bash" in offered:
            name, arguments = "bash", '{"description":"Say a length", "command":"echo 1e2"}'
    function = {"name": name, "arguments": arguments}
    id_ = f"call_{number}_{step}_{uuid.uuid4().hex[:12]}"
    return {"id": id_, "type": "function", "function": function}


def _text(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content or "")
