"""The upstream server of a request, the headers sent to it, and what upstreams keep and have refused.

Applies the operator's choices (which server for which model, which key) with the rules of
`palimpsest.upstream.headers`. Of what a caller sends only the model's name selects the server.

A request that references kept answers or items is forwarded as received while its upstream knows them, else
with the full history. Refusals are remembered by caller, so that no caller can switch a feature off for
others with a faulty request; in memory and for a day, after which the feature is tried again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.wire.credentials import USUAL_NAMES, CredentialNames
from palimpsest.core.wire.models import ModelPattern
from palimpsest.core.wire.request import ChatRequest
from palimpsest.proxy.incoming import Headers
from palimpsest.proxy.turn import Turn
from palimpsest.storage.database import Recent
from palimpsest.upstream.client import Upstream
from palimpsest.upstream.decoding import DECODABLE
from palimpsest.upstream.headers import UpstreamKey, request_headers


class Outgoing:
    """Makes upstream headers from the client's. `keeps_credentials` is false if they hold a key of ours.

    With an operator's `key` the caller's credentials (`names`) are removed too.
    """

    def __init__(
        self, key: UpstreamKey | None, *, keeps_credentials: bool, names: CredentialNames = USUAL_NAMES
    ) -> None:
        self._key = key
        self._drops = key is not None or not keeps_credentials
        self._names = names

    def __call__(self, received: Headers) -> list[tuple[bytes, bytes]]:
        """The headers for the upstream."""
        if self._key is None and self._drops:
            received = self._names.without(received)
        return request_headers(received, DECODABLE, self._key, self._names)

    def target(self, received: str) -> str:
        """The path and query for the upstream, without credentials that are removed."""
        return self._names.target_without(received) if self._drops else received


@dataclass(frozen=True, slots=True)
class Destination:
    """One server, how headers are made for it, and its models; None: all that no other server has."""

    upstream: Upstream
    outgoing: Outgoing
    models: ModelPattern | None = None

    def asked_for(self, model: str) -> str:
        """The name that this server has for the model."""
        return self.models.asked_for(model) if self.models is not None else model

    def named(self, request: ChatRequest) -> ChatRequest:
        """The request with the server's name for its model."""
        name = self.asked_for(request.model)
        asked = None if name == request.model else name
        return request if asked == request.upstream_model else replace(request, upstream_model=asked)


@dataclass(frozen=True, slots=True)
class Destinations:
    """All servers, by the names of their models; the first of `routed` whose pattern matches is used."""

    default: Destination
    routed: Sequence[Destination] = ()

    def of(self, model: str) -> Destination:
        """The server of a model; the default one if no pattern matches."""
        for there in self.routed:
            if there.models and there.models.means(model):
                return there
        return self.default

    def headers(self, received: Headers, model: str) -> list[tuple[bytes, bytes]]:
        """The headers for the server of a model."""
        return self.of(model).outgoing(received)


# Callers choose model names, so that what is remembered is bounded.
_REFUSED = 10_000
# Servers are replaced within days; trying again costs one refused request.
LIFE_SECONDS = 86_400.0


class RefusalMemory:
    """What was refused within the last day; one instance for each feature.

    A place is a namespace with a model, or with a session and a model.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: Recent[tuple[str, ...], float] = Recent(_REFUSED)

    def remember(self, *place: str) -> None:
        """Record a refusal at the place."""
        self._places[place] = self._clock()

    def __contains__(self, place: tuple[str, ...]) -> bool:
        refused_at = self._places.get(place)
        return refused_at is not None and self._clock() - refused_at < LIFE_SECONDS


# Statuses with which upstreams refuse the id of an answer.
_STATUSES = frozenset({400, 404, 422, 501})
# Words beside the id of an item that mean that it does not exist: "Item with id '...' not found".
_MISSING = re.compile(rb"not found|exist|unknown|no such|no item|persisted|expired|deleted", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Decides whether requests may reference what upstreams keep. `are_kept`: the operator's setting.

    `forgetting`: sessions of which the upstream has lost an answer, deleted or expired; others are not
    affected.
    """

    forgetting: RefusalMemory
    are_kept: bool

    def may_continue(self, turn: Turn) -> bool:
        """True when the request may, or must, leave earlier messages to the upstream."""
        if turn.begins_unseen:
            return True
        if turn.request.previous is None or not turn.is_delta or turn.continues_hidden:
            return False
        return self._are_named(turn)

    def with_items(self, turn: Turn) -> Turn:
        """The turn, with items instead of references to them if the upstream does not keep items."""
        if self._are_named(turn) or not turn.request.as_sent:
            return turn
        return replace(turn, request=turn.request.whole)

    def _are_named(self, turn: Turn) -> bool:
        return self.are_kept and _place(turn) not in self.forgetting

    def are_forgotten(self, turn: Turn, status: int, body: bytes) -> bool:
        """True when the refusal means that the upstream lacks an answer or item: the full history is sent
        next.

        False when only the upstream knows how the conversation began: the rest would be another conversation.
        """
        if turn.begins_unseen or status not in _STATUSES:
            return False
        ident = (turn.request.previous or "").encode("utf-8", "surrogatepass")
        lacks = self.may_continue(turn) and (b"previous_response" in body or ident in body)
        if not lacks and turn.request.as_sent and self._are_named(turn):
            # A referenced item whose content is known here.
            idents = (item.encode("utf-8", "surrogatepass") for item in turn.request.references.values())
            is_named = any(item in body for item in idents)
            lacks = b"item_reference" in body or (is_named and _MISSING.search(body) is not None)
        if lacks:
            self.forgetting.remember(*_place(turn))
        return lacks


def _place(turn: Turn) -> tuple[str, str, str]:
    return turn.namespace, turn.session, turn.model
