"""Requests of this program's own to an upstream, over its pool: whole answers, decoded and bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yarl import URL

from palimpsest.errors import UpstreamError
from palimpsest.upstream.client import RawHeaders, Upstream
from palimpsest.upstream.decoding import decoder_for
from palimpsest.upstream.overflow import json_of

# Answers that are compressed all the same are decoded.
_HEADERS = ((b"user-agent", b"palimpsest"), (b"accept", b"*/*"), (b"accept-encoding", b"identity"))


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete answer; `body` is decoded and bounded."""

    status: int
    headers: RawHeaders
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None when it is not."""
        return json_of(self.body)


async def fetch(
    upstream: Upstream,
    address: str | URL,
    headers: RawHeaders,
    limit: int,
    document: bytes | None = None,
) -> HttpReply:
    """The answer of GET, or of POST with a JSON document, of at most `limit` decoded bytes.

    `address` is a path under the base URL, or a whole URL. The operator's headers are sent, and `headers` in
    place of our own; no cookies are kept, and no redirects followed. Raises UpstreamUnreachable,
    UpstreamTimeout or UpstreamCut, and UpstreamError for an answer that is larger or has an unsupported
    content coding. The caller sets the deadline.
    """
    given = {name.lower() for name, _ in headers}
    sent = [*(header for header in _HEADERS if header[0] not in given), *headers]
    if document is not None:
        sent += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(document))]
    method = "GET" if document is None else "POST"
    async with upstream.open(method, address, sent, document) as answer:
        decoder = decoder_for(answer.headers, limit)
        if decoder is None:
            raise UpstreamError("The upstream's answer has an unsupported content coding.")
        body = decoder.feed(await answer.read(limit))
        if decoder.failure is not None:
            raise UpstreamError(f"The upstream's answer cannot be read: {decoder.failure}.")
        return HttpReply(answer.status, answer.headers, body)
