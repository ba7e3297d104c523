"""`GET /v1/models` where several servers answer: one list of what each of them has, and whose one of them is.

With one server there is nothing to do here: what it says passes through. Keeps nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import structlog

from app.core.wire.models.listing import Entry, entries_of, merged, offered
from app.errors import UpstreamError
from app.proxy.answering.outgoing import Destination, Destinations
from app.proxy.client import Client
from app.proxy.incoming import Headers, Incoming
from app.upstream.decoding import decoder_for
from app.upstream.headers import answer_headers
from app.upstream.windows import LIST_BYTES, LOOKUP_SECONDS

_PATH = "/models"
# They are of one server's list, whose next state may equal its last while another's does not.
_OF_ONE = frozenset({b"etag", b"last-modified"})
_log = structlog.get_logger("palimpsest.models")


@dataclass(frozen=True, slots=True)
class _Said:
    """A server's whole answer, and the same with its coding undone, empty where that cannot be done."""

    status: int
    headers: Headers
    body: bytes
    plain: bytes

    def entries(self) -> list[Entry] | None:
        """The models it lists; None where it lists none."""
        return entries_of(self.plain) if self.status == 200 else None


class ModelList:
    """One for the application."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations

    def answers(self, incoming: Incoming) -> bool:
        """True where the answer is not the upstream's alone."""
        if incoming.method != "GET" or not self._destinations.routed:
            return False
        model = _model_in(incoming)
        return model is not None and (not model or self._is_routed(model))

    async def relay(self, incoming: Incoming, client: Client) -> None:
        """What the server of a model says of it, or the upstream's list with what the other servers have.

        UpstreamError where there is no answer to relay.
        """
        model = _model_in(incoming)
        async with client.attended():
            if model:
                there = self._destinations.of(model)
                said = await _asked(there, incoming, f"{_PATH}/{quote(there.asked_for(model), safe='')}")
                await client.start(said.status, answer_headers(said.headers))
                await client.end(said.body)
            else:
                await self._listed(incoming, client)

    async def _listed(self, incoming: Incoming, client: Client) -> None:
        async with asyncio.TaskGroup() as group:
            routed = self._destinations.routed
            others = [group.create_task(self._offers(there, incoming)) for there in routed]
            said = await _said_or_fault(self._destinations.of(""), incoming)
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
        return self._destinations.of(model) in self._destinations.routed

    async def _offers(self, there: Destination, incoming: Incoming) -> Sequence[Entry]:
        """What a server has for clients; nothing where it does not say so in time."""
        models = there.models
        if models is None:
            return ()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                entries = (await _asked(there, incoming, _PATH)).entries()
        except (UpstreamError, TimeoutError) as error:
            _log.warning("models_not_listed", match=models.match, error=type(error).__name__)
            return ()
        # What an earlier route takes is that one's.
        return [entry for entry in offered(models, entries or ()) if self._destinations.of(entry[0]) is there]


def _model_in(incoming: Incoming) -> str | None:
    """The model that is asked about, "" for all of them; None where the request is about something else."""
    path = incoming.target.partition("?")[0].rstrip("/")
    if path != _PATH and not path.startswith(_PATH + "/"):
        return None
    return unquote(path.removeprefix(_PATH).removeprefix("/"))


async def _said_or_fault(there: Destination, incoming: Incoming) -> _Said | UpstreamError:
    # As a value: raised within a group it would come out as a group of errors.
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
