"""Requests a summary from a model, or from a summary worker (E07), and interprets the reply.

The call is the chat's (rule 46): its headers, and the members that choose how the model runs. The two APIs
name the same fields differently, and models refuse some optional ones, which is learned from their refusals.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from hashlib import sha256
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from yarl import URL

from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import QuestionAnswer, Usage, WholeAnswer, text_of, usage_of
from palimpsest.core.wire.credentials import USUAL_NAMES, CredentialNames
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.models import ModelPattern
from palimpsest.core.wire.request import Members, Wire
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.core.wire.streams import FrameSplitter, data_of
from palimpsest.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from palimpsest.upstream.client import RawHeaders, Upstream
from palimpsest.upstream.headers import OF_THE_BYTES, UpstreamKey
from palimpsest.upstream.http import HttpReply, fetch
from palimpsest.upstream.overflow import Overflow, SentRequest, classify

# About as many bytes of JSON are a token: near enough to recognize the count of one that is too long.
_TOKEN_BYTES = 4
# Statuses of servers that lack an endpoint, or do not serve the model there.
_NO_ENDPOINT = (404, 405, 501)
_REFUSED = r"(?:unsupported|unknown|unrecogni[sz]ed|not (?:supported|permitted|allowed)|extra inputs)"
# A server that takes no longest answer: the field beside words that refuse it.
_LIMIT_REFUSED = re.compile(
    rf"(?:{_REFUSED}|unexpected)[^.]{{0,80}}max_output_tokens|max_output_tokens[^.]{{0,80}}{_REFUSED}",
    re.IGNORECASE,
)


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
    API to try first. `members` are those of the chat that choose how the model runs, `streams` how it is
    answered. `rides`: the question follows the conversation's own prompt, which only that API has in its
    cache.
    """

    messages: Sequence[bytes]
    model: str
    max_tokens: int
    tools: bytes | None = None
    wire: Wire = CHAT
    members: Members = ()
    rides: bool = False
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """The optional fields that a model accepts; `limit` names the one that bounds the answer, "" for none.

    `most_tokens` is the longest answer that it writes, 0: not known. `without` are the fields it refuses.
    """

    limit: str
    most_tokens: int = 0
    without: frozenset[str] = frozenset()

    def tokens(self, question: Question) -> int:
        """The longest answer to ask for."""
        return min(question.max_tokens, self.most_tokens or question.max_tokens)


# Members of a prompt, or of its tools.
_OF_THE_PROMPT = frozenset({"instructions", "prompt", "parallel_tool_calls"})


def body_of(question: Question, wire: Wire, dialect: Dialect) -> bytes:
    """The request's body."""
    given = {name: msgspec.Raw(raw) for name, raw in question.members}
    # The same history should give the same summary, unless the chat says otherwise. A model that reasons
    # accepts no temperature.
    usual = {} if given.keys() & {"temperature", "reasoning"} else {"temperature": 0}
    stream = wire.stream_fields if question.streams else {}
    dropped = dialect.without if question.rides else dialect.without | _OF_THE_PROMPT
    fields: dict[str, Any] = {"model": question.model, **usual, **given, **stream}
    fields = {name: fields[name] for name in fields if name not in dropped}
    fields |= wire.question_fields(question.messages, question.rides)
    if dialect.limit:
        fields[dialect.limit] = dialect.tokens(question)
    if question.tools is not None:
        fields |= {"tools": msgspec.Raw(question.tools), "tool_choice": "none"}
    return msgspec.json.encode(fields)


def learned(reply: HttpReply, verdict: Overflow | None, question: Question, dialect: Dialect) -> Dialect:
    """The dialect after this reply; a different one means that the question should be sent again with it."""
    if reply.status not in (400, 422):
        return dialect
    if verdict is not None:
        most = verdict.window or 0 if verdict.kind == "output" else 0
        return replace(dialect, most_tokens=most) if 0 < most < dialect.tokens(question) else dialect
    said = reply.body[:4096].decode("utf-8", "replace")
    if dialect.limit == "max_tokens" and "max_completion_tokens" in said:
        return replace(dialect, limit="max_completion_tokens")
    if dialect.limit == "max_output_tokens" and _LIMIT_REFUSED.search(said):
        return replace(dialect, limit="")
    refused = {field for field in ("stream_options", "temperature") if field in said.lower()}
    return replace(dialect, without=dialect.without | refused)


def _refused(reply: HttpReply) -> SummaryOutcome | None:
    """What kept a server from an answer; None where it answers."""
    if reply.status in (401, 403):
        return KeyRefused(reply.status)
    return None if reply.status == 200 else Failed(f"status_{reply.status}")


def outcome_of(reply: HttpReply, wire: Wire, verdict: Overflow | None) -> SummaryOutcome:
    """The outcome of a reply, whole or streamed; `verdict`: what it says of a request that is too long."""
    if verdict is not None and verdict.kind == "prompt":
        return QuestionTooLong(verdict)
    if (refused := _refused(reply)) is not None:
        return refused
    whole, finish = wire.read_answer(reply.body), None
    if isinstance(whole, WholeAnswer):
        choices, usage = whole.choices, whole.usage
    else:
        assembly, splitter = wire.new_assembly(1), FrameSplitter(ANSWER_BYTES)
        for frame in (*splitter.feed(reply.body), *splitter.finish(), splitter.rest):
            if (data := data_of(frame)) is not None:
                assembly.feed(data)
        if assembly.error is not None:
            late = classify(400, reply.headers, wire.error_body(assembly.error))
            return QuestionTooLong(late) if late is not None else Failed("no_choice")
        choices, usage = assembly.choices(), assembly.usage or Usage()
        finish = "stop" if assembly.is_done else None
    if not choices:
        return Failed("no_choice")
    fields = as_chat(decoded(choices[0].message_body))
    has_calls = any(fields.get(key) for key in ("tool_calls", "function_call", "items"))
    return QuestionAnswer(
        text_of(fields.get("content")), choices[0].finish_reason or finish, has_calls, usage
    )


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


@dataclass(frozen=True)
class Worker:
    """A summary worker at `url`, reached over the open pool of `upstream`; `key` is the operator's."""

    upstream: Upstream
    url: str
    key: UpstreamKey | None = None

    async def ask(self, task: Task, deadline_seconds: float) -> SummaryOutcome:
        """The updated summary, or why there is none, within `deadline_seconds`.

        The answer is `{"summary": text}`, at most a megabyte, and may state its `usage` as chat
        completions do. Redirects are not followed: the conversation must not reach another host.
        """
        return await in_time(self._answer(task), deadline_seconds)

    async def _answer(self, task: Task) -> SummaryOutcome:
        credentials = [self.key.header] if self.key is not None else []
        body = msgspec.json.encode(task)
        reply = await fetch(self.upstream, URL(self.url), credentials, WORKER_ANSWER_BYTES, body)
        if (refused := _refused(reply)) is not None:
            return refused
        payload: Any = reply.json()
        summary = payload.get("summary") if isinstance(payload, dict) else None
        if not isinstance(summary, str):
            return Failed("no_summary")
        return QuestionAnswer(summary, "stop", False, usage_of(payload.get("usage")))


# A summary has a few kilobytes; the same answer holds a model's reasoning, and a stream repeats its frame.
ANSWER_BYTES = 16 * 1024 * 1024
# Headers that name one request, or describe its body.
_OF_ONE_REQUEST = OF_THE_BYTES | {
    *(b"content-type", b"content-length", b"idempotency-key", b"x-idempotency-key", b"x-request-id"),
    *(b"x-client-request-id", b"x-stainless-retry-count"),
}
_LIFE_SECONDS = 86_400.0
V = TypeVar("V")
_OTHER_WIRE: Mapping[Wire, Wire] = {CHAT: RESPONSES, RESPONSES: CHAT}


class _LearnedValues(Generic[V]):
    """Values learned about models, bounded in number, and kept for a day: servers change."""

    def __init__(self) -> None:
        self._held: OrderedDict[object, tuple[V, float]] = OrderedDict()

    def of(self, key: object) -> V | None:
        """The value of `key`; None if there is none, or it has expired."""
        value, until = self._held.get(key, (None, 0.0))
        return value if time.monotonic() < until else None

    def keep(self, key: object, value: V) -> None:
        """Store a value for a day."""
        self._held[key] = value, time.monotonic() + _LIFE_SECONDS
        self._held.move_to_end(key)
        # Callers choose the names of models.
        if len(self._held) > 10_000:
            self._held.popitem(last=False)


@dataclass(frozen=True)
class Summarizer:
    """Requests summaries from models of an open `upstream`.

    `key`, when set, replaces the caller's. `is_foreign`: `upstream` is not the one that callers' keys are
    for. Then those keys are never sent, and chat completions are tried first, whatever API a conversation
    uses. `names` decides which headers are credentials.
    """

    upstream: Upstream
    _: KW_ONLY
    key: UpstreamKey | None = None
    is_foreign: bool = False
    names: CredentialNames = USUAL_NAMES
    dialects: _LearnedValues[Dialect] = field(default_factory=_LearnedValues)
    # The API of models that the API tried first does not serve.
    wires: _LearnedValues[Wire] = field(default_factory=_LearnedValues)

    async def ask(self, question: Question, headers: RawHeaders, deadline_seconds: float) -> SummaryOutcome:
        """One summary, or why there is none, within `deadline_seconds`.

        `headers` are the chat's; all but those of one request are sent, as far as the upstream is the
        callers'. A request refused for one of its optional fields, or for the length of its answer, is sent
        again as the server accepts it, and one to a missing endpoint once on the other API; there are no
        other retries.
        """
        if self.is_foreign:
            question = replace(question, members=(), streams=False)
        return await in_time(self._answered(question, self._headers(headers)), deadline_seconds)

    async def _answered(self, question: Question, headers: RawHeaders) -> SummaryOutcome:
        wire = question.wire
        if not question.rides:
            wire = self.wires.of(question.model) or (CHAT if self.is_foreign else wire)
        status, outcome = await self._asked(question, wire, headers)
        # Behind a prompt the question stays on its API. Elsewhere the server may lack this one.
        if not question.rides and status in _NO_ENDPOINT:
            other = _OTHER_WIRE[wire]
            found, answer = await self._asked(question, other, headers)
            if found == 200:
                self.wires.keep(question.model, other)
            # On neither: more likely the model does not exist, and the first reply counts.
            if found not in _NO_ENDPOINT:
                return answer
        return outcome

    async def _asked(self, question: Question, wire: Wire, headers: RawHeaders) -> tuple[int, SummaryOutcome]:
        """The status of the reply on this API, and what it says."""
        place = (question.model, wire)
        # The other API names the members differently.
        question = replace(question, members={question.wire: question.members}.get(wire, ()))
        known = dialect = self.dialects.of(place) or Dialect(wire.answer_limit)
        while True:
            body = body_of(question, wire, dialect)
            reply = await fetch(self.upstream, wire.path, headers, ANSWER_BYTES, body)
            sent = SentRequest(
                (body,), tokens=len(body) // _TOKEN_BYTES, answer_tokens=dialect.tokens(question)
            )
            verdict = classify(reply.status, reply.headers, reply.body, sent)
            accepted = learned(reply, verdict, question, dialect)
            # Each refusal removes, renames or lowers one field, so this ends.
            if accepted == dialect:
                break
            dialect = accepted
        if dialect != known and reply.status == 200:
            # Kept only after a success: the refusal may have quoted the conversation.
            self.dialects.keep(place, dialect)
        return reply.status, outcome_of(reply, wire, verdict)

    def key_id(self, headers: RawHeaders) -> str:
        """Identifies the caller's key that is sent, without revealing it; for use in memory only."""
        own = [] if self.is_foreign or self.key else self.names.only(headers)
        return sha256(repr(sorted(own)).encode()).hexdigest()[:16]

    def _headers(self, headers: RawHeaders) -> RawHeaders:
        key = [] if self.key is None else [self.key.header]
        if self.is_foreign:
            return key
        kept = self.names.without(headers) if key else headers
        return [*(header for header in kept if header[0].lower() not in _OF_ONE_REQUEST), *key]


@dataclass(frozen=True)
class Summarizers:
    """Chooses the summarizer for a model: the first of `routes` whose pattern matches, else the default."""

    default: Summarizer
    routes: Sequence[tuple[ModelPattern, Summarizer]] = ()

    def key_id(self, model: str, headers: RawHeaders) -> str:
        """As `Summarizer.key_id`, of the model's summarizer."""
        return self._of(model)[0].key_id(headers)

    async def ask(self, question: Question, headers: RawHeaders, deadline_seconds: float) -> SummaryOutcome:
        """As `Summarizer.ask`, of the model's summarizer, under the model's name at that upstream."""
        summarizer, name = self._of(question.model)
        return await summarizer.ask(replace(question, model=name), headers, deadline_seconds)

    def _of(self, model: str) -> tuple[Summarizer, str]:
        for models, summarizer in self.routes:
            if models.means(model):
                return summarizer, models.asked_for(model)
        return self.default, model


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
