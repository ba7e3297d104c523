"""Messages and conversations for tests of the core, without the wire: a small factory, and random histories.

Tokens are synthetic: one for four characters, one for each wide character, and a frame.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from palimpsest.core.history.message import Conversation, Message

FRAME = 6


def count_text(text: str) -> int:
    """A token for four characters; wide ones count whole."""
    if text.isascii():
        return (len(text) + 3) // 4
    # Characters of three bytes are the wide ones here; a lone surrogate counts as one too.
    wide = (len(text.encode("utf-8", "surrogatepass")) - len(text)) // 2
    return wide + (len(text) - wide + 3) // 4


def message(fields: dict[str, Any]) -> Message:
    raw = json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")
    calls = tuple(call["id"] for call in fields.get("tool_calls") or [])
    content = fields.get("content")
    parts = content if isinstance(content, list) else []
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in parts)
    arguments = "".join(call["function"]["arguments"] for call in fields.get("tool_calls") or [])
    digest = hashlib.sha256(raw).digest()
    return Message(
        raw=raw,
        digest=digest,
        role=fields["role"],
        canonical=digest,
        tokens=FRAME + count_text(text) + count_text(arguments) + 8 * len(calls),
        fields=fields,
        calls=calls,
        answers=fields.get("tool_call_id"),
    )


def conversation(fields: Sequence[dict[str, Any]]) -> Conversation:
    """Leading instructions are the preamble, the rest is chained."""
    return chained([message(each) for each in fields])


def chained(messages: Sequence[Message]) -> Conversation:
    """As `conversation`, of messages made already."""
    start = 0
    while start < len(messages) and messages[start].is_instruction:
        start += 1
    chains: list[bytes] = []
    parent = b"namespace"
    for each in messages[start:]:
        parent = hashlib.sha256(parent + each.canonical).digest()
        chains.append(parent)
    return Conversation(tuple(messages[:start]), tuple(messages[start:]), tuple(chains))


def preamble_tokens(talk: Conversation) -> int:
    return sum(each.tokens for each in talk.preamble)


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def developer(text: str) -> dict[str, Any]:
    return {"role": "developer", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*ids: str, arguments: str = "{}", text: str | None = None) -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": "run", "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": text, "tool_calls": made}


def result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def prose(tokens: int, seed: str = "word") -> str:
    """Text of exactly so many synthetic tokens."""
    unit = f"{seed} "
    return (unit * (tokens * 4 // len(unit) + 1))[: tokens * 4]


class RandomHistory:
    """Grows a history turn by turn the way clients do: parallel and aborted calls, repeated ids, edits."""

    def __init__(self, random: Random, most: int = 400) -> None:
        self.random = random
        self.most = most
        self._made: list[Message] = []
        self.fields: list[dict[str, Any]] = [system("be exact")]
        if random.random() < 0.5:
            self.fields.append(developer("say which files you changed"))
        if random.random() < 0.1:
            self.fields.append(assistant("Hello, what shall we do?"))
        self.fields.append(user(self._text(4)))

    @property
    def conversation(self) -> Conversation:
        """What the client would send now."""
        same = 0
        while same < min(len(self._made), len(self.fields)) and self._made[same].fields is self.fields[same]:
            same += 1
        self._made = [*self._made[:same], *(message(each) for each in self.fields[same:])]
        return chained(self._made)

    def grow(self) -> None:
        """One more turn of a random kind; the list ends with what a client would send."""
        kinds: tuple[tuple[Callable[[], None], float], ...] = (
            (self._talk, 0.45),
            (self._work, 0.35),
            (self._abort, 0.08),
            (self._instruct, 0.05),
            (self._edit, 0.07),
        )
        self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()

    def _talk(self) -> None:
        self.fields += [assistant(self._text(1)), user(self._text(1))]

    def _work(self) -> None:
        """Steps of one to four parallel calls whose results come in any order; ids are few, so they recur."""
        for _ in range(self.random.randint(1, 4)):
            ids = self.random.sample(
                ["call_1", "call_2", "call_3", "call_4", "call_5"], self.random.randint(1, 4)
            )
            self.fields.append(
                calls(*ids, arguments=json.dumps({"path": f"src/m{self.random.randint(1, 9)}.py"}))
            )
            self.random.shuffle(ids)
            self.fields += [result(i, self._text(12 if self.random.random() < 0.05 else 1)) for i in ids]
        if self.random.random() < 0.6:
            self.fields += [assistant(self._text(1)), user(self._text(1))]

    def _abort(self) -> None:
        """Calls of which some or none are answered before the user goes on."""
        ids = ["call_1", "call_2", "call_3"]
        self.fields.append(calls(*ids))
        self.fields += [result(i, self._text(1)) for i in ids[: self.random.randint(0, 2)]]
        self.fields.append(user(self._text(1)))

    def _instruct(self) -> None:
        make = self.random.choice([system, developer])
        self.fields += [assistant("done"), make(f"rule {self.random.random()}"), user(self._text(1))]

    def _edit(self) -> None:
        """The client goes back to an earlier user message and says something else."""
        places = [i for i, each in enumerate(self.fields) if each["role"] == "user"]
        at = self.random.choice(places[len(places) // 2 :])
        self.fields = [*self.fields[:at], user(self._text(1))]

    def _text(self, factor: int) -> str:
        length = self.random.randint(1, self.most * factor)
        unit = self.random.choice(["word ", "src/m3.py: line ", "漢字仮名", "x", '{"a": [1, 2]} '])
        return (unit * (length // len(unit) + 1))[:length]
