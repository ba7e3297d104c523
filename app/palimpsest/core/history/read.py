"""Reading one message: from its raw bytes to a `Message`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from palimpsest.core.history.canonical import canonical_form, number
from palimpsest.core.history.message import Message
from palimpsest.core.wire.json_text import decoded, loads_with
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import NotUnderstood

TokenCount = Callable[[Mapping[str, Any]], int]


def read_message(raw: bytes, count: TokenCount) -> Message:
    """The message whose bytes are `raw` (valid JSON, an object, nested at most about 200 levels).

    The upstream judges whatever a client gets wrong in it (rules 20 and 37): a role that is missing or no
    string is "" here, and content may have any shape. NotUnderstood when it is not an object.
    """
    fields = _object(raw)
    role = fields.get("role")
    return _message(raw, fields, role if isinstance(role, str) else "", count)


def read_answer(raw: bytes, count: TokenCount) -> Message:
    """The message of an upstream's answer: as `read_message`, with the role "assistant" if it has none."""
    fields = _object(raw)
    role = fields.get("role")
    if isinstance(role, str) and role:
        return _message(raw, fields, role, count)
    return _message(raw, fields | {"role": "assistant"}, "assistant", count)


def _object(raw: bytes) -> dict[str, Any]:
    value = decoded(raw)
    if not (isinstance(value, dict) and value.get("type") is None and isinstance(value.get("content"), str)):
        # Everything but a chat message with plain text may be, or hold, an item of the Responses API.
        value = as_chat(value)
    if not isinstance(value, dict):
        raise NotUnderstood("a message must be an object")
    return value


def _message(raw: bytes, fields: dict[str, Any], role: str, count: TokenCount) -> Message:
    exact = fields
    if _holds_float(fields):
        # A float is less exact than what was sent: 0.1 and 0.1000000000000000055 would be one number.
        exact = as_chat(loads_with(raw, number)) | ({"role": role} if role else {})
    return Message(
        raw=raw,
        digest=sha256(raw).digest(),
        role=role,
        canonical=sha256(canonical_form(exact)).digest(),
        tokens=max(1, count(fields)),
        fields=fields,
        calls=_calls(fields) if role == "assistant" else (),
        answers=_answers(fields) if role == "tool" else None,
    )


def _holds_float(value: object) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
    for item in items:
        if isinstance(item, float) or (isinstance(item, dict | list) and _holds_float(item)):
            return True
    return False


def _calls(fields: Mapping[str, Any]) -> tuple[str, ...]:
    calls = fields.get("tool_calls")
    if not isinstance(calls, list):
        return ()
    ids = (call.get("id") for call in calls if isinstance(call, dict))
    return tuple(call_id for call_id in ids if isinstance(call_id, str))


def _answers(fields: Mapping[str, Any]) -> str | None:
    call_id = fields.get("tool_call_id")
    return call_id if isinstance(call_id, str) else None
