"""The one place where aiohttp's exceptions become ours.

Knows nothing of requests. Only what the network does is translated: a bug (TypeError, an invalid
URL of ours) passes through as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from app.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable

# Most specific first: aiohttp's classes overlap (ConnectionTimeoutError is a connection error, a
# timeout and, through asyncio, an OSError). Messages name no host and quote nothing: they may reach
# a client, and an aiohttp message can carry the proxy's URL with its password.
_BEFORE_ANSWER: tuple[tuple[type[Exception], type[UpstreamError], str], ...] = (
    (aiohttp.ConnectionTimeoutError, UpstreamTimeout, "No connection to the upstream in time."),
    (aiohttp.ServerTimeoutError, UpstreamTimeout, "The upstream did not begin to answer in time."),
    (aiohttp.ClientProxyConnectionError, UpstreamUnreachable, "The proxy to the upstream is unreachable."),
    (aiohttp.ClientHttpProxyError, UpstreamUnreachable, "The proxy refused to connect to the upstream."),
    (
        aiohttp.ClientConnectorCertificateError,
        UpstreamUnreachable,
        "The upstream's certificate is not valid.",
    ),
    (aiohttp.ClientConnectorDNSError, UpstreamUnreachable, "The upstream's name cannot be resolved."),
    (aiohttp.ClientConnectorError, UpstreamUnreachable, "The upstream refuses connections."),
    (aiohttp.ClientConnectionError, UpstreamUnreachable, "The upstream closed the connection unanswered."),
    (aiohttp.ClientPayloadError, UpstreamCut, "The upstream's answer ended early."),
    (aiohttp.ClientResponseError, UpstreamError, "The upstream's answer is not valid HTTP."),
)

_DURING_ANSWER: tuple[tuple[type[Exception], type[UpstreamError], str], ...] = (
    (aiohttp.ServerTimeoutError, UpstreamTimeout, "The upstream fell silent in the middle of its answer."),
    (aiohttp.ClientPayloadError, UpstreamCut, "The upstream's answer ended early."),
    (aiohttp.ClientConnectionError, UpstreamCut, "The connection broke in the middle of the answer."),
)

# Others begin no answer (101 ends HTTP on the connection), or mean nothing to any server or client.
_FINAL_STATUSES = range(200, 600)


def refuse_odd_status(status: int) -> None:
    """UpstreamError for a status that nobody could be given."""
    if status not in _FINAL_STATUSES:
        raise UpstreamError("The upstream's answer has a status that HTTP does not know.")


def without_answer(fault: aiohttp.ClientError) -> UpstreamError:
    """What a fault before the answer's head is called here."""
    return _translated(fault, _BEFORE_ANSWER)


@contextmanager
def before_answer() -> Iterator[None]:
    """Faults until the answer's head has arrived: nothing has reached the client yet."""
    try:
        yield
    except aiohttp.InvalidURL:
        raise
    except (aiohttp.ClientError, TimeoutError) as fault:
        raise _translated(fault, _BEFORE_ANSWER) from fault


@contextmanager
def during_answer() -> Iterator[None]:
    """Faults after the head: part of the answer may have been relayed."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as fault:
        raise _translated(fault, _DURING_ANSWER) from fault


def _translated(
    fault: Exception, table: tuple[tuple[type[Exception], type[UpstreamError], str], ...]
) -> UpstreamError:
    for theirs, ours, message in table:
        if isinstance(fault, theirs):
            return ours(message)
    if isinstance(fault, TimeoutError):
        return UpstreamTimeout("The upstream did not answer in time.")
    return UpstreamError("The exchange with the upstream failed.")
