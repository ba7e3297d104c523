"""The recall calls in an answer, and the messages that answer them, cut to what fits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.core.recall.tool_calls import NAMES
from palimpsest.core.text.message_text import ToolCall
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import AnsweredChoice
from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import InvalidJson

# Finish reasons of an answer whose calls are to be carried out; some servers send "stop", or none.
_ENDS = frozenset({"tool_calls", "stop", "function_call", None})


@dataclass(frozen=True, slots=True)
class Called:
    """The calls of an answer: `ours` in order, and the number of `others`, the client's.

    `is_hidden`: the answer can be hidden from the client, because it calls nothing but our tools.
    `is_mixed`: it calls both, and every call of ours can be answered.
    """

    ours: tuple[ToolCall, ...]
    others: int
    is_hidden: bool
    is_mixed: bool = False


NO_CALLS = Called((), 0, is_hidden=False)


def called_by(choice: AnsweredChoice) -> Called:
    """The calls of an answer. One that was cut off, or whose calls cannot be answered, is not hidden."""
    calls = _calls_in(choice.message_body)
    ours = tuple([_call(call) for call in calls if is_ours(call)])
    others = len(calls) - len(ours)
    ids = [_id_of(call) for call in calls]
    is_sound = all(ids) and len(set(ids)) == len(ids) and choice.finish_reason in _ENDS
    is_answerable = bool(ours) and is_sound
    return Called(ours, others, is_answerable and not others, is_answerable and bool(others))


def recall_calls_in(message: bytes) -> tuple[ToolCall, ...]:
    """The calls of our tools in an assistant message."""
    return tuple([_call(call) for call in _calls_in(message) if is_ours(call)])


def ids_of_others(message: bytes) -> tuple[str, ...]:
    """The ids of the other calls in an assistant message, in order."""
    return tuple([_id_of(call) for call in _calls_in(message) if not is_ours(call)])


def _calls_in(body: bytes) -> list[Any]:
    """A message's tool calls in the form of chat completions; empty for anything else."""
    try:
        message = as_chat(decoded(body))
    except InvalidJson:
        return []
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return calls if isinstance(calls, list) else []


def is_ours(call: Any) -> bool:
    """Whether a tool call, or a piece of one with its name, is of a recall tool."""
    return name_of(call) in NAMES


def name_of(call: Any) -> str:
    """The name in a tool call, or in a piece of one; "" without."""
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def newest_words(fields: Sequence[Any]) -> str:
    """The text of the newest user message; "" without one."""
    return next((text_of(message) for message in reversed(fields) if message.get("role") == "user"), "")


def _id_of(call: Any) -> str:
    ident = call.get("id") if isinstance(call, dict) else None
    return ident if isinstance(ident, str) else ""


def _call(call: Any) -> ToolCall:
    arguments = call["function"].get("arguments")
    return ToolCall(
        _id_of(call),
        name_of(call),
        arguments if isinstance(arguments, str) else encoded(arguments).decode(),
    )


# How often a limit in characters is corrected towards the limit in tokens: text is not evenly dense.
_ATTEMPTS = 8
_CORRECTION = 0.9


def fitted(
    call: ToolCall,
    result: str,
    chars: int,
    tokens: int,
    count: Callable[[Mapping[str, Any]], int],
    wire: Wire = CHAT,
) -> tuple[bytes, int]:
    """The message on `wire` that answers the call, and its tokens by `count`.

    The result is cut, with a note, to `chars` characters, and further while the message exceeds `tokens`. A
    message without any of the result may still exceed them.
    """
    limit = chars
    for attempt in range(_ATTEMPTS + 1):
        kept = result
        if len(result) > limit:
            note = f"Cut at {limit} characters. Ask for less at a time."
            kept = encoded({"truncated": True, "note": note, "beginning": result[:limit]}).decode()
        message = wire.tool_result(call.id, kept)
        size = count(as_chat(decoded(message)))
        limit = min(limit, len(result))
        if size <= tokens or not limit:
            break
        is_last = attempt == _ATTEMPTS - 1
        limit = 0 if is_last else int(limit * max(0, tokens) / size * _CORRECTION)
    return message, size
