"""httpx for the few requests this program writes itself, over the pool that carries the exchanges.

Knows nothing of what is asked. The pool is aiohttp's on purpose: httpx's own does not survive callers
that give up in numbers (docs/decisions/0002), and summaries are given up at every deadline.
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

from app.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from app.upstream.body import WRITE_BYTES
from app.upstream.client import Upstream
from app.upstream.decoding import decoder_for
from app.upstream.faults import without_answer


class _SharedPool(AiohttpTransport):
    """The transport over a pool that belongs to `Upstream`, which closes it."""

    async def aclose(self) -> None:
        """Leave the pool open."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: `body` is decoded and bounded."""

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
    """An httpx client on `upstream`'s open pool: its proxy, authorities and extra headers; no cookies,
    no redirects.
    """
    # The pool has its own TLS settings; `verify` would only load a second set of authorities, unused.
    transport = _SharedPool(client=upstream.session, verify=False, trust_env=False)
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        # What comes coded is decoded here, with a bound that httpx's own decoders do not have.
        headers=[(b"user-agent", b"palimpsest"), (b"accept-encoding", b"identity"), *upstream.extra_headers],
        # The deadlines that count are the callers'. This one ends what a caller forgot.
        timeout=600,
    )


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """A body so that a megabyte of it does not hold the loop: aiohttp writes bytes in one go, and warns."""
    for start in range(0, len(body), WRITE_BYTES):
        yield body[start : start + WRITE_BYTES]


async def fetch(http: httpx.AsyncClient, request: httpx.Request, limit: int) -> Reply:
    """Send `request` and read the answer, at most `limit` decoded bytes of it.

    Raises UpstreamUnreachable, UpstreamTimeout or UpstreamCut, and UpstreamError for an answer that is
    larger or in a coding we cannot undo. The caller sets the deadline.
    """
    with _translated():
        answer = await http.send(request, stream=True)
        try:
            headers = tuple(answer.headers.raw)
            return Reply(answer.status_code, headers, await _read(answer.aiter_raw(), headers, limit))
        finally:
            await answer.aclose()


async def _read(chunks: AsyncIterator[bytes], headers: tuple[tuple[bytes, bytes], ...], limit: int) -> bytes:
    decoder = decoder_for(headers, limit)
    if decoder is None:
        raise UpstreamError("The upstream's answer has a coding we cannot undo.")
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
    # The transport calls a refused connection, a name without address and a broken connection all the same;
    # what it was is known from its cause.
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as fault:
        if isinstance(fault.__cause__, aiohttp.ClientError):
            raise without_answer(fault.__cause__) from fault
        raise UpstreamUnreachable("The upstream closed the connection unanswered.") from fault
    except httpx.TimeoutException as fault:
        raise UpstreamTimeout("The upstream did not answer in time.") from fault
    except httpx.ReadError as fault:
        raise UpstreamCut("The upstream's answer ended early.") from fault
    # What the transport has no word for, a malformed answer above all, comes as aiohttp's own.
    except (httpx.TransportError, aiohttp.ClientError) as fault:
        raise UpstreamError("The exchange with the upstream failed.") from fault
