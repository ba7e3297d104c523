"""Asks a model for a summary: one plain request, and what came of it as a value.

Must not know what a good summary is, when to ask again, or what else the client's request held:
nothing of it is copied here but the credentials.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Generic, TypeVar

import httpx

from app.core.wire.chat_request import Wire
from app.core.wire.credentials import USUAL_NAMES, CredentialNames
from app.core.wire.models.names import ModelPattern
from app.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from app.upstream.client import Upstream
from app.upstream.headers import UpstreamKey
from app.upstream.http import Reply, client_over, fetch, in_pieces
from app.upstream.questions import (
    PATHS,
    Dialect,
    Failed,
    Question,
    SummaryOutcome,
    body_of,
    is_unknown_address,
    learned,
    outcome_of,
)

# A summary is a few kilobytes; a reasoning model's thoughts come along in the same answer.
ANSWER_BYTES = 4 * 1024 * 1024
# Beside the credentials, what some servers need to accept them.
_COMPANIONS = frozenset({b"openai-organization", b"openai-project", b"anthropic-version"})
# Models are the caller's to name, so that what is learned of them is bounded.
_MODELS = 10_000
_LIFE_SECONDS = 86_400.0
K = TypeVar("K")
V = TypeVar("V")
_OTHER: Mapping[Wire, Wire] = {"chat": "responses", "responses": "chat"}


class Summarizer:
    """A model that writes summaries, behind an open `upstream`.

    `key`, when set, replaces the caller's. `is_foreign` says that `upstream` is not the one
    the callers' keys are for: then those are never sent there, and it is asked by chat completions first,
    whatever conversations speak. `names` says which headers are credentials.
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
        self._dialects: _Lessons[tuple[str, Wire], Dialect] = _Lessons()
        # Models that were found to be asked on another API than the one that was tried first.
        self._wires: _Lessons[str, Wire] = _Lessons()

    async def ask(
        self, question: Question, headers: Iterable[tuple[bytes, bytes]], deadline_seconds: float
    ) -> SummaryOutcome:
        """One summary, or why there is none, within `deadline_seconds`.

        `headers` are the client's; only credentials are taken. A request that the server refuses for its
        `max_tokens` or `temperature` field is put again in the server's terms, and one to an address that it
        does not have is put once on the other API; nothing else is ever asked twice.
        """
        return await in_time(self._answered(question, self._credentials(headers)), deadline_seconds)

    async def _answered(self, question: Question, credentials: list[tuple[bytes, bytes]]) -> SummaryOutcome:
        wire = self._wire_for(question)
        reply = await self._settled(question, wire, credentials)
        if question.behind is not None or not is_unknown_address(reply):
            return outcome_of(reply, wire)
        other = _OTHER[wire]
        found = await self._settled(question, other, credentials)
        if is_unknown_address(found):
            # More likely there is no such model: what was said first counts.
            return outcome_of(reply, wire)
        if found.status == 200:
            self._wires.keep(question.model, other)
        return outcome_of(found, other)

    def _wire_for(self, question: Question) -> Wire:
        if question.behind is not None:
            return question.wire
        return self._wires.of(question.model) or ("chat" if self._is_foreign else question.wire)

    async def _settled(self, question: Question, wire: Wire, credentials: list[tuple[bytes, bytes]]) -> Reply:
        place = (question.model, wire)
        dialect = self._dialects.of(place) or Dialect.of(question, wire)
        is_lesson = False
        while True:
            body = body_of(question, wire, dialect)
            request = self._http.build_request(
                "POST",
                self._upstream.url(PATHS[wire]),
                content=in_pieces(body),
                headers=[
                    *credentials,
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                ],
            )
            reply = await fetch(self._http, request, ANSWER_BYTES)
            told = learned(reply, dialect)
            # Each lesson takes one field away or renames it, so this ends after two.
            if told == dialect:
                break
            dialect, is_lesson = told, True
        if is_lesson and reply.status == httpx.codes.OK:
            # Only what has helped: the words of a refusal may be quoted from the conversation.
            self._dialects.keep(place, dialect)
        return reply

    def key_id(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """What tells the key that is sent from others, and says nothing of it; in memory only."""
        return sha256(repr(sorted(self._credentials(headers))).encode()).hexdigest()[:16]

    def _credentials(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        if self._key is not None:
            return [self._key.header]
        if self._is_foreign:
            return []
        headers = list(headers)
        companions = [(name, value) for name, value in headers if name.lower() in _COMPANIONS]
        return [*self._names.only(headers), *companions]


class Summarizers:
    """Who writes a model's summaries: of `routes` the first whose pattern fits its name, else the default."""

    def __init__(self, default: Summarizer, routes: Sequence[tuple[ModelPattern, Summarizer]] = ()) -> None:
        self._default = default
        self._routes = routes

    def key_id(self, model: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """As `Summarizer.key_id`, of who writes for the model."""
        routed = (summarizer for models, summarizer in self._routes if models.means(model))
        return next(routed, self._default).key_id(headers)

    async def ask(
        self, question: Question, headers: Iterable[tuple[bytes, bytes]], deadline_seconds: float
    ) -> SummaryOutcome:
        """As `Summarizer.ask`, of who writes for the question's model, by the name that it has there."""
        for models, summarizer in self._routes:
            if models.means(question.model):
                asked = replace(question, model=models.asked_for(question.model))
                return await summarizer.ask(asked, headers, deadline_seconds)
        return await self._default.ask(question, headers, deadline_seconds)


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


class _Lessons(Generic[K, V]):
    """What has helped, bounded, and for a day: servers are replaced."""

    def __init__(self) -> None:
        self._held: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def of(self, key: K) -> V | None:
        """What is known; None where nothing is, or not any more."""
        value, until = self._held.get(key, (None, 0.0))
        return value if time.monotonic() < until else None

    def keep(self, key: K, value: V) -> None:
        """It is known."""
        self._held[key] = value, time.monotonic() + _LIFE_SECONDS
        self._held.move_to_end(key)
        if len(self._held) > _MODELS:
            self._held.popitem(last=False)
