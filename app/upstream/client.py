"""One exchange with the upstream: bytes out, bytes in, nothing interpreted.

Must not know what the bytes mean: no JSON, no SSE, no sessions. Redirects are never followed (an
answer that points elsewhere must not take the caller's key there), cookies are neither kept nor sent.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import aiohttp
from yarl import URL

from app.errors import UpstreamError, UpstreamTimeout
from app.upstream.body import RequestBody
from app.upstream.environment import environment_proxy
from app.upstream.faults import before_answer, during_answer, refuse_odd_status

RawHeaders = Sequence[tuple[bytes, bytes]]

# Headers aiohttp would add by itself: what the client did not send is not sent.
_NOT_ADDED = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
# An answer's header line may be this long: content security policies pass aiohttp's 8 KB.
_HEADER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """Where the upstream is and how patient we are with it.

    `base_url` may have a path (`https://host/v1`) and a query (Azure's `?api-version=`), which is appended
    to every request's; a parameter that the request has already stays. `proxy` wins over the environment's
    proxy variables, which count only with `proxy_from_environment` (NO_PROXY included) and never for this
    machine; both are settled once, at start. `ca_file` is added to the system's authorities.
    `extra_headers` follow the client's own.
    """

    base_url: str
    # A TCP and TLS handshake across an ocean takes under a second; 10 s allows for lost packets.
    connect_seconds: float = 10.0
    # Waiting for a free connection when `connections` are all in use.
    queue_seconds: float = 30.0
    # The OpenAI SDKs wait 600 s for a byte. Less, and we would end what a client would have waited
    # for: a first token on a long prompt, or a non-streamed answer, takes minutes.
    first_byte_seconds: float = 600.0
    # Between two pieces of an answer. Reasoning models fall silent for minutes in mid-stream.
    idle_seconds: float = 600.0
    # From an answer's head to its end: one that drips, byte by byte, is never silent.
    answer_seconds: float = 7200.0
    # Each stream holds one for as long as it lasts; aiohttp's 100 would queue the 101st client.
    connections: int = 1000
    # Idle connections are kept this long. Shorter than most front ends keep theirs (60 s and up).
    keepalive_seconds: float = 30.0
    proxy: str | None = None
    proxy_from_environment: bool = True
    ca_file: Path | None = None
    extra_headers: tuple[tuple[bytes, bytes], ...] = ()


class Answer:
    """An answer whose head has arrived. Valid only inside the `async with` that opened it.

    `headers` are as received: bytes, in order, duplicates kept, nothing left out.
    """

    def __init__(self, response: aiohttp.ClientResponse, idle_seconds: float, answer_seconds: float) -> None:
        self._response = response
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + answer_seconds
        self.status = response.status
        self.headers: tuple[tuple[bytes, bytes], ...] = tuple(response.raw_headers)
        self._first: bytes | None = None
        # Gone from the response once its body is complete.
        self._protocol = response.connection.protocol if response.connection is not None else None
        self._closed = self._protocol.closed if self._protocol is not None else None
        if self._closed is not None:
            # Once for each connection, however many answers it carries: whoever asks for this future must
            # hear of its failure, and a connection may fail long after its last answer.
            self._closed.remove_done_callback(_heard)
            self._closed.add_done_callback(_heard)
            self._closed.add_done_callback(self._connection_lost)

    def let_go(self) -> None:
        """The answer is over: its connection may go on without it."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._connection_lost)

    def _connection_lost(self, _: asyncio.Future[None]) -> None:
        # aiohttp 3.14 closes the connection of a body whose chunks are malformed, and leaves whoever reads
        # it waiting, with no timer running: for ever.
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("malformed"))

    async def first(self) -> bytes:
        """The first chunk, which `chunks` gives all the same; empty without a body. Raises as `chunks`."""
        if self._first is None:
            with during_answer():
                self._first = await self._response.content.readany()
                self._expect_next_within(self._idle_seconds)
        return self._first

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives: transfer coding undone, content coding untouched, no chunk empty.

        Ends normally only when the body was complete. Raises UpstreamCut when it ends early (fewer
        bytes than its length, no last chunk, a reset) and UpstreamTimeout when it falls silent or does
        not end in time. A body that is delimited by an orderly end of the connection cannot be told from a
        cut one.
        """
        content, protocol = self._response.content, self._protocol
        with during_answer():
            chunk = await self.first()
            while chunk:
                yield chunk
                if self._loop.time() > self._ends:
                    raise UpstreamTimeout("The upstream's answer took longer than it may.")
                chunk = await content.readany()
            # aiohttp ends a body without a length in good order when the connection is reset.
            if protocol is not None and ends_with_connection(self.headers):
                fault = protocol.exception()
                if isinstance(fault, aiohttp.ClientOSError):
                    raise fault

    async def read(self, limit: int) -> bytes:
        """The whole body, at most `limit` bytes; a longer one raises UpstreamError."""
        pieces: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                raise UpstreamError("The upstream's answer is larger than it may be.")
            pieces.append(chunk)
        return b"".join(pieces)

    def _expect_next_within(self, seconds: float) -> None:
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = seconds
            # The running timer is still the longer one.
            connection.protocol.start_timeout()


class Upstream:
    """A pool of connections to one upstream. Open it with `async with` before the first request."""

    def __init__(self, options: UpstreamOptions) -> None:
        self._options = options
        base = URL(options.base_url)
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError("base_url must be an http or https URL")
        self._prefix = str(base.with_query(None).with_fragment(None)).rstrip("/")
        self._query = [field for field in base.raw_query_string.split("&") if field]
        self._proxy = options.proxy or (environment_proxy(base) if options.proxy_from_environment else None)
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            connect=options.queue_seconds + options.connect_seconds,
            sock_connect=options.connect_seconds,
            sock_read=options.first_byte_seconds,
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Upstream:
        options = self._options
        connector = aiohttp.TCPConnector(
            limit=options.connections,
            keepalive_timeout=options.keepalive_seconds,
            # Read at once, also where nothing is encrypted yet: a file that is wrong is to be heard of now.
            ssl=_tls(options.ca_file) if options.ca_file or self._prefix.startswith("https") else True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            timeout=self._timeout,
            # Settled at start for the one host there is; aiohttp's trust_env would ask at every request.
            proxy=self._proxy,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open pool, for our own calls (`http.client_over`), which share it."""
        if self._session is None:
            raise RuntimeError("the upstream is not open")
        return self._session

    @property
    def origin(self) -> str:
        """Scheme, host and port: where servers keep what is not under the API's path."""
        return str(URL(self._prefix).origin())

    @property
    def extra_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """What the operator adds to every request: `open` does, our own calls must."""
        return self._options.extra_headers

    def url(self, path_and_query: str) -> str:
        """The full address of a path under the base URL, the base URL's query included."""
        return str(self._url(path_and_query))

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path_and_query: str,
        headers: RawHeaders,
        body: bytes | AsyncIterator[bytes] | None,
        *,
        takes_any_time: bool = False,
    ) -> AsyncIterator[Answer]:
        """Send one request; the answer's head has arrived when this yields.

        `path_and_query` begins with "/" and follows the base URL's path. A body read to its end
        gives the connection back to the pool; leaving earlier, for whatever reason, closes it, and
        the upstream sees that at once. Nothing is sent twice, with two exceptions: a method that is
        idempotent by definition (RFC 9110, 9.2.2), and a request of which no byte had left when its
        pooled connection was found closed. A POST that may have been read is never repeated: it may
        have been paid for.
        """
        response = await self._answered(method, path_and_query, headers, body)
        answer_seconds = math.inf if takes_any_time else self._options.answer_seconds
        answer = Answer(response, self._options.idle_seconds, answer_seconds)
        try:
            refuse_odd_status(response.status)
            yield answer
        finally:
            answer.let_go()
            response.close()

    async def _answered(
        self, method: str, path_and_query: str, headers: RawHeaders, body: bytes | AsyncIterator[bytes] | None
    ) -> aiohttp.ClientResponse:
        url = self._url(path_and_query)
        fields = _fields((*headers, *self._options.extra_headers), body)
        with before_answer():
            outgoing = _outgoing(fields, body)
            try:
                return await self._in_time(method, url, fields, outgoing)
            except aiohttp.ClientError:
                if outgoing is not None and outgoing.failure is not None:
                    raise outgoing.failure from None
                if outgoing is None or outgoing.started:
                    raise
            return await self._in_time(method, url, fields, _outgoing(fields, body))

    async def _in_time(
        self, method: str, url: URL, fields: list[tuple[str, str]], body: RequestBody | None
    ) -> aiohttp.ClientResponse:
        """As `_send`; a head that drips in is waited for no longer than one that does not come.

        The wait begins when the request has been sent. How long an upload takes is its client's affair.
        """
        patience, now = self._options, asyncio.get_running_loop().time
        whole = patience.queue_seconds + patience.connect_seconds + patience.first_byte_seconds
        async with asyncio.timeout(None if body is not None and body.is_arriving else whole) as limit:
            if body is not None:
                body.when_sent = lambda: limit.reschedule(now() + patience.first_byte_seconds)
            try:
                return await self._send(method, url, fields, body)
            finally:
                if body is not None:
                    body.when_sent = None

    async def _send(
        self, method: str, url: URL, fields: list[tuple[str, str]], body: RequestBody | None
    ) -> aiohttp.ClientResponse:
        return await self.session.request(method, url, headers=fields, data=body, allow_redirects=False)

    def _url(self, path_and_query: str) -> URL:
        # Without the slash, "@elsewhere" would turn our host into a user name.
        if not path_and_query.startswith("/"):
            raise ValueError("path_and_query must begin with a slash")
        _, mark, query = path_and_query.partition("?")
        given = {field.partition("=")[0] for field in query.split("&")}
        # A parameter that the client sends itself, as Azure's clients send `api-version`, is the client's.
        ours = [field for field in self._query if field.partition("=")[0] not in given]
        if ours:
            path_and_query += ("&" if mark else "?") + "&".join(ours)
        return URL(self._prefix + path_and_query, encoded=True)


def _fields(headers: Iterable[tuple[bytes, bytes]], body: object) -> list[tuple[str, str]]:
    # The length is ours to say when we hold the body: the view may be shorter than what the client sent.
    size = str(len(body)) if isinstance(body, bytes) else None
    # aiohttp keeps duplicates only when they are spelled alike; the first spelling serves for all.
    spelling: dict[str, str] = {}
    fields: list[tuple[str, str]] = []
    for raw_name, raw_value in headers:
        name = _text(raw_name)
        lowered = name.lower()
        name = spelling.setdefault(lowered, name)
        value = size if size is not None and lowered == "content-length" else _text(raw_value)
        fields.append((name, value))
    return fields


def _heard(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()


def ends_with_connection(headers: RawHeaders) -> bool:
    """True for an answer whose body has no end of its own: it lasts until its connection ends."""
    return not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers)


def _text(value: bytes) -> str:
    # aiohttp writes headers as UTF-8, so UTF-8 survives as it is. Other bytes are read as Latin-1.
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _outgoing(fields: list[tuple[str, str]], body: bytes | AsyncIterator[bytes] | None) -> RequestBody | None:
    if body is None or body == b"":
        return None
    length = next((int(value) for name, value in fields if name.lower() == "content-length"), None)
    return RequestBody(body, length)


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=str(ca_file))
    return context
