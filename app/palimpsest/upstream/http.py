"""An httpx client for requests of this program's own, over the connection pool of `client`.

The pool is aiohttp's because httpx's own does not withstand many cancelled requests (docs/decisions/0002),
and requests for summaries are cancelled at their deadlines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import aiohttp
import httpx
import msgspec
from httpx_aiohttp import AiohttpTransport

from palimpsest.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from palimpsest.upstream.body import WRITE_BYTES
from palimpsest.upstream.client import BEFORE_ANSWER, Upstream, translation
from palimpsest.upstream.decoding import decoder_for


class _SharedPool(AiohttpTransport):
    """A transport over the pool of an `Upstream`, which closes it."""

    async def aclose(self) -> None:
        """Leave the pool open."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete answer; `body` is decoded and bounded."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None when it is not."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def client_over(upstream: Upstream) -> httpx.AsyncClient:
    """An httpx client on `upstream`'s open pool, with its proxy, authorities and extra headers.

    It keeps no cookies and follows no redirects.
    """
    # The pool has its own TLS settings; `verify` would only load a second, unused set of authorities.
    transport = _SharedPool(client=upstream.session, verify=False, trust_env=False)
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        # `fetch` decodes answers that are compressed all the same, with a bound, which httpx does not have.
        headers=[(b"user-agent", b"palimpsest"), (b"accept-encoding", b"identity"), *upstream.extra_headers],
        # A last resort: callers set their own deadlines.
        timeout=600,
    )


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """A body in chunks. aiohttp writes bytes at once, which blocks the loop for megabytes, and warns."""
    for start in range(0, len(body), WRITE_BYTES):
        yield body[start : start + WRITE_BYTES]


async def fetch(http: httpx.AsyncClient, request: httpx.Request, limit: int) -> HttpReply:
    """Send `request` and read the answer, of at most `limit` decoded bytes.

    Raises UpstreamUnreachable, UpstreamTimeout or UpstreamCut, and UpstreamError for an answer that is
    larger or has an unsupported content coding. The caller sets the deadline.
    """
    with _translated():
        answer = await http.send(request, stream=True)
        try:
            headers = tuple(answer.headers.raw)
            return HttpReply(answer.status_code, headers, await _read(answer.aiter_raw(), headers, limit))
        finally:
            await answer.aclose()


async def _read(chunks: AsyncIterator[bytes], headers: tuple[tuple[bytes, bytes], ...], limit: int) -> bytes:
    decoder = decoder_for(headers, limit)
    if decoder is None:
        raise UpstreamError("The upstream's answer has an unsupported content coding.")
    pieces: list[bytes] = []
    async for chunk in chunks:
        pieces.append(decoder.feed(chunk))
        if decoder.failure is not None:
            raise UpstreamError(f"The upstream's answer cannot be read: {decoder.failure}.")
    return b"".join(pieces)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    # The transport raises one class for a refused connection, an unresolved name and a broken connection; the
    # cause tells them apart.
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as fault:
        if isinstance(fault.__cause__, aiohttp.ClientError):
            raise translation(fault.__cause__, BEFORE_ANSWER) from fault
        raise UpstreamUnreachable("The upstream closed the connection without answering.") from fault
    except httpx.TimeoutException as fault:
        raise UpstreamTimeout("The upstream did not answer in time.") from fault
    except httpx.ReadError as fault:
        raise UpstreamCut("The upstream's answer ended early.") from fault
    # Exceptions that the transport does not map, above all for malformed answers, are aiohttp's own.
    except (httpx.TransportError, aiohttp.ClientError) as fault:
        raise UpstreamError("The exchange with the upstream failed.") from fault
