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
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from yarl import URL

from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import QuestionAnswer, usage_of
from palimpsest.core.wire.credentials import USUAL_NAMES, CredentialNames
from palimpsest.core.wire.json_text import encoded
from palimpsest.core.wire.models import ModelPattern
from palimpsest.core.wire.request import Members, Wire
from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from palimpsest.upstream.client import RawHeaders, Upstream
from palimpsest.upstream.headers import UpstreamKey
from palimpsest.upstream.http import HttpReply, fetch
from palimpsest.upstream.overflow import Overflow, classify

# Statuses of servers that lack an endpoint, or do not serve the model there.
_NO_ENDPOINT = frozenset({404, 405, 501})
_REFUSED = r"(?:unsupported|unknown|unrecogni[sz]ed|not (?:supported|permitted|allowed)|extra inputs)"
# The words that refuse a field for the longest answer, and the field to try then; "" for none.
_REFUSED_LIMITS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "max_tokens": (re.compile(r"max_completion_tokens"), "max_completion_tokens"),
    "max_output_tokens": (
        re.compile(
            rf"(?:{_REFUSED}|unexpected)[^.]{{0,80}}max_output_tokens|max_output_tokens[^.]{{0,80}}{_REFUSED}",
            re.IGNORECASE,
        ),
        "",
    ),
}


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
    words, other = _REFUSED_LIMITS.get(dialect.limit, (None, ""))
    # vLLM names both fields when the requested answer is too long: that is an overflow, not a refused field.
    if words and words.search(said) and not classify(reply.status, reply.headers, reply.body):
        return replace(dialect, limit=other)
    if dialect.temperature and "temperature" in said.lower():
        return replace(dialect, temperature=False)
    return dialect


def _refused(reply: HttpReply) -> SummaryOutcome | None:
    """What kept a server from an answer; None where it answers."""
    if reply.status in (401, 403):
        return KeyRefused(reply.status)
    return None if reply.status == 200 else Failed(f"status_{reply.status}")


def outcome_of(reply: HttpReply, wire: Wire) -> SummaryOutcome:
    """The outcome of a reply."""
    verdict = classify(reply.status, reply.headers, reply.body)
    if verdict is not None:
        return QuestionTooLong(verdict)
    if (refused := _refused(reply)) is not None:
        return refused
    payload = reply.json()
    said = wire.question_answer(payload)
    if said is not None:
        return said
    error = payload.get("error") if wire.fails_late and isinstance(payload, dict) else None
    late = classify(400, reply.headers, encoded({"error": error})) if error else None
    return QuestionTooLong(late) if late is not None else Failed("no_choice")


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
        self._upstream = upstream
        self._url = str(URL(url))
        self._key = key

    async def ask(self, task: Task, deadline_seconds: float) -> SummaryOutcome:
        """The updated summary, or why there is none, within `deadline_seconds`.

        The answer is `{"summary": text}`, at most a megabyte, and may state its `usage` as chat
        completions do. Redirects are not followed: the conversation must not reach another host.
        """
        return await in_time(self._answer(task), deadline_seconds)

    async def _answer(self, task: Task) -> SummaryOutcome:
        credentials = [self._key.header] if self._key is not None else []
        body = msgspec.json.encode(task)
        reply = await fetch(self._upstream, self._url, credentials, WORKER_ANSWER_BYTES, body)
        if (refused := _refused(reply)) is not None:
            return refused
        payload: Any = reply.json()
        summary = payload.get("summary") if isinstance(payload, dict) else None
        if not isinstance(summary, str):
            return Failed("no_summary")
        return QuestionAnswer(summary, "stop", False, usage_of(payload.get("usage")))


# A summary has a few kilobytes; the same answer holds a model's reasoning.
ANSWER_BYTES = 4 * 1024 * 1024
# RawHeaders that some servers require beside the credentials.
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
        self._key = key
        self._is_foreign = is_foreign
        self._names = names
        self._dialects: _LearnedValues[tuple[str, Wire], Dialect] = _LearnedValues()
        # The API of models that the API tried first does not serve.
        self._wires: _LearnedValues[str, Wire] = _LearnedValues()

    async def ask(self, question: Question, headers: RawHeaders, deadline_seconds: float) -> SummaryOutcome:
        """One summary, or why there is none, within `deadline_seconds`.

        `headers` are the client's; only credentials and the headers that go with them are sent. A request
        refused for its `max_tokens` or `temperature` field is sent again with fields that the server accepts,
        and one to a missing endpoint once on the other API; there are no other retries.
        """
        return await in_time(self._answered(question, self._credentials(headers)), deadline_seconds)

    async def _answered(self, question: Question, credentials: RawHeaders) -> SummaryOutcome:
        wire = question.wire
        if question.behind is None:
            wire = self._wires.of(question.model) or (CHAT if self._is_foreign else wire)
        reply = await self._reply_in_dialect(question, wire, credentials)
        # Behind a prompt the question stays on its API. Elsewhere the server may lack this one.
        if question.behind is None and reply.status in _NO_ENDPOINT:
            other = _OTHER_WIRE[wire]
            found = await self._reply_in_dialect(question, other, credentials)
            if found.status == 200:
                self._wires.keep(question.model, other)
            # On neither: more likely the model does not exist, and the first reply counts.
            if found.status not in _NO_ENDPOINT:
                return outcome_of(found, other)
        return outcome_of(reply, wire)

    async def _reply_in_dialect(self, question: Question, wire: Wire, credentials: RawHeaders) -> HttpReply:
        place = (question.model, wire)
        dialect = self._dialects.of(place) or Dialect.of(question, wire)
        has_learned = False
        while True:
            body = body_of(question, wire, dialect)
            reply = await fetch(
                self._upstream, self._upstream.url(wire.path), credentials, ANSWER_BYTES, body
            )
            accepted = learned(reply, dialect)
            # Each refusal removes or renames one field, so this ends after two.
            if accepted == dialect:
                break
            dialect, has_learned = accepted, True
        if has_learned and reply.status == 200:
            # Kept only after a success: the refusal may have quoted the conversation.
            self._dialects.keep(place, dialect)
        return reply

    def key_id(self, headers: RawHeaders) -> str:
        """Identifies the key that is sent, without revealing it; for use in memory only."""
        return sha256(repr(sorted(self._credentials(headers))).encode()).hexdigest()[:16]

    def _credentials(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        if self._key is not None:
            return [self._key.header]
        if self._is_foreign:
            return []
        companions = [(name, value) for name, value in headers if name.lower() in _CREDENTIAL_COMPANIONS]
        return [*self._names.only(headers), *companions]


class Summarizers:
    """Chooses the summarizer for a model: the first of `routes` whose pattern matches, else the default."""

    def __init__(self, default: Summarizer, routes: Sequence[tuple[ModelPattern, Summarizer]] = ()) -> None:
        self._default = default
        self._routes = routes

    def key_id(self, model: str, headers: RawHeaders) -> str:
        """As `Summarizer.key_id`, of the model's summarizer."""
        return self._of(model)[0].key_id(headers)

    async def ask(self, question: Question, headers: RawHeaders, deadline_seconds: float) -> SummaryOutcome:
        """As `Summarizer.ask`, of the model's summarizer, under the model's name at that upstream."""
        summarizer, name = self._of(question.model)
        return await summarizer.ask(replace(question, model=name), headers, deadline_seconds)

    def _of(self, model: str) -> tuple[Summarizer, str]:
        for models, summarizer in self._routes:
            if models.means(model):
                return summarizer, models.asked_for(model)
        return self._default, model


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
