"""Where a request goes, and the headers it goes with, from those of the client's.

Binds what the operator has decided (which server for which model, which key) to the rules of
`app.upstream.headers`. Nothing a caller sends names a server: only its model's name is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from app.proxy.incoming import Headers
from app.upstream.client import Upstream
from app.upstream.decoding import DECODABLE
from app.upstream.headers import CREDENTIALS, UpstreamKey, request_headers


class Outgoing:
    """Called with the client's headers. `keeps_credentials` is false where they hold a key of ours."""

    def __init__(self, key: UpstreamKey | None, *, keeps_credentials: bool) -> None:
        self._key = key
        self._keeps_credentials = keeps_credentials

    def __call__(self, received: Headers) -> list[tuple[bytes, bytes]]:
        """What the upstream is told."""
        if self._key is None and not self._keeps_credentials:
            received = [header for header in received if header[0].lower() not in CREDENTIALS]
        return request_headers(received, DECODABLE, self._key)


@dataclass(frozen=True, slots=True)
class Destination:
    """One server, and what it is told of a client's headers."""

    upstream: Upstream
    outgoing: Outgoing


class Destinations:
    """Every server there is, by the names of the models it answers; the first pattern that fits counts."""

    def __init__(self, default: Destination, routes: Sequence[tuple[str, Destination]] = ()) -> None:
        self._default = default
        self._routes = [(pattern.casefold(), there) for pattern, there in routes]

    @property
    def routed(self) -> Sequence[Destination]:
        """The servers of the routes, in their order."""
        return [there for _, there in self._routes]

    def of(self, model: str) -> Destination:
        """The server that answers a model; what no pattern fits is answered by the default."""
        name = model.casefold() if self._routes else ""
        return next((there for match, there in self._routes if fnmatchcase(name, match)), self._default)

    def headers(self, received: Headers, model: str) -> list[tuple[bytes, bytes]]:
        """What the server of a model is told."""
        return self.of(model).outgoing(received)
