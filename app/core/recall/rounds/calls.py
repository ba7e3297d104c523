"""The calls of an answer: which are ours, and what is sent back for them.

Pure. Knows nothing of how an answer came nor of what a tool finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.core.recall.tool_schemas import NAMES
from app.core.wire.answered import AnsweredChoice
from app.core.wire.json_text import decoded, encoded
from app.errors import InvalidJson

# How a turn ends that wants its calls carried out; some servers say "stop" all the same, or nothing.
_ENDS = frozenset({"tool_calls", "stop", "function_call", None})


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a tool of ours; `arguments` is JSON as the model wrote it, valid or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Called:
    """What an answer calls: `ours` in order, and how many `others` are the client's.

    `is_hidden`: the client need not hear of the answer, because it asks for nothing but our tools.
    """

    ours: tuple[Call, ...]
    others: int
    is_hidden: bool


_NONE = Called((), 0, is_hidden=False)


def called_by(choice: AnsweredChoice) -> Called:
    """What the answer calls. One that was cut off, or whose calls cannot be answered, is not hidden."""
    try:
        message = decoded(choice.message_body)
    except InvalidJson:
        return _NONE
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return _NONE
    ours = tuple([_call(call) for call in calls if is_ours(call)])
    others = len(calls) - len(ours)
    ids = {call.id for call in ours}
    is_sound = "" not in ids and len(ids) == len(ours) and choice.finish_reason in _ENDS
    return Called(ours, others, is_hidden=bool(ours) and not others and is_sound)


def is_ours(call: Any) -> bool:
    """Whether a tool call, whole or a piece that has its name, is to a tool of ours."""
    return name_of(call) in NAMES


def name_of(call: Any) -> str:
    """The name that a tool call, or a piece of one, has; "" without."""
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def answered(call: Call, result: str, chars: int) -> bytes:
    """The tool message that answers a call; a result of more than `chars` characters is cut, and says so."""
    if len(result) > chars:
        note = f"Cut at {chars} characters. Ask for less at a time."
        result = encoded({"truncated": True, "note": note, "beginning": result[:chars]}).decode()
    return encoded({"role": "tool", "tool_call_id": call.id, "content": result})


def newest_words(fields: Sequence[Any]) -> str:
    """The text of the newest user message among these messages; "" without one."""
    for message in reversed(fields):
        if message.get("role") == "user":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            return "\n".join([text for text in texts if isinstance(text, str)])
    return ""


def _call(call: Any) -> Call:
    ident, arguments = call.get("id"), call["function"].get("arguments")
    return Call(
        ident if isinstance(ident, str) else "",
        name_of(call),
        arguments if isinstance(arguments, str) else encoded(arguments).decode(),
    )
