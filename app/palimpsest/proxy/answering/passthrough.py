"""Requests that are not recorded: the rest of `/v1/`, relayed unchanged, and one list of all models.

Nothing is stored, and nothing counted but what a quota is charged with. A body is read only for its model, if
several servers are configured. The upstream's error statuses pass through.
With one server its own model list passes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import quote, unquote

import structlog

from palimpsest.core.wire.json_spans import raw_members
from palimpsest.core.wire.json_text import BYTE_ORDER_MARK, decoded, verify
from palimpsest.core.wire.models import Entry, entries_of, merged, offered, with_model
from palimpsest.errors import NestedTooDeep, UnsupportedCoding, UpstreamError
from palimpsest.proxy.destinations import Destination, Destinations
from palimpsest.proxy.incoming import Headers, Incoming, plain_body
from palimpsest.proxy.quotas import ANSWER_TOKENS, PassingAnswer, Quotas, tokens_in
from palimpsest.proxy.reports import Client
from palimpsest.upstream.decoding import decoder_for
from palimpsest.upstream.headers import OF_THE_BYTES, answer_headers
from palimpsest.upstream.models import LIST_BYTES, LOOKUP_SECONDS


@dataclass(frozen=True, slots=True)
class Upload:
    """A request body being received: its chunks as they arrive, and what returns when the last one came.

    `is_finished`: it had ended already when the request was read, and is in memory.
    """

    chunks: AsyncIterator[bytes]
    ended: Callable[[], Awaitable[None]]
    is_finished: bool


@dataclass(frozen=True, slots=True)
class Passthrough:
    """Relays one request; the body is forwarded while it arrives.

    A body is held or decoded only to read its model, up to `body_bytes`.
    """

    destinations: Destinations
    quotas: Quotas
    body_bytes: int

    async def relay(
        self, incoming: Incoming, client: Client, extra: Headers = (), upload: Upload | None = None
    ) -> None:
        """Relay the upstream's answer byte for byte, with `extra` headers; cancelled when the client leaves.

        Without an `upload` the request is a conversation, whose body is in memory. RequestError when the body
        must be read for its model and cannot be.
        """
        is_chat = upload is None
        there, named = self.destinations.of(""), incoming
        if is_chat and self.destinations.routed and (model := await self._model(incoming)) is not None:
            there = self.destinations.of(model)
            if (name := there.asked_for(model)) != model:
                headers = [header for header in incoming.headers if header[0].lower() not in OF_THE_BYTES]
                body = with_model(await self._plain(incoming), name)
                named = replace(incoming, headers=headers, body=body)
        sent = named.body or (None if upload is None or upload.is_finished else upload.chunks)
        # No bound on the total time: uploads and downloads may be large. Only a stall is an error.
        opened = there.upstream.open(
            named.method,
            there.outgoing.target(named.target),
            there.outgoing(named.headers),
            sent,
            takes_any_time=True,
        )
        # While the client is still sending, reading the upload detects that it left.
        bill, passing = incoming.bill, None
        used = prompt = _prompt_tokens(incoming, is_chat=is_chat)
        if bill is not None:
            await self.quotas.reserve(bill, prompt + ANSWER_TOKENS)
        client.entry.forwarded(there.upstream.origin)
        try:
            async with client.attended(upload.ended if upload else None), opened as answer:
                used = 0
                client.entry.answered()
                await client.start(answer.status, [*answer_headers(answer.headers), *extra])
                if bill is not None and answer.status < HTTPStatus.MULTIPLE_CHOICES:
                    passing = PassingAnswer(answer.headers)
                async for chunk in answer.chunks():
                    if passing is not None:
                        passing.feed(chunk)
                    await client.body(chunk)
                await client.end()
        except UpstreamError:
            used = 0
            raise
        finally:
            # A client that left before the answer began has used the prompt.
            if bill is not None:
                self.quotas.end(bill, passing.used(prompt if is_chat else None) if passing else used)

    async def _plain(self, incoming: Incoming) -> bytes:
        return (await plain_body(incoming, self.body_bytes)).removeprefix(BYTE_ORDER_MARK)

    async def _model(self, incoming: Incoming) -> str | None:
        """The model that the body names; None when it cannot be read, or names none."""
        try:
            plain = await self._plain(incoming)
            verify(plain)
            model = decoded(raw_members(plain).get("model", b"null"))
        except (NestedTooDeep, UnsupportedCoding):
            # Unreadable: treated as a request without a model.
            model = None
        return model if isinstance(model, str) else None


def _prompt_tokens(incoming: Incoming, *, is_chat: bool) -> int:
    """A rough number of tokens by the length of a conversation or other JSON; 0 for uploads of files."""
    if not is_chat and "json" not in (incoming.header(b"content-type") or ""):
        return 0
    stated = incoming.header(b"content-length") or ""
    return tokens_in(len(incoming.body) or (int(stated) if stated.isdecimal() else 0))


_PATH = "/models"
# They validate one server's list and say nothing of the merged one.
_OF_ONE = frozenset({b"etag", b"last-modified"})
_log = structlog.get_logger("palimpsest.models")


@dataclass(frozen=True, slots=True)
class _Said:
    """A server's whole answer; `plain` is the decoded body, empty for an unknown coding."""

    status: int
    headers: Headers
    body: bytes
    plain: bytes

    def entries(self) -> list[Entry] | None:
        """The listed models; None when the answer is no list."""
        return entries_of(self.plain) if self.status == 200 else None


@dataclass(frozen=True, slots=True)
class ModelList:
    """Answers `/v1/models` for several servers."""

    destinations: Destinations

    def answers(self, incoming: Incoming) -> bool:
        """True when the request concerns models of a routed server, or the list of all models."""
        if incoming.method != "GET" or not self.destinations.routed:
            return False
        model = _model_in(incoming)
        return model is not None and (not model or self._is_routed(model))

    async def relay(self, incoming: Incoming, client: Client) -> None:
        """Relay the answer of the model's server, or the default server's list merged with the others'.

        UpstreamError when there is no answer to relay.
        """
        model = _model_in(incoming)
        async with client.attended():
            if model:
                there = self.destinations.of(model)
                said = await _asked(there, incoming, f"{_PATH}/{quote(there.asked_for(model), safe='')}")
                await client.start(said.status, answer_headers(said.headers))
                await client.end(said.body)
            else:
                await self._listed(incoming, client)

    async def _listed(self, incoming: Incoming, client: Client) -> None:
        async with asyncio.TaskGroup() as group:
            routed = self.destinations.routed
            others = [group.create_task(self._offers(there, incoming)) for there in routed]
            said = await _said_or_fault(self.destinations.of(""), incoming)
            is_list = isinstance(said, _Said) and said.entries() is not None
            if not is_list:
                for other in others:
                    other.cancel()
        if isinstance(said, UpstreamError):
            raise said
        body, headers = said.body, answer_headers(said.headers)
        if is_list:
            entries = [entry for other in others for entry in other.result()]
            body = merged(said.plain, entries, self._is_routed)
            headers = [h for h in answer_headers(said.headers, "replaced") if h[0].lower() not in _OF_ONE]
        await client.start(said.status, headers)
        await client.end(body)

    def _is_routed(self, model: str) -> bool:
        return self.destinations.of(model) in self.destinations.routed

    async def _offers(self, there: Destination, incoming: Incoming) -> Sequence[Entry]:
        """The models that a routed server offers; none when it does not answer in time."""
        models = there.models
        if models is None:
            return ()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                entries = (await _asked(there, incoming, _PATH)).entries()
        except (UpstreamError, TimeoutError) as error:
            _log.warning("models_not_listed", match=models.match, error=type(error).__name__)
            return ()
        # A model that an earlier route matches belongs to that route.
        return [entry for entry in offered(models, entries or ()) if self.destinations.of(entry[0]) is there]


def _model_in(incoming: Incoming) -> str | None:
    """The model that the request names, "" for the list; None when the path is not `/models`."""
    path = incoming.target.partition("?")[0].rstrip("/")
    if path != _PATH and not path.startswith(_PATH + "/"):
        return None
    return unquote(path.removeprefix(_PATH).removeprefix("/"))


async def _said_or_fault(there: Destination, incoming: Incoming) -> _Said | UpstreamError:
    # Returned, because a TaskGroup would raise it as an ExceptionGroup.
    try:
        return await _asked(there, incoming, incoming.target)
    except UpstreamError as fault:
        return fault


async def _asked(there: Destination, incoming: Incoming, target: str) -> _Said:
    headers = [
        header for header in there.outgoing(incoming.headers) if header[0].lower() != b"accept-encoding"
    ]
    plain = [*headers, (b"Accept-Encoding", b"identity")]
    async with there.upstream.open("GET", there.outgoing.target(target), plain, None) as answer:
        body = await answer.read(LIST_BYTES)
        decoder = decoder_for(answer.headers, LIST_BYTES)
        return _Said(answer.status, answer.headers, body, decoder.feed(body) if decoder else b"")
