"""Asks a model for a summary: one plain chat completion, and what came of it as a value.

Must not know what a good summary is, when to ask again, or what else the client's request held:
nothing of it is copied here but the credentials.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import httpx
import msgspec

from app.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from app.upstream.client import Upstream
from app.upstream.headers import CREDENTIALS, UpstreamKey
from app.upstream.http import Reply, client_over, fetch, in_pieces
from app.upstream.overflow import NotOverflow, Overflow, classify

# A summary is a few kilobytes; a reasoning model's thoughts come along in the same answer.
ANSWER_BYTES = 4 * 1024 * 1024
# Beside the credentials, what some servers need to accept them.
_COMPANIONS = frozenset({b"openai-organization", b"openai-project", b"anthropic-version"})
_WANTS_COMPLETION_TOKENS = re.compile(r"max_completion_tokens")
_REFUSES_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    """What the model said. `text` may be empty; `usage` is the upstream's own, None when absent."""

    text: str
    finish_reason: str | None
    had_tool_calls: bool
    usage: Mapping[str, Any] | None


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
class _Dialect:
    """Which of the optional fields a model takes; learned from its first refusal."""

    limit: str = "max_tokens"
    temperature: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, of whom, and how long the answer may be, tokens."""

    messages: Sequence[bytes]
    model: str
    max_tokens: int
    tools: bytes | None


class Summarizer:
    """A model that writes summaries, behind an open `upstream`.

    `key`, when set, replaces the caller's. `is_foreign` says that `upstream` is not the one
    the callers' keys are for: then those are never sent there.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        key: UpstreamKey | None = None,
        is_foreign: bool = False,
    ) -> None:
        self._url = upstream.url("/chat/completions")
        self._http = client_over(upstream)
        self._key = key
        self._is_foreign = is_foreign
        self._dialects: dict[str, _Dialect] = {}

    async def ask(
        self,
        messages: Sequence[bytes],
        model: str,
        max_tokens: int,
        headers: Iterable[tuple[bytes, bytes]],
        deadline_seconds: float,
        tools: bytes | None = None,
    ) -> SummaryOutcome:
        """One summary of at most `max_tokens` tokens, or why there is none, within `deadline_seconds`.

        `messages` are JSON objects as bytes. `headers` are the client's; only credentials are taken.
        `tools` are schemas as raw JSON: they are part of a cached prompt, and forbidden to be called.
        A request that the server refuses for its `max_tokens` or `temperature` field is put again in
        the server's terms; nothing else is ever asked twice.
        """
        question = Question(messages, model, max_tokens, tools)
        return await in_time(self._settled(question, self._credentials(headers)), deadline_seconds)

    async def _settled(self, question: Question, credentials: list[tuple[bytes, bytes]]) -> SummaryOutcome:
        while True:
            dialect = self._dialects.get(question.model, _Dialect())
            body = _body(question, dialect)
            request = self._http.build_request(
                "POST",
                self._url,
                content=in_pieces(body),
                headers=[
                    *credentials,
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                ],
            )
            reply = await fetch(self._http, request, ANSWER_BYTES)
            learned = _learned(reply, dialect)
            # Each lesson takes one field away or renames it, so this ends after two.
            if learned == dialect:
                return _outcome(reply)
            self._dialects[question.model] = learned

    def _credentials(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        if self._key is not None:
            return [self._key.header]
        if self._is_foreign:
            return []
        return [(name, value) for name, value in headers if name.lower() in CREDENTIALS | _COMPANIONS]


class Summarizers:
    """Who writes a model's summaries: the first whose pattern fits its name, else the default."""

    def __init__(self, default: Summarizer, routes: Sequence[tuple[str, Summarizer]] = ()) -> None:
        self._default = default
        self._routes = [(pattern.casefold(), summarizer) for pattern, summarizer in routes]

    def of(self, model: str) -> Summarizer:
        """The summarizer that `model` is asked of."""
        name = model.casefold() if self._routes else ""
        return next((one for match, one in self._routes if fnmatchcase(name, match)), self._default)


async def in_time(work: Coroutine[None, None, SummaryOutcome], deadline_seconds: float) -> SummaryOutcome:
    """What `work` gives within `deadline_seconds`; what goes wrong on the way is a Failed."""
    try:
        async with asyncio.timeout(deadline_seconds):
            return await work
    except (TimeoutError, UpstreamTimeout):
        return Failed("timeout")
    except UpstreamUnreachable:
        return Failed("unreachable")
    except UpstreamCut:
        return Failed("cut")
    except UpstreamError:
        return Failed("unreadable")


def _body(question: Question, dialect: _Dialect) -> bytes:
    fields: dict[str, Any] = {
        "model": question.model,
        "messages": [msgspec.Raw(message) for message in question.messages],
        dialect.limit: question.max_tokens,
    }
    if question.tools is not None:
        fields |= {"tools": msgspec.Raw(question.tools), "tool_choice": "none"}
    if dialect.temperature:
        # The same history should give the same summary.
        fields["temperature"] = 0
    return msgspec.json.encode(fields)


def _learned(reply: Reply, dialect: _Dialect) -> _Dialect:
    if reply.status not in (400, 422):
        return dialect
    said = reply.body[:4096].decode("utf-8", "replace")
    if dialect.limit == "max_tokens" and _WANTS_COMPLETION_TOKENS.search(said) and _is_about_fields(reply):
        return replace(dialect, limit="max_completion_tokens")
    if dialect.temperature and _REFUSES_TEMPERATURE.search(said):
        return replace(dialect, temperature=False)
    return dialect


def _is_about_fields(reply: Reply) -> bool:
    # vLLM names both fields when the answer asked for is too long: that is an overflow, not a dialect.
    return isinstance(classify(reply.status, reply.headers, reply.body), NotOverflow)


def _outcome(reply: Reply) -> SummaryOutcome:
    if reply.status in (401, 403):
        return KeyRefused(reply.status)
    verdict = classify(reply.status, reply.headers, reply.body)
    if isinstance(verdict, Overflow):
        return TooLong(verdict)
    if reply.status != httpx.codes.OK:
        return Failed(f"status_{reply.status}")
    return _answer(reply.json())


def _answer(payload: Any) -> SummaryOutcome:
    choices = payload.get("choices") if isinstance(payload, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Failed("no_choice")
    finish, usage = choice.get("finish_reason"), payload.get("usage")
    return SummaryAnswer(
        text=_text(message.get("content")),
        finish_reason=finish if isinstance(finish, str) else None,
        had_tool_calls=bool(message.get("tool_calls") or message.get("function_call")),
        usage=usage if isinstance(usage, dict) else None,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
