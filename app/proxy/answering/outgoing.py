"""Where a request goes, and the headers it goes with, from those of the client's.

Binds what the operator has decided (which server for which model, which key) to the rules of
`app.upstream.headers`. Nothing a caller sends names a server: only its model's name is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.wire.chat_request import ChatRequest
from app.core.wire.credentials import USUAL_NAMES, CredentialNames
from app.core.wire.models.names import ModelPattern
from app.proxy.incoming import Headers
from app.upstream.client import Upstream
from app.upstream.decoding import DECODABLE
from app.upstream.headers import UpstreamKey, request_headers


class Outgoing:
    """Called with the client's headers. `keeps_credentials` is false where they hold a key of ours.

    With an operator's `key` none of the caller's credentials (`names`) goes on either.
    """

    def __init__(
        self, key: UpstreamKey | None, *, keeps_credentials: bool, names: CredentialNames = USUAL_NAMES
    ) -> None:
        self._key = key
        self._drops = key is not None or not keeps_credentials
        self._names = names

    def __call__(self, received: Headers) -> list[tuple[bytes, bytes]]:
        """What the upstream is told."""
        if self._key is None and self._drops:
            received = self._names.without(received)
        return request_headers(received, DECODABLE, self._key, self._names)

    def target(self, received: str) -> str:
        """The path and query that the upstream is asked for."""
        return self._names.target_without(received) if self._drops else received


@dataclass(frozen=True, slots=True)
class Destination:
    """One server, what it is told of a client's headers, and the models that are its, None: all others."""

    upstream: Upstream
    outgoing: Outgoing
    models: ModelPattern | None = None

    def asked_for(self, model: str) -> str:
        """The name under which this server is asked for one of its models."""
        return self.models.asked_for(model) if self.models is not None else model

    def named(self, request: ChatRequest) -> ChatRequest:
        """The request as it goes there: for the same model, by the name that it has there."""
        name = self.asked_for(request.model)
        asked = None if name == request.model else name
        return request if asked == request.asked_model else replace(request, asked_model=asked)


class Destinations:
    """Every server there is, by its models' names; of `routed` the first whose pattern fits counts."""

    def __init__(self, default: Destination, routed: Sequence[Destination] = ()) -> None:
        self._default = default
        self.routed = routed

    def of(self, model: str) -> Destination:
        """The server that answers a model; what no pattern fits is answered by the default."""
        return next(
            (there for there in self.routed if there.models and there.models.means(model)), self._default
        )

    def headers(self, received: Headers, model: str) -> list[tuple[bytes, bytes]]:
        """What the server of a model is told."""
        return self.of(model).outgoing(received)
