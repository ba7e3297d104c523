"""A complete (not streamed) answer of the Responses API: the items that the model said, byte for byte.

Knows nothing of HTTP, sessions or what a client makes of it. Nothing here raises: an upstream may send
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.wire.answered import AnsweredChoice, Usage, usage_of
from app.core.wire.chat_answer import Answer, Unreadable
from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_spans import refuse_deeper
from app.core.wire.json_text import decoded, verify
from app.core.wire.responses.items import as_chat
from app.errors import InvalidJson

_CUT_SHORT = {"max_output_tokens": "length"}
# States of an answer that says nothing, or nothing yet.
FAILED = ("failed", "cancelled", "queued", "in_progress")


def parse_response(body: bytes, deepest: int = 128) -> Answer | Unreadable:
    """What `body` says, as one choice whose message is the array of its items."""
    try:
        verify(body)
        refuse_deeper(body, deepest)
        if not body.lstrip().startswith(b"{"):
            return Unreadable("not_an_object")
        return _read(raw_members(body))
    except InvalidJson:
        return Unreadable("invalid_json")


def _read(said: Mapping[str, bytes]) -> Answer | Unreadable:
    if decoded(said.get("error", b"null")) or decoded(said.get("status", b"null")) in FAILED:
        return Unreadable("error")
    items = raw_elements(said.get("output", b"null")) if said.get("output", b"").startswith(b"[") else []
    if decoded(said.get("object", b"null")) == "response.compaction":
        # What stands before it are the client's own messages.
        items = items[-1:]
    if not items or not all(item.startswith(b"{") for item in items):
        return Unreadable("no_choices")
    message = b"[" + b",".join(items) + b"]"
    why = decoded(said.get("incomplete_details", b"null"))
    choice = AnsweredChoice(0, message, finish_reason(message, decoded(said.get("status", b"null")), why))
    return Answer((choice,), tokens_of(decoded(said.get("usage", b"null"))), response_id(said))


def response_id(said: Mapping[str, bytes]) -> str | None:
    """The answer's own id, by which a later request may go on from it."""
    ident = decoded(said.get("id", b"null"))
    return ident if isinstance(ident, str) and ident else None


def finish_reason(message: bytes, status: Any, incomplete: Any) -> str | None:
    """How the answer ended, in the words of chat completions; None while it has not."""
    if status == "completed":
        said = as_chat(decoded(message))
        return "tool_calls" if isinstance(said, dict) and said.get("tool_calls") else "stop"
    if status != "incomplete":
        return None
    reason = incomplete.get("reason") if isinstance(incomplete, dict) else None
    return _CUT_SHORT.get(str(reason), str(reason or "length"))


def tokens_of(usage: Any) -> Usage:
    """The counts of this API, which has other names for them."""
    if not isinstance(usage, dict):
        return Usage()
    return usage_of({
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    })  # fmt: skip
