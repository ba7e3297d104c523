"""Requests a summary from a model, or from a summary worker (E07), and interprets the reply.

The two APIs name the same fields differently, and models refuse some optional ones, which is learned from
their refusals. Of the client's request only the messages passed in are sent, and its credentials where
allowed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic, TypeAlias, TypeVar

import httpx
import msgspec

from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import QuestionAnswer, usage_of
from palimpsest.core.wire.credentials import USUAL_NAMES, CredentialNames
from palimpsest.core.wire.json_text import encoded
from palimpsest.core.wire.models import ModelPattern
from palimpsest.core.wire.request import Members, Wire
from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from palimpsest.upstream.client import Upstream
from palimpsest.upstream.headers import UpstreamKey
from palimpsest.upstream.http import HttpReply, client_over, fetch, in_pieces
from palimpsest.upstream.overflow import NotOverflow, Overflow, classify

# Statuses of servers that lack an endpoint, or do not serve the model there.
_NO_ENDPOINT = frozenset({404, 405, 501})
_WANTS_COMPLETION_TOKENS = re.compile(r"max_completion_tokens")
_REFUSES_LIMIT = re.compile(
    r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected|not (?:supported|permitted|allowed)|extra inputs)"
    r"[^.]{0,80}max_output_tokens|max_output_tokens[^.]{0,80}"
    r"(?:unsupported|unknown|unrecogni[sz]ed|not (?:supported|permitted|allowed)|extra inputs)",
    re.IGNORECASE,
)
_REFUSES_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeyRefused:
    """401 or 403: retrying with this key is pointless (rule 23)."""

    status: int


@dataclass(frozen=True, slots=True)
class QuestionTooLong:
    """The request did not fit the summarizer's window."""

    overflow: Overflow


@dataclass(frozen=True, slots=True)
class Failed:
    """No summary. `reason` is a stable word for logs and events; it quotes nothing."""

    reason: str


SummaryOutcome: TypeAlias = QuestionAnswer | KeyRefused | QuestionTooLong | Failed


@dataclass(frozen=True, slots=True)
class Question:
    """A request for a summary; `max_tokens` bounds the answer.

    `messages` are raw JSON: chat messages, and on the Responses API also items and arrays of them. `tools`
    are raw schemas, sent because they are part of a cached prompt; calling them is forbidden. `wire` is the
    API to try first. `behind` is set when the question follows a conversation's own prompt, which only that
    API has in its cache; on the Responses API these members of the prompt are sent along.
    """

    messages: Sequence[bytes]
    model: str
    max_tokens: int
    tools: bytes | None = None
    wire: Wire = CHAT
    behind: Members | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """The optional fields that a model accepts; `limit` names the one that bounds the answer, "" for none."""

    limit: str
    temperature: bool = True

    @classmethod
    def of(cls, question: Question, wire: Wire) -> Dialect:
        """The dialect to try first. With `reasoning` in the request no temperature is accepted."""
        return cls(wire.answer_limit, not any(name == "reasoning" for name, _ in question.behind or ()))


def body_of(question: Question, wire: Wire, dialect: Dialect) -> bytes:
    """The request's body."""
    fields = {"model": question.model, **wire.question_fields(question.messages, question.behind)}
    if dialect.limit:
        fields[dialect.limit] = question.max_tokens
    if question.tools is not None:
        fields |= {"tools": msgspec.Raw(question.tools), "tool_choice": "none"}
    if dialect.temperature:
        # The same history should give the same summary.
        fields["temperature"] = 0
    return msgspec.json.encode(fields)


def learned(reply: HttpReply, dialect: Dialect) -> Dialect:
    """The dialect after this reply; a different one means that the question should be sent again with it."""
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


def _is_about_fields(reply: HttpReply) -> bool:
    # vLLM names both fields when the requested answer is too long: that is an overflow, not a refused field.
    return isinstance(classify(reply.status, reply.headers, reply.body), NotOverflow)


def is_unknown_address(reply: HttpReply) -> bool:
    """True when the server may lack this API, and have the other."""
    return reply.status in _NO_ENDPOINT


def outcome_of(reply: HttpReply, wire: Wire) -> SummaryOutcome:
    """The outcome of a reply."""
    if reply.status in (401, 403):
        return KeyRefused(reply.status)
    verdict = classify(reply.status, reply.headers, reply.body)
    if isinstance(verdict, Overflow):
        return QuestionTooLong(verdict)
    if reply.status != httpx.codes.OK:
        return Failed(f"status_{reply.status}")
    payload = reply.json()
    said = wire.question_answer(payload)
    if said is not None:
        return said
    error = payload.get("error") if wire.fails_late and isinstance(payload, dict) else None
    late = classify(400, reply.headers, encoded({"error": error})) if error else None
    return QuestionTooLong(late) if isinstance(late, Overflow) else Failed("no_choice")


# A summary has a few kilobytes.
WORKER_ANSWER_BYTES = 1024 * 1024


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON body of a worker's request. `previous_summary` is "" at first; `max_tokens` bounds the answer.

    `model` is the conversation's model, which a worker may use to choose its own.
    """

    previous_summary: str
    conversation: str
    max_tokens: int
    model: str


class Worker:
    """A summary worker at `url`, reached over the open pool of `upstream`; `key` is the operator's."""

    def __init__(self, upstream: Upstream, url: str, key: UpstreamKey | None = None) -> None:
        self._url = url
        self._http = client_over(upstream)
        self._key = key

    async def ask(self, task: Task, deadline_seconds: float) -> SummaryOutcome:
        """The updated summary, or why there is none, within `deadline_seconds`.

        The answer is `{"summary": text}`, at most a megabyte, and may state its `usage` as chat
        completions do. Redirects are not followed: the conversation must not reach another host.
        """
        return await in_time(self._answer(task), deadline_seconds)

    async def _answer(self, task: Task) -> SummaryOutcome:
        body = msgspec.json.encode(task)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if self._key is not None:
            headers.append(self._key.header)
        request = self._http.build_request("POST", self._url, content=in_pieces(body), headers=headers)
        return _outcome(await fetch(self._http, request, WORKER_ANSWER_BYTES))


def _outcome(reply: HttpReply) -> SummaryOutcome:
    if reply.status in (401, 403):
        return KeyRefused(reply.status)
    if reply.status != 200:
        return Failed(f"status_{reply.status}")
    payload: Any = reply.json()
    summary = payload.get("summary") if isinstance(payload, dict) else None
    if not isinstance(summary, str):
        return Failed("no_summary")
    return QuestionAnswer(summary, "stop", False, usage_of(payload.get("usage")))


# A summary has a few kilobytes; the same answer holds a model's reasoning.
ANSWER_BYTES = 4 * 1024 * 1024
# Headers that some servers require beside the credentials.
_CREDENTIAL_COMPANIONS = frozenset({b"openai-organization", b"openai-project", b"anthropic-version"})
# Callers choose the names of models, so the number remembered must be bounded.
_MOST_MODELS = 10_000
_LIFE_SECONDS = 86_400.0
K = TypeVar("K")
V = TypeVar("V")
_OTHER_WIRE: Mapping[Wire, Wire] = {CHAT: RESPONSES, RESPONSES: CHAT}


class Summarizer:
    """Requests summaries from models of an open `upstream`.

    `key`, when set, replaces the caller's. `is_foreign`: `upstream` is not the one that callers' keys are
    for. Then those keys are never sent, and chat completions are tried first, whatever API a conversation
    uses. `names` decides which headers are credentials.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        key: UpstreamKey | None = None,
        is_foreign: bool = False,
        names: CredentialNames = USUAL_NAMES,
    ) -> None:
        self._upstream = upstream
        self._http = client_over(upstream)
        self._key = key
        self._is_foreign = is_foreign
        self._names = names
        self._dialects: _LearnedValues[tuple[str, Wire], Dialect] = _LearnedValues()
        # The API of models that the API tried first does not serve.
        self._wires: _LearnedValues[str, Wire] = _LearnedValues()

    async def ask(
        self, question: Question, headers: Iterable[tuple[bytes, bytes]], deadline_seconds: float
    ) -> SummaryOutcome:
        """One summary, or why there is none, within `deadline_seconds`.

        `headers` are the client's; only credentials and the headers that go with them are sent. A request
        refused for its `max_tokens` or `temperature` field is sent again with fields that the server accepts,
        and one to a missing endpoint once on the other API; there are no other retries.
        """
        return await in_time(self._answered(question, self._credentials(headers)), deadline_seconds)

    async def _answered(self, question: Question, credentials: list[tuple[bytes, bytes]]) -> SummaryOutcome:
        wire = self._wire_for(question)
        reply = await self._reply_in_dialect(question, wire, credentials)
        if question.behind is not None or not is_unknown_address(reply):
            return outcome_of(reply, wire)
        other = _OTHER_WIRE[wire]
        found = await self._reply_in_dialect(question, other, credentials)
        if is_unknown_address(found):
            # More likely the model does not exist: the first reply counts.
            return outcome_of(reply, wire)
        if found.status == 200:
            self._wires.keep(question.model, other)
        return outcome_of(found, other)

    def _wire_for(self, question: Question) -> Wire:
        if question.behind is not None:
            return question.wire
        return self._wires.of(question.model) or (CHAT if self._is_foreign else question.wire)

    async def _reply_in_dialect(
        self, question: Question, wire: Wire, credentials: list[tuple[bytes, bytes]]
    ) -> HttpReply:
        place = (question.model, wire)
        dialect = self._dialects.of(place) or Dialect.of(question, wire)
        has_learned = False
        while True:
            body = body_of(question, wire, dialect)
            request = self._http.build_request(
                "POST",
                self._upstream.url(wire.path),
                content=in_pieces(body),
                headers=[
                    *credentials,
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                ],
            )
            reply = await fetch(self._http, request, ANSWER_BYTES)
            accepted = learned(reply, dialect)
            # Each refusal removes or renames one field, so this ends after two.
            if accepted == dialect:
                break
            dialect, has_learned = accepted, True
        if has_learned and reply.status == httpx.codes.OK:
            # Kept only after a success: the refusal may have quoted the conversation.
            self._dialects.keep(place, dialect)
        return reply

    def key_id(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Identifies the key that is sent, without revealing it; for use in memory only."""
        return sha256(repr(sorted(self._credentials(headers))).encode()).hexdigest()[:16]

    def _credentials(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        if self._key is not None:
            return [self._key.header]
        if self._is_foreign:
            return []
        headers = list(headers)
        companions = [(name, value) for name, value in headers if name.lower() in _CREDENTIAL_COMPANIONS]
        return [*self._names.only(headers), *companions]


class Summarizers:
    """Chooses the summarizer for a model: the first of `routes` whose pattern matches, else the default."""

    def __init__(self, default: Summarizer, routes: Sequence[tuple[ModelPattern, Summarizer]] = ()) -> None:
        self._default = default
        self._routes = routes

    def key_id(self, model: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """As `Summarizer.key_id`, of the model's summarizer."""
        routed = (summarizer for models, summarizer in self._routes if models.means(model))
        return next(routed, self._default).key_id(headers)

    async def ask(
        self, question: Question, headers: Iterable[tuple[bytes, bytes]], deadline_seconds: float
    ) -> SummaryOutcome:
        """As `Summarizer.ask`, of the model's summarizer, under the model's name at that upstream."""
        for models, summarizer in self._routes:
            if models.means(question.model):
                asked = replace(question, model=models.asked_for(question.model))
                return await summarizer.ask(asked, headers, deadline_seconds)
        return await self._default.ask(question, headers, deadline_seconds)


async def in_time(work: Coroutine[None, None, SummaryOutcome], deadline_seconds: float) -> SummaryOutcome:
    """The outcome of `work` within `deadline_seconds`; upstream errors become Failed."""
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


class _LearnedValues(Generic[K, V]):
    """Values learned about models, bounded in number, and kept for a day: servers change."""

    def __init__(self) -> None:
        self._held: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def of(self, key: K) -> V | None:
        """The value of `key`; None if there is none, or it has expired."""
        value, until = self._held.get(key, (None, 0.0))
        return value if time.monotonic() < until else None

    def keep(self, key: K, value: V) -> None:
        """Store a value for a day."""
        self._held[key] = value, time.monotonic() + _LIFE_SECONDS
        self._held.move_to_end(key)
        if len(self._held) > _MOST_MODELS:
            self._held.popitem(last=False)
