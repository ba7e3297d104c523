"""The calls of an answer: which are ours, and what is sent back for them.

Pure. Knows nothing of how an answer came nor of what a tool finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.core.recall.tool_schemas import NAMES
from app.core.wire.answered import AnsweredChoice
from app.core.wire.chat_request import Wire
from app.core.wire.json_text import decoded, encoded
from app.core.wire.responses.items import as_chat
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
    `is_mixed`: it asks for both, and every call of ours can be answered.
    """

    ours: tuple[Call, ...]
    others: int
    is_hidden: bool
    is_mixed: bool = False


def called_by(choice: AnsweredChoice) -> Called:
    """What the answer calls. One that was cut off, or whose calls cannot be answered, is not hidden."""
    calls = _calls_in(choice.message_body)
    ours = tuple([_call(call) for call in calls if is_ours(call)])
    others = len(calls) - len(ours)
    ids = [_id_of(call) for call in calls]
    is_sound = all(ids) and len(set(ids)) == len(ids) and choice.finish_reason in _ENDS
    is_told = bool(ours) and is_sound
    return Called(ours, others, is_hidden=is_told and not others, is_mixed=is_told and bool(others))


def ours_in(message: bytes) -> tuple[Call, ...]:
    """The calls of our tools in an assistant's message."""
    return tuple([_call(call) for call in _calls_in(message) if is_ours(call)])


def ids_of_others(message: bytes) -> tuple[str, ...]:
    """The ids of the other calls in an assistant's message, in order."""
    return tuple([_id_of(call) for call in _calls_in(message) if not is_ours(call)])


def _calls_in(body: bytes) -> list[Any]:
    """Its tool calls, as chat completions have them; empty for what is no message."""
    try:
        message = as_chat(decoded(body))
    except InvalidJson:
        return []
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return calls if isinstance(calls, list) else []


def is_ours(call: Any) -> bool:
    """Whether a tool call, whole or a piece that has its name, is to a tool of ours."""
    return name_of(call) in NAMES


def name_of(call: Any) -> str:
    """The name that a tool call, or a piece of one, has; "" without."""
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def answered(call: Call, result: str, chars: int, wire: Wire = "chat") -> bytes:
    """The message that answers a call; a result of more than `chars` characters is cut, and says so."""
    if len(result) > chars:
        note = f"Cut at {chars} characters. Ask for less at a time."
        result = encoded({"truncated": True, "note": note, "beginning": result[:chars]}).decode()
    if wire == "responses":
        return encoded({"type": "function_call_output", "call_id": call.id, "output": result})
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


def _id_of(call: Any) -> str:
    ident = call.get("id") if isinstance(call, dict) else None
    return ident if isinstance(ident, str) else ""


def _call(call: Any) -> Call:
    arguments = call["function"].get("arguments")
    return Call(
        _id_of(call),
        name_of(call),
        arguments if isinstance(arguments, str) else encoded(arguments).decode(),
    )
