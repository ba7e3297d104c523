"""Questions of our own on the Responses API: their members, and their answers.

A question may be appended to the conversation's own prompt: then every member that is part of that prompt, or
of its cache key, is sent as the client spelled it, and no other member of the client's request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from palimpsest.core.wire.chat_answers import QuestionAnswer, text_of
from palimpsest.core.wire.compaction_items import with_plain_summaries
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.core.wire.request import ChatRequest, Members
from palimpsest.core.wire.responses.answers import FAILED, finish_reason, tokens_of
from palimpsest.core.wire.responses.items import as_chat

# Members that we set ourselves, or that are not about the prompt: delivery, storage, billing.
_OTHERS = """
background context_management conversation include input max_output_tokens max_tool_calls metadata model
previous_response_id safety_identifier service_tier store stream stream_options temperature tool_choice
tools top_logprobs top_p truncation user
"""
_NOT_OF_THE_PROMPT = frozenset(_OTHERS.split())
_SYSTEM_ROLES = frozenset({"system", "developer"})


def prompt_members_of(request: ChatRequest | None) -> Members | None:
    """The raw members of a request to send with a question appended to its prompt, in its order.

    A response format (a schema) is left out: the answer must be text. None without the request: then its
    instructions, tools and settings are not known.
    """
    if request is None:
        return None
    spelled = [(member.key, request.body[member.start : member.end]) for member in request.shape.members]
    return tuple(
        (name, raw)
        for name, raw in spelled
        if name not in _NOT_OF_THE_PROMPT and raw != b"null" and (name != "text" or not _has_format(raw))
    )


def _has_format(raw: bytes) -> bool:
    text = decoded(raw)
    form = text.get("format") if isinstance(text, dict) else None
    return isinstance(form, dict) and form.get("type") != "text"


def previous_of(request: ChatRequest) -> Members:
    """The `previous_response_id` member, if the request continues an answer."""
    return (("previous_response_id", encoded(request.previous)),) if request.previous else ()


def question_fields(messages: Sequence[bytes], behind: Members | None) -> dict[str, Any]:
    """The members of a request with these messages as its input: items, arrays of them, or text messages.

    `behind` are the members that belong to the client's prompt. Without one, leading system messages become
    `instructions`.
    """
    fields: dict[str, Any] = {name: msgspec.Raw(raw) for name, raw in behind or ()}
    said = list(messages)
    if behind is None:
        instructions: list[str] = []
        while len(said) > 1 and (text := _instruction(said[0])) is not None:
            instructions.append(text)
            del said[0]
        fields |= {"instructions": "\n\n".join(instructions)} if instructions else {}
    # The upstream must not store questions of ours.
    return fields | {
        "input": msgspec.Raw(array_of(map(with_plain_summaries, said))),
        "store": False,
    }


def _instruction(raw: bytes) -> str | None:
    fields = decoded(raw)
    text = fields.get("content") if isinstance(fields, dict) and fields.get("role") in _SYSTEM_ROLES else None
    return text if isinstance(text, str) else None


def said_in(payload: Any) -> QuestionAnswer | None:
    """Reads a complete answer; None if it failed, or is none."""
    items = payload.get("output") if isinstance(payload, dict) else None
    if not isinstance(items, list) or payload.get("error") or payload.get("status") in FAILED:
        return None
    items = [item for item in items if isinstance(item, dict)]
    fields = as_chat(items) if items else {}
    reason = finish_reason(encoded(items), payload.get("status"), payload.get("incomplete_details"))
    has_calls = any(str(item.get("type")).endswith("_call") for item in items)
    return QuestionAnswer(text_of(fields.get("content")), reason, has_calls, tokens_of(payload.get("usage")))


def has_unreadable_reasoning(answer: bytes) -> bool:
    """True for an answer with reasoning that is given by id only: just its own upstream has the content."""
    items = decoded(answer) if answer.startswith(b"[") else []
    return any(
        item.get("type") == "reasoning" and not (item.get("encrypted_content") or item.get("content"))
        for item in items
    )
