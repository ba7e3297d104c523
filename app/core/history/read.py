"""Reading one message: from its raw bytes to the facts the program decides by.

Knows nothing of the request it stands in, of storage or of how tokens are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from app.core.history.canonical import canonical_form
from app.core.history.message import Message
from app.core.history.numbers import number
from app.core.wire.json_text import decoded, loads_with
from app.core.wire.responses.items import as_chat
from app.errors import InvalidField

TokenCount = Callable[[Mapping[str, Any]], int]


def read_message(raw: bytes, count: TokenCount, at: str = "message") -> Message:
    """The message whose bytes are `raw` (valid JSON, an object, nested at most about 200 levels).

    Raises InvalidField when the role is missing or no string, or the content is neither a string,
    nor null or missing, nor a list of objects. `at` names the message in the error, for example
    `messages[3]`. Everything else a client may get wrong is the upstream's to judge (rule 20).
    """
    fields = as_chat(decoded(raw))
    if not isinstance(fields, dict):
        raise InvalidField("a message must be an object", param=at)
    _check(fields, at)
    return _message(raw, fields, fields["role"], count)


def read_answer(raw: bytes, count: TokenCount) -> Message:
    """The message of an upstream's answer: as `read_message`, but no shape of an object is refused.

    The role is that of an assistant unless the upstream says another.
    """
    fields = as_chat(decoded(raw))
    if not isinstance(fields, dict):
        raise InvalidField("a message must be an object", param="message")
    role = fields.get("role")
    if isinstance(role, str) and role:
        return _message(raw, fields, role, count)
    return _message(raw, fields | {"role": "assistant"}, "assistant", count)


def _message(raw: bytes, fields: dict[str, Any], role: str, count: TokenCount) -> Message:
    exact = fields
    if _holds_float(fields):
        # A float is less than what was sent: 0.1 and 0.1000000000000000055 would be one number.
        exact = as_chat(loads_with(raw, number)) | {"role": role}
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


def _check(fields: Mapping[str, Any], at: str) -> None:
    if "role" not in fields:
        raise InvalidField("a message must have a role", param=f"{at}.role")
    if not isinstance(fields["role"], str):
        raise InvalidField("role must be a string", param=f"{at}.role")
    content = fields.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise InvalidField("content must be a string or a list of parts", param=f"{at}.content")
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            raise InvalidField("a content part must be an object", param=f"{at}.content[{index}]")


def _holds_float(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_float(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_float(item) for item in value)
    return isinstance(value, float)


def _calls(fields: Mapping[str, Any]) -> tuple[str, ...]:
    calls = fields.get("tool_calls")
    if not isinstance(calls, list):
        return ()
    ids = (call.get("id") for call in calls if isinstance(call, dict))
    return tuple(call_id for call_id in ids if isinstance(call_id, str))


def _answers(fields: Mapping[str, Any]) -> str | None:
    call_id = fields.get("tool_call_id")
    return call_id if isinstance(call_id, str) else None
