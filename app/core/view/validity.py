"""What a strict upstream would refuse in a list of messages, by name.

Used as the last guard before a view goes out: a view may have no fault that the client's own list
has not (rule 20). Reads raw messages; knows nothing of windows nor of how a view was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json import JSONDecoder
from typing import Any, Literal, TypeAlias, get_args

from app.core.wire.responses.items import as_chat

Fault: TypeAlias = Literal[
    "empty",
    "not_an_object",
    "bad_role",
    "bad_content",
    "empty_assistant",
    "instruction_not_first",
    "orphan_result",
    "unanswered_call",
    "unanswered_call_at_end",
    "not_started_by_user",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)

# Numbers stay text: a 5,000-digit integer must not raise, and nobody reads them here.
_DECODER = JSONDecoder(parse_int=str, parse_float=str, strict=False)

_INSTRUCTIONS = frozenset({"system", "developer"})
_RESULTS = frozenset({"tool", "function"})
_ROLES = _INSTRUCTIONS | _RESULTS | {"user", "assistant"}


def faults_of(messages: Sequence[bytes]) -> tuple[Fault, ...]:
    """The faults found in a list of raw messages, each once, in the order of `FAULTS`.

    Tool calls must be answered by the messages that follow at once, every one and no other, in any
    order; instructions stand first; what follows them starts with a user message.
    """
    if not messages:
        return ("empty",)
    found: set[Fault] = set()
    parsed = [_object(raw) for raw in messages]
    objects = [fields for fields in parsed if fields is not None]
    if len(objects) < len(parsed):
        found.add("not_an_object")
    for fields in objects:
        found.update(_faults_alone(fields))
    found.update(_faults_of_order(objects))
    found.update(_faults_of_calls(objects))
    return tuple(fault for fault in FAULTS if fault in found)


def added_faults(view: Sequence[bytes], client: Sequence[bytes]) -> tuple[Fault, ...]:
    """Faults of the view that the client's own list has not; empty when the view may go out."""
    found = faults_of(view)
    # The client's list, as long as the whole history, is read only when something is wrong.
    own = set(faults_of(client)) if found else set()
    return tuple(fault for fault in found if fault not in own)


def _object(raw: bytes) -> Mapping[str, Any] | None:
    try:
        fields = as_chat(_DECODER.decode(raw.decode("utf-8", "surrogatepass")))
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    return fields if isinstance(fields.get("role"), str) else {**fields, "role": None}


def _faults_alone(fields: Mapping[str, Any]) -> set[Fault]:
    role, content = fields.get("role"), fields.get("content")
    if role not in _ROLES:
        return {"bad_role"}
    if role == "assistant":
        has_more = any(fields.get(key) for key in ("tool_calls", "function_call", "audio", "refusal"))
        return {"empty_assistant"} if content is None and not has_more else set()
    # The legacy function message may carry null.
    is_content = isinstance(content, str | list) or (role == "function" and content is None)
    return set() if is_content else {"bad_content"}


def _faults_of_order(objects: Sequence[Mapping[str, Any]]) -> set[Fault]:
    found: set[Fault] = set()
    others = [fields for fields in objects if fields.get("role") not in _INSTRUCTIONS]
    places = (i for i, fields in enumerate(objects) if fields.get("role") not in _INSTRUCTIONS)
    leading = next(places, len(objects))
    if len(objects) - leading > len(others):
        found.add("instruction_not_first")
    if others and others[0].get("role") != "user":
        found.add("not_started_by_user")
    return found


def _faults_of_calls(objects: Sequence[Mapping[str, Any]]) -> set[Fault]:
    found: set[Fault] = set()
    open_calls: list[object] = []
    for fields in objects:
        if fields.get("role") in _RESULTS:
            answered = _answered(fields)
            if answered in open_calls:
                open_calls.remove(answered)
            else:
                found.add("orphan_result")
            continue
        if open_calls:
            found.add("unanswered_call")
        open_calls = _calls(fields) if fields.get("role") == "assistant" else []
    if open_calls:
        found.add("unanswered_call_at_end")
    return found


def _answered(fields: Mapping[str, Any]) -> object:
    if fields.get("role") == "tool":
        return fields.get("tool_call_id")
    return ("function", fields.get("name"))


def _calls(fields: Mapping[str, Any]) -> list[object]:
    calls = fields.get("tool_calls")
    ids: list[object] = (
        [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    )
    legacy = fields.get("function_call")
    if isinstance(legacy, dict):
        ids.append(("function", legacy.get("name")))
    return ids
