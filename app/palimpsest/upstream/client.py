"""Requests to the upstream over a connection pool; maps aiohttp's exceptions to ours.

Only network failures are mapped: a bug (TypeError, an invalid URL) propagates unchanged. Redirects are never
followed (the caller's key must not reach another host), and cookies are neither kept nor sent.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import aiohttp
from pydantic import SecretStr
from yarl import URL

from palimpsest.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from palimpsest.settings.settings import is_loopback
from palimpsest.settings.upstreams import UpstreamSettings
from palimpsest.upstream.body import OutgoingBody

_Faults: TypeAlias = Sequence[tuple[type[Exception], type[UpstreamError], str]]
# Most specific first: aiohttp's classes overlap (ConnectionTimeoutError is a connection error, a
# timeout and, through asyncio, an OSError). Messages name no host and quote nothing: clients may see
# them, and an aiohttp message can contain the proxy's URL with its password.
_ANYWHERE: _Faults = (
    (aiohttp.ClientPayloadError, UpstreamCut, "The upstream's answer ended early."),
    (TimeoutError, UpstreamTimeout, "The upstream did not answer in time."),
    (aiohttp.ClientError, UpstreamError, "The exchange with the upstream failed."),
)
# Until the answer's head has arrived nothing has reached the client.
_BEFORE_ANSWER: _Faults = (
    (aiohttp.ConnectionTimeoutError, UpstreamTimeout, "Connecting to the upstream timed out."),
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
    (
        aiohttp.ClientConnectionError,
        UpstreamUnreachable,
        "The upstream closed the connection without answering.",
    ),
    (aiohttp.ClientResponseError, UpstreamError, "The upstream's answer is not valid HTTP."),
    *_ANYWHERE,
)
# Part of the answer may have been relayed.
_DURING_ANSWER: _Faults = (
    (
        aiohttp.ServerTimeoutError,
        UpstreamTimeout,
        "The upstream stopped sending in the middle of its answer.",
    ),
    (aiohttp.ClientConnectionError, UpstreamCut, "The connection broke in the middle of the answer."),
    *_ANYWHERE,
)

# Other statuses are not final (101 ends HTTP on the connection), or are undefined.
_FINAL_STATUSES = range(200, 600)


@contextmanager
def _translated(table: _Faults) -> Iterator[None]:
    """Raises our exception for aiohttp's, by the table of where the answer is."""
    try:
        yield
    except aiohttp.InvalidURL:
        raise
    except (aiohttp.ClientError, TimeoutError) as fault:
        said = [ours(message) for theirs, ours, message in table if isinstance(fault, theirs)]
        raise said[0] from fault


RawHeaders = Sequence[tuple[bytes, bytes]]
_Content: TypeAlias = bytes | AsyncIterator[bytes] | None

# Headers that aiohttp would add by itself, and must not: only what the client sent is sent.
_SKIPPED_HEADERS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
# The longest header line of an answer: content security policies exceed aiohttp's 8 KB.
_HEADER_BYTES = 64 * 1024


class UpstreamAnswer:
    """An answer whose head has arrived. Valid only inside the `async with` that opened it.

    `headers` are all headers as received: bytes, in order, with duplicates.
    """

    def __init__(self, response: aiohttp.ClientResponse, idle_seconds: float, answer_seconds: float) -> None:
        self._response = response
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + answer_seconds
        self.status = response.status
        self.headers: RawHeaders = response.raw_headers
        self._first: bytes | None = None
        # The response drops its connection once its body is complete.
        self._protocol = response.connection.protocol if response.connection is not None else None
        self._closed = self._protocol.closed if self._protocol is not None else None
        if self._closed is not None:
            # Retrieves the future's exception, once for each connection: asyncio logs one that nobody
            # retrieved, and a connection may fail long after its last answer.
            self._closed.remove_done_callback(_retrieve_exception)
            self._closed.add_done_callback(_retrieve_exception)
            self._closed.add_done_callback(self._connection_lost)

    def let_go(self) -> None:
        """Stop watching the connection, which may outlive this answer."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._connection_lost)

    def _connection_lost(self, _: asyncio.Future[None]) -> None:
        # aiohttp 3.14 closes the connection of a body with malformed chunks, and leaves the reader waiting
        # forever: no timer is running.
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("malformed"))

    async def first(self) -> bytes:
        """The first chunk, which `chunks` yields again; empty without a body. Raises as `chunks` does."""
        if self._first is None:
            with _translated(_DURING_ANSWER):
                self._first = await self._response.content.readany()
                # Without a connection the body is complete.
                if self._response.connection is not None and self._protocol is not None:
                    self._protocol.read_timeout = self._idle_seconds
                    # Restarts the timer, which still runs with the longer timeout.
                    self._protocol.start_timeout()
        return self._first

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives: transfer coding undone, content coding untouched, no chunk empty.

        Ends normally only when the body is complete. Raises UpstreamCut when it ends early (fewer bytes than
        its length, no last chunk, a reset), and UpstreamTimeout when it is idle too long or does not end in
        time. A body that is delimited by the end of the connection cannot be told from a truncated one.
        """
        content, protocol = self._response.content, self._protocol
        with _translated(_DURING_ANSWER):
            chunk = await self.first()
            while chunk:
                yield chunk
                if self._loop.time() > self._ends:
                    raise UpstreamTimeout("The upstream's answer exceeded the time limit.")
                chunk = await content.readany()
            # aiohttp reports a body without a length as complete even when the connection is reset.
            if protocol is not None and ends_with_connection(self.headers):
                fault = protocol.exception()
                if isinstance(fault, aiohttp.ClientOSError):
                    raise fault

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises UpstreamError for more than `limit` bytes, and as `chunks` does."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                raise UpstreamError("The upstream's answer is larger than the limit.")
        return bytes(body)


# The wait for a free connection when all of them are in use.
QUEUE_SECONDS = 30.0


class Upstream:
    """A pool of connections to one upstream. Open it with `async with` before the first request.

    `base_url` may have a path (`https://host/v1`) and a query (Azure's `?api-version=`), which is added to
    every request's query; parameters of the request win. `how` has timeouts and limits. Its `proxy_url` wins
    over the environment's proxy variables, which never count for this machine; both are resolved once, at
    start. `headers` are the operator's, and follow the client's own.
    """

    def __init__(
        self,
        base_url: str,
        how: UpstreamSettings,
        headers: Mapping[str, SecretStr] = MappingProxyType({}),
        *,
        queue_seconds: float = QUEUE_SECONDS,
    ) -> None:
        self._how = how
        self._queue_seconds = queue_seconds
        self._extra_headers = tuple(
            (name.encode(), value.get_secret_value().encode()) for name, value in headers.items()
        )
        base = URL(base_url)
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError("base_url must be an http or https URL")
        self._prefix = str(base.with_query(None).with_fragment(None)).rstrip("/")
        self._query = [field for field in base.raw_query_string.split("&") if field]
        self._proxy = how.proxy_url.get_secret_value() if how.proxy_url else None
        if self._proxy is None and how.trust_env:
            host = base.host or ""
            # A server on this machine is never behind a proxy, whether or not NO_PROXY says so.
            if not is_loopback(host) and not urllib.request.proxy_bypass(host):
                self._proxy = urllib.request.getproxies().get(base.scheme)
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            connect=queue_seconds + how.connect_timeout_seconds,
            sock_connect=how.connect_timeout_seconds,
            sock_read=how.first_byte_timeout_seconds,
        )
        self.session: aiohttp.ClientSession

    async def __aenter__(self) -> Upstream:
        how = self._how
        tls: ssl.SSLContext | bool = True
        if how.ca_bundle or self._prefix.startswith("https"):
            # An invalid file must fail now, even if nothing is encrypted yet. On a thread: other requests
            # may be answered meanwhile.
            tls = await asyncio.to_thread(trust_of, how.ca_bundle)
        connector = aiohttp.TCPConnector(
            limit=how.max_connections, keepalive_timeout=how.keep_alive_seconds, ssl=tls
        )
        self.session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_SKIPPED_HEADERS,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            timeout=self._timeout,
            # Resolved at start for the single host; aiohttp's trust_env would look it up for every request.
            proxy=self._proxy,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    @property
    def origin(self) -> str:
        """Scheme, host and port: the base of endpoints outside the API's path."""
        return str(URL(self._prefix).origin())

    def url(self, path_and_query: str) -> str:
        """The full address of a path under the base URL, the base URL's query included."""
        return str(self._url(path_and_query))

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path_and_query: str | URL,
        headers: RawHeaders,
        body: _Content,
        *,
        takes_any_time: bool = False,
    ) -> AsyncIterator[UpstreamAnswer]:
        """Send one request; yields when the answer's head has arrived.

        `path_and_query` begins with "/" and follows the base URL's path; a URL is taken whole. Reading the
        body to its end returns the connection to the pool; leaving earlier, for whatever reason, closes it,
        which the upstream sees at once. A request is sent again in two cases only: its method is idempotent
        by definition (RFC 9110, 9.2.2), or no byte of it had left when its pooled connection was found
        closed. A POST that the upstream may have read is never repeated: it may have been charged.
        """
        url = path_and_query if isinstance(path_and_query, URL) else self._url(path_and_query)
        fields = _fields((*headers, *self._extra_headers), body)
        with _translated(_BEFORE_ANSWER):
            outgoing = _outgoing(fields, body)
            try:
                response = await self._sent(method, url, fields, outgoing)
            except aiohttp.ClientError:
                if outgoing is None:
                    raise
                if outgoing.failure is not None:
                    raise outgoing.failure from None
                if outgoing.started:
                    raise
                response = await self._sent(method, url, fields, _outgoing(fields, body))
        answer_seconds = math.inf if takes_any_time else self._how.answer_timeout_seconds
        answer = UpstreamAnswer(response, self._how.idle_timeout_seconds, answer_seconds)
        try:
            if response.status not in _FINAL_STATUSES:
                raise UpstreamError("The upstream's answer has an invalid status.")
            yield answer
        finally:
            answer.let_go()
            response.close()

    async def _sent(
        self, method: str, url: URL, fields: list[tuple[str, str]], body: OutgoingBody | None
    ) -> aiohttp.ClientResponse:
        """One request, with a limit on the time until the head is complete, even if it arrives byte by byte.

        The time counts from the end of the request; a client's upload is not limited.
        """
        how, now = self._how, asyncio.get_running_loop().time
        whole = self._queue_seconds + how.connect_timeout_seconds + how.first_byte_timeout_seconds
        async with asyncio.timeout(None if body is not None and body.is_arriving else whole) as limit:
            if body is not None:
                body.when_sent = lambda: limit.reschedule(now() + how.first_byte_timeout_seconds)
            try:
                return await self.session.request(
                    method, url, headers=fields, data=body, allow_redirects=False
                )
            finally:
                if body is not None:
                    body.when_sent = None

    def _url(self, path_and_query: str) -> URL:
        # Without the slash, "@elsewhere" would turn the host into a user name.
        if not path_and_query.startswith("/"):
            raise ValueError("path_and_query must begin with a slash")
        _, mark, query = path_and_query.partition("?")
        given = {field.partition("=")[0] for field in query.split("&")}
        # Parameters that the client sends itself win, such as `api-version` of Azure's clients.
        ours = [field for field in self._query if field.partition("=")[0] not in given]
        if ours:
            path_and_query += ("&" if mark else "?") + "&".join(ours)
        return URL(self._prefix + path_and_query, encoded=True)


def _fields(headers: RawHeaders, body: _Content) -> list[tuple[str, str]]:
    # The length of a body that we hold: a view may be shorter than the client's body.
    size = str(len(body)) if isinstance(body, bytes) else None
    # aiohttp keeps duplicates only when they are spelled alike: all get the first spelling.
    spelling: dict[str, str] = {}
    fields: list[tuple[str, str]] = []
    for raw_name, raw_value in headers:
        # A token (RFC 9110, 5.1), so ASCII.
        name = raw_name.decode("latin-1")
        lowered = name.lower()
        # Nearly all are ASCII.
        value = raw_value.decode() if raw_value.isascii() else _text(raw_value)
        if size is not None and lowered == "content-length":
            value = size
        fields.append((spelling.setdefault(lowered, name), value))
    return fields


def _retrieve_exception(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()


def ends_with_connection(headers: RawHeaders) -> bool:
    """True for an answer whose body is delimited by the end of the connection."""
    return not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers)


def _text(value: bytes) -> str:
    # aiohttp writes headers as UTF-8, so UTF-8 is preserved. Other bytes are read as Latin-1.
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _outgoing(fields: list[tuple[str, str]], body: _Content) -> OutgoingBody | None:
    if not body:
        return None
    length = next((int(value) for name, value in fields if name.lower() == "content-length"), None)
    return OutgoingBody(body, length)


def trust_of(ca_file: Path | None) -> ssl.SSLContext:
    """A context that trusts the system's authorities and those in the file. OSError when it has none."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=str(ca_file))
    return context
