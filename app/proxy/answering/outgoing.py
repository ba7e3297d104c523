"""The headers of a request to the upstream, from those of the client's.

Binds what the operator has decided (which key) to the rules of `app.upstream.headers`.
"""

from __future__ import annotations

from app.proxy.incoming import Headers
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
