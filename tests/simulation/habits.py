"""What real clients do to a conversation between two requests, one habit a class.

A client keeps its own list of messages; a habit says what goes over the wire and what is kept of an
answer. Knows nothing of the store.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def system(text: str) -> Json:
    return {"role": "system", "content": text}


def calling(*calls: tuple[str, str, str]) -> Json:
    """An answer that calls tools: (id, name, arguments as text)."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call, name, arguments in calls
        ],
    }


def result(call: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": text}


@dataclass(slots=True)
class Client:
    """Resends its whole history, as it is."""

    instructions: str = "You are a careful assistant."
    opening: Sequence[Json] = ()
    said: list[Json] = field(default_factory=list)
    turn: int = 0

    def __post_init__(self) -> None:
        self.said = [*copy.deepcopy(list(self.opening)), *self.said]

    def says(self, *messages: Json) -> list[Json]:
        """The request for a turn that adds these messages."""
        self.turn += 1
        self.said.extend(messages)
        return self.request()

    def request(self) -> list[Json]:
        """What goes over the wire now."""
        return [system(self.preamble()), *self.wire()]

    def hears(self, answer: Json) -> None:
        """An answer arrived."""
        self.said.append(self.kept(copy.deepcopy(answer)))

    def preamble(self) -> str:
        return self.instructions

    def wire(self) -> list[Json]:
        return copy.deepcopy(self.said)

    def kept(self, answer: Json) -> Json:
        return answer


class Dated(Client):
    """The time of day stands in the system prompt."""

    def preamble(self) -> str:
        return f"{self.instructions} It is 10:{self.turn:02d}."


class ListsFiles(Client):
    """The files it knows stand in the system prompt, more of them each turn."""

    def preamble(self) -> str:
        return self.instructions + "".join(f"\n- src/part_{n}.py" for n in range(self.turn))


class Slides(Client):
    """Only the newest nine messages are sent."""

    def wire(self) -> list[Json]:
        return copy.deepcopy(self.said[-9:])


class MovesCacheHint(Client):
    """The newest user message is a part with cache_control; once it is older it is a plain string."""

    def wire(self) -> list[Json]:
        sent = copy.deepcopy(self.said)
        last = max(i for i, message in enumerate(sent) if message["role"] == "user")
        text = sent[last]["content"]
        sent[last]["content"] = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        return sent


class Strips(Client):
    """Keeps an answer without outer whitespace."""

    def kept(self, answer: Json) -> Json:
        if isinstance(answer.get("content"), str):
            answer["content"] = answer["content"].strip()
        return answer


class Reserialises(Client):
    """Parses tool arguments and writes them again: 1e2 comes back as 100.0."""

    def kept(self, answer: Json) -> Json:
        for call in answer.get("tool_calls", ()):
            arguments = json.loads(call["function"]["arguments"] or "{}")
            call["function"]["arguments"] = json.dumps(arguments, indent=1)
        return answer


class Reminds(Client):
    """The newest user message carries a reminder that is gone next turn."""

    def wire(self) -> list[Json]:
        sent = copy.deepcopy(self.said)
        if sent[-1]["role"] == "user":
            sent[-1]["content"] += "\n\n# Reminder: reply with whole files."
        return sent


class AddsExtras(Client):
    """Writes fields of its own library into the answers it kept, and drops null ones."""

    def kept(self, answer: Json) -> Json:
        kept = {key: value for key, value in answer.items() if value is not None}
        kept["provider_specific_fields"] = {"refusal": None}
        kept["annotations"] = []
        if "tool_calls" in kept:
            kept["content"] = ""
        return kept


class DropsReasoning(Client):
    """Forgets what the model thought, whichever way it was written."""

    def kept(self, answer: Json) -> Json:
        answer.pop("reasoning_content", None)
        if isinstance(answer.get("content"), str) and "</think>" in answer["content"]:
            answer["content"] = answer["content"].split("</think>", 1)[1]
        return answer


class Compacts(Client):
    """Every ten turns it puts a summary of its own in place of all but the newest four messages."""

    def says(self, *messages: Json) -> list[Json]:
        if self.turn and self.turn % 10 == 0:
            self.said = [user(f"Summary of what happened until turn {self.turn}."), *self.said[-4:]]
        return Client.says(self, *messages)
