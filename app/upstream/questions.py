"""A question to a model that writes summaries, as the body of a request, and what the answer to it says.

Each of the two APIs has its own names for the same, and models refuse some of the optional fields: which ones
is learned from their refusals. Knows nothing of sockets, keys or of what a good summary is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import httpx
import msgspec

from app.core.wire.answered import Usage, usage_of
from app.core.wire.chat_request import Wire
from app.core.wire.json_text import encoded
from app.core.wire.responses.asking import Members, question_fields, said_in
from app.upstream.http import Reply
from app.upstream.overflow import NotOverflow, Overflow, classify

PATHS: Mapping[Wire, str] = {"chat": "/chat/completions", "responses": "/responses"}
# How servers say that they have no such address, or that a model is not served there.
_NO_ADDRESS = frozenset({404, 405, 501})
_WANTS_COMPLETION_TOKENS = re.compile(r"max_completion_tokens")
_REFUSES_LIMIT = re.compile(
    r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected|not (?:supported|permitted|allowed)|extra inputs)"
    r"[^.]{0,80}max_output_tokens|max_output_tokens[^.]{0,80}"
    r"(?:unsupported|unknown|unrecogni[sz]ed|not (?:supported|permitted|allowed)|extra inputs)",
    re.IGNORECASE,
)
_REFUSES_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    """What the model said. `text` may be empty; `usage` is the upstream's own, empty where it states none."""

    text: str
    finish_reason: str | None
    had_tool_calls: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class KeyRefused:
    """401 or 403: this key will not do, and asking again with it is pointless (rule 23)."""

    status: int


@dataclass(frozen=True, slots=True)
class TooLong:
    """The request did not fit the summarizer's window, as far as it said."""

    overflow: Overflow


@dataclass(frozen=True, slots=True)
class Failed:
    """No summary this time. `reason` is a stable word for logs and events; it quotes nothing."""

    reason: str


SummaryOutcome: TypeAlias = SummaryAnswer | KeyRefused | TooLong | Failed


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, of whom, and how long the answer may be, tokens.

    `messages` are JSON as bytes: chat messages, and of the Responses API also items and arrays of them.
    `tools` are schemas as raw JSON: they are part of a cached prompt, and forbidden to be called. `wire` is
    the API that is asked first. `behind`: the question stands behind a prompt of that API, where alone it
    makes sense, and of the Responses API these members go along.
    """

    messages: Sequence[bytes]
    model: str
    max_tokens: int
    tools: bytes | None = None
    wire: Wire = "chat"
    behind: Members | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which of the optional fields a model takes; `limit` "" is none for the length of its answer."""

    limit: str
    temperature: bool = True

    @classmethod
    def of(cls, question: Question, wire: Wire) -> Dialect:
        """What is tried first. A model that was asked to think takes no temperature."""
        if wire == "chat":
            return cls("max_tokens")
        return cls("max_output_tokens", not any(name == "reasoning" for name, _ in question.behind or ()))


def body_of(question: Question, wire: Wire, dialect: Dialect) -> bytes:
    """The request's body."""
    fields: dict[str, Any] = {"model": question.model}
    if wire == "chat":
        fields["messages"] = [msgspec.Raw(message) for message in question.messages]
    else:
        fields |= question_fields(question.messages, question.behind)
    if dialect.limit:
        fields[dialect.limit] = question.max_tokens
    if question.tools is not None:
        fields |= {"tools": msgspec.Raw(question.tools), "tool_choice": "none"}
    if dialect.temperature:
        # The same history should give the same summary.
        fields["temperature"] = 0
    return msgspec.json.encode(fields)


def learned(reply: Reply, dialect: Dialect) -> Dialect:
    """The dialect after this reply; another one where the question should be put again, in its terms."""
    if reply.status not in (400, 422):
        return dialect
    said = reply.body[:4096].decode("utf-8", "replace")
    if dialect.limit == "max_tokens" and _WANTS_COMPLETION_TOKENS.search(said) and _is_about_fields(reply):
        return replace(dialect, limit="max_completion_tokens")
    if dialect.limit == "max_output_tokens" and _REFUSES_LIMIT.search(said) and _is_about_fields(reply):
        return replace(dialect, limit="")
    if dialect.temperature and _REFUSES_TEMPERATURE.search(said):
        return replace(dialect, temperature=False)
    return dialect


def _is_about_fields(reply: Reply) -> bool:
    # vLLM names both fields when the answer asked for is too long: that is an overflow, not a dialect.
    return isinstance(classify(reply.status, reply.headers, reply.body), NotOverflow)


def is_unknown_address(reply: Reply) -> bool:
    """True when this API may not be spoken there, and another may."""
    return reply.status in _NO_ADDRESS


def outcome_of(reply: Reply, wire: Wire) -> SummaryOutcome:
    """What came of a question."""
    if reply.status in (401, 403):
        return KeyRefused(reply.status)
    verdict = classify(reply.status, reply.headers, reply.body)
    if isinstance(verdict, Overflow):
        return TooLong(verdict)
    if reply.status != httpx.codes.OK:
        return Failed(f"status_{reply.status}")
    return _completion(reply.json()) if wire == "chat" else _response(reply)


def _response(reply: Reply) -> SummaryOutcome:
    payload = reply.json()
    said = said_in(payload)
    if said is not None:
        return SummaryAnswer(said.text, said.finish_reason, said.has_calls, said.usage)
    error = payload.get("error") if isinstance(payload, dict) else None
    verdict = classify(400, reply.headers, encoded({"error": error})) if error else None
    return TooLong(verdict) if isinstance(verdict, Overflow) else Failed("no_choice")


def _completion(payload: Any) -> SummaryOutcome:
    choices = payload.get("choices") if isinstance(payload, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Failed("no_choice")
    finish = choice.get("finish_reason")
    return SummaryAnswer(
        text=_text(message.get("content")),
        finish_reason=finish if isinstance(finish, str) else None,
        had_tool_calls=bool(message.get("tool_calls") or message.get("function_call")),
        usage=usage_of(payload.get("usage")),
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
