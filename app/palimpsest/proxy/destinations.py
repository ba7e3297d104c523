"""The upstream server of a request, and the headers sent to it.

Applies the operator's choices (which server for which model, which key) with the rules of
`palimpsest.upstream.headers`. Of what a caller sends only the model's name selects the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palimpsest.core.wire.credentials import USUAL_NAMES, CredentialNames
from palimpsest.core.wire.models import ModelPattern
from palimpsest.core.wire.request import ChatRequest
from palimpsest.proxy.incoming import Headers
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
