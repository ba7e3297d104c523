"""Questions of our own on this API: what goes along with one, and what its answer says.

A question may stand behind the conversation's own prompt: then everything that the prompt is made of, or
cached by, goes along as it was spelled, and nothing else of the client's request. Knows nothing of summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app.core.wire.answered import Usage
from app.core.wire.chat_request import ChatRequest
from app.core.wire.json_text import decoded, encoded
from app.core.wire.responses.answer import FAILED, finish_reason, tokens_of
from app.core.wire.responses.compacting import in_plain
from app.core.wire.responses.items import as_chat

# Ours to say, or about something else than the prompt: how the answer comes, what is kept of it, who pays.
_NOT_OF_THE_PROMPT = frozenset(
    {
        "background", "context_management", "conversation", "include", "input", "max_output_tokens",
        "max_tool_calls", "metadata", "model", "previous_response_id", "safety_identifier", "service_tier",
        "store", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p",
        "truncation", "user",
    }
)  # fmt: skip
_INSTRUCTING = frozenset({"system", "developer"})

Members = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says: its texts joined, how it ended in the words of chat completions, its counts.

    `has_calls`: the model called a tool, or the upstream did for it.
    """

    text: str
    finish_reason: str | None
    has_calls: bool
    usage: Usage


def members_behind(request: ChatRequest) -> Members:
    """The raw members of a request that go along with a question behind its prompt, in its order.

    An answer in a form that the client wants (a schema) would be no text, so that is left out.
    """
    spelled = [(member.key, request.body[member.start : member.end]) for member in request.shape.members]
    return tuple((name, raw) for name, raw in spelled if _goes_along(name, raw))


def _goes_along(name: str, raw: bytes) -> bool:
    if name in _NOT_OF_THE_PROMPT or raw == b"null":
        return False
    return name != "text" or not _has_form(decoded(raw))


def _has_form(text: Any) -> bool:
    form = text.get("format") if isinstance(text, dict) else None
    return isinstance(form, dict) and form.get("type") != "text"


def previous_of(request: ChatRequest) -> Members:
    """The member that names the answer which a request goes on from."""
    return (("previous_response_id", encoded(request.previous)),) if request.previous else ()


def question_fields(messages: Sequence[bytes], behind: Members | None) -> dict[str, Any]:
    """The fields of a request with these messages as its input: items, arrays of them, or messages of text.

    `behind` are the members that go along with a prompt. Without one, what stands first of a system's is the
    field `instructions`.
    """
    fields: dict[str, Any] = {name: msgspec.Raw(raw) for name, raw in behind or ()}
    said = list(messages)
    if behind is None:
        told: list[str] = []
        while len(said) > 1 and (text := _instruction(said[0])) is not None:
            told.append(text)
            del said[0]
        fields |= {"instructions": "\n\n".join(told)} if told else {}
    # Nothing of it is for the upstream to keep.
    return fields | {"input": msgspec.Raw(b"[" + b",".join(map(in_plain, said)) + b"]"), "store": False}


def _instruction(raw: bytes) -> str | None:
    fields = decoded(raw)
    text = fields.get("content") if isinstance(fields, dict) and fields.get("role") in _INSTRUCTING else None
    return text if isinstance(text, str) else None


def said_in(payload: Any) -> Said | None:
    """What a whole answer says; None for one that failed, or is none."""
    items = payload.get("output") if isinstance(payload, dict) else None
    if not isinstance(items, list) or payload.get("error") or payload.get("status") in FAILED:
        return None
    items = [item for item in items if isinstance(item, dict)]
    fields = as_chat(items) if items else {}
    reason = finish_reason(encoded(items), payload.get("status"), payload.get("incomplete_details"))
    has_calls = any(str(item.get("type")).endswith("_call") for item in items)
    return Said(_text(fields.get("content")), reason, has_calls, tokens_of(payload.get("usage")))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def is_lone_thought(answer: bytes) -> bool:
    """True for an answer with a thought that only its id tells: nobody but its own upstream has the rest."""
    items = decoded(answer) if answer.startswith(b"[") else []
    return any(
        item.get("type") == "reasoning" and not (item.get("encrypted_content") or item.get("content"))
        for item in items
    )
