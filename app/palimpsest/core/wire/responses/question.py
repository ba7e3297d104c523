"""Questions of our own on the Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from palimpsest.core.wire.compaction_items import with_plain_summaries
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.core.wire.request import ChatRequest, Members

_SYSTEM_ROLES = frozenset({"system", "developer"})


def previous_of(request: ChatRequest) -> Members:
    """The `previous_response_id` member, if the request continues an answer."""
    return (("previous_response_id", encoded(request.previous)),) if request.previous else ()


def question_fields(messages: Sequence[bytes], rides: bool) -> dict[str, Any]:
    """The members of a request with these messages as its input: items, arrays of them, or text messages.

    Unless it rides on a client's prompt, leading system messages become `instructions`.
    """
    said, instructions = list(messages), list[str]()
    while not rides and len(said) > 1 and (text := _instruction(said[0])) is not None:
        instructions.append(text)
        del said[0]
    # The upstream must not store questions of ours.
    return ({"instructions": "\n\n".join(instructions)} if instructions else {}) | {
        "input": msgspec.Raw(array_of(map(with_plain_summaries, said))),
        "store": False,
    }


def _instruction(raw: bytes) -> str | None:
    fields = decoded(raw)
    text = fields.get("content") if isinstance(fields, dict) and fields.get("role") in _SYSTEM_ROLES else None
    return text if isinstance(text, str) else None


def has_unreadable_reasoning(answer: bytes) -> bool:
    """True for an answer with reasoning that is given by id only: just its own upstream has the content."""
    items = decoded(answer) if answer.startswith(b"[") else []
    return any(
        item.get("type") == "reasoning" and not (item.get("encrypted_content") or item.get("content"))
        for item in items
    )
