"""Ends, half-closed clients and refused bodies, on raw sockets: the proxy fares as no proxy would (P8).

Each check is a coroutine over a relay and the upstream behind it. It must hold with no relay at all and with
the proxy, and must fail with a relay that is broken in the way it looks for: so no check is silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import openai
import pytest
import pytest_asyncio

from tests.kit.wire import Caller, Headers, Line, answer_body, chat_body, event, post, wired
from tests.upstream.scripted import Scripted, Wire, chunk, head, replies, stalls_after

pytestmark = pytest.mark.asyncio(loop_scope="module")

SSE: Headers = [(b"Content-Type", b"text/event-stream")]
CHUNKED: Headers = [*SSE, (b"Transfer-Encoding", b"chunked")]
SAID = event({"role": "assistant", "content": "Once upon"})
LIMIT = 200_000
PATHS = ["/v1/chat/completions", "/v1/responses", "/v1/embeddings"]
# How long a check waits for what a broken relay never does.
PATIENCE, SHORT_PATIENCE = 20.0, 1.0
Check = Callable[["Way"], Awaitable[None]]


class Way:
    """How clients reach the upstream: by `port`, waited for no longer than `patience` seconds."""

    def __init__(self, port: int, upstream: Scripted, patience: float = PATIENCE) -> None:
        self.upstream = upstream
        self.patience = patience
        self._port = port

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[tuple[Caller, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**26)
        try:
            async with asyncio.timeout(self.patience):
                yield Caller(reader, writer), writer
        finally:
            writer.transport.abort()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """The proxy, with a low limit of what it records."""
    limits = {"limits.body_bytes": LIMIT, "limits.body_idle_seconds": 0.3}
    async with wired(tmp_path_factory.mktemp("line"), limits) as running:
        yield running


@pytest.fixture
def proxy(line: Line) -> Way:
    return Way(line.port, line.upstream)


Fault = Literal["leaves_at_eof", "stays_at_eof", "adds_an_error", "ends_cleanly", "reads_all", "resets"]


class Broken:
    """A relay of bytes, one connection for one, that is wrong in one way."""

    def __init__(self, port: int, fault: Fault) -> None:
        self._port = port
        self._fault = fault
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            if self._fault in ("reads_all", "resets"):
                await self._refuse(reader, writer)
            else:
                await self._relay(reader, writer)
        writer.close()
        self._tasks.discard(task)

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A body too large is refused: behind its last byte, or with no thought for those to come."""
        await reader.readuntil(b"\r\n\r\n")
        if self._fault == "reads_all":
            await reader.readexactly(LIMIT + 1)
        writer.write(head(413, [(b"Content-Length", b"2"), (b"Connection", b"close")]) + b"{}")
        await writer.drain()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_there, to_there = await asyncio.open_connection("127.0.0.1", self._port)
        up = asyncio.ensure_future(self._up(reader, to_there, writer))
        try:
            while data := await from_there.read(65536):
                if self._fault == "adds_an_error":
                    data = data.replace(b"0\r\n\r\n", chunk(b'data: {"error":{}}\n\n'))
                writer.write(data)
                await writer.drain()
            if self._fault == "ends_cleanly":
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        finally:
            up.cancel()
            to_there.close()

    async def _up(
        self, reader: asyncio.StreamReader, to_there: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            to_there.write(data)
            await to_there.drain()
        if self._fault == "leaves_at_eof":
            to_there.transport.abort()
            back.transport.abort()


def request_of(path: str = PATHS[0], *, stream: bool = False, version: bytes = b"1.1") -> bytes:
    body = (
        chat_body(stream=stream) if path != PATHS[1] else json.dumps({"model": "m", "input": "hi"}).encode()
    )
    return post(body, path=path).replace(b"HTTP/1.1", b"HTTP/" + version, 1)


def once(released: asyncio.Event, first: bytes, rest: bytes) -> Callable[[Wire], Awaitable[None]]:
    """The rest follows when it is released."""

    async def script(wire: Wire) -> None:
        if first:
            await wire.send(first)
        await released.wait()
        await wire.send(rest)

    return script


def half_closed(path: str, version: bytes) -> Check:
    """A client that has closed its own side behind the request gets a whole answer."""

    async def check(way: Way) -> None:
        released = asyncio.Event()
        body = answer_body()
        rest = (
            head(200, [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]) + body
        )
        way.upstream.expects(once(released, b"", rest))
        async with way.caller() as (caller, writer):
            count = len(way.upstream.requests)
            await caller.sends(request_of(path, version=version))
            writer.write_eof()
            await way.upstream.arrived(count + 1)
            await settled(way)
            released.set()
            reply = await caller.reply()
            assert (reply.status, reply.body, reply.is_whole) == (200, body, True)
            assert await caller.piece() == b""

    return check


def half_closed_stream(version: bytes, *, late: bool) -> Check:
    """The same of a stream, before its head or in the middle of it."""

    async def check(way: Way) -> None:
        released = asyncio.Event()
        first = head(200, CHUNKED) + chunk(SAID)
        rest = chunk(event({"content": " a time"}, "stop")) + b"0\r\n\r\n"
        way.upstream.expects(once(released, first if late else b"", rest if late else first + rest))
        async with way.caller() as (caller, writer):
            count = len(way.upstream.requests)
            await caller.sends(request_of(stream=True, version=version))
            # HTTP/1.0 has no chunks.
            part = caller.chunk if version == b"1.1" else caller.piece
            if late:
                reply = await caller.head()
                assert await part() == SAID
            writer.write_eof()
            await way.upstream.arrived(count + 1)
            await settled(way)
            released.set()
            if not late:
                reply = await caller.head()
                assert await part() == SAID
            assert reply.status == 200
            assert await part() == event({"content": " a time"}, "stop")
            assert await part() == b""
            assert await caller.piece() == b""

    return check


async def settled(way: Way) -> None:
    """What was sent before has been looked at: whole exchanges have gone the same way since."""
    for _ in range(3):
        way.upstream.expects(replies(b"{}"))
        async with way.caller() as (caller, _writer):
            await caller.sends(b"GET /v1/files/1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await caller.reply()).status == 200


def leaves(path: str, *, stream: bool, late: bool = False) -> Check:
    """A client that closes altogether ends the request upstream, though nothing is said meanwhile."""

    async def check(way: Way) -> None:
        way.upstream.expects(stalls_after(head(200, CHUNKED) + chunk(SAID) if late else b""))
        async with way.caller() as (caller, writer):
            count = len(way.upstream.requests)
            await caller.sends(request_of(path, stream=stream))
            request = await way.upstream.arrived(count + 1)
            if late:
                await caller.head()
                assert await caller.chunk() == SAID
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(way.patience):
            await request.gone.wait()

    return check


def ends_as_it_ended(headers: Headers, path: str) -> Check:
    """An answer that ends properly without saying that it is complete ends properly."""

    async def check(way: Way) -> None:
        said = SAID if path != PATHS[1] else b'data: {"type":"response.output_text.delta","delta":"a"}\n\n'
        if headers is CHUNKED:
            wire = head(200, headers) + chunk(said) + b"0\r\n\r\n"
        else:
            wire = head(200, [*headers, (b"Content-Length", b"%d" % len(said))]) + said
        way.upstream.expects(once(set_event(), b"", wire))
        async with way.caller() as (caller, _):
            await caller.sends(request_of(path, stream=True))
            reply = await caller.reply()
            assert (reply.status, reply.body, reply.is_whole) == (200, said, True)

    return check


def set_event() -> asyncio.Event:
    event_ = asyncio.Event()
    event_.set()
    return event_


async def a_cut_is_a_cut(way: Way) -> None:
    """A stream whose connection broke is no whole answer."""

    async def script(wire: Wire) -> None:
        await wire.send(head(200, CHUNKED) + chunk(SAID))
        await wire.cut()

    way.upstream.expects(script)
    async with way.caller() as (caller, _):
        await caller.sends(request_of(stream=True))
        reply = await caller.reply()
        assert reply.body.startswith(SAID)
        assert not reply.is_whole


def too_large(*, expect: bool) -> Check:
    """A body announced as too long is refused before any of it has come."""

    async def check(way: Way) -> None:
        more = b"Expect: 100-continue\r\n" if expect else b""
        async with way.caller() as (caller, _):
            lines = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + more
            await caller.sends(lines + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1))
            reply = await caller.reply()
            assert (reply.status, reply.is_whole, reply.interim) == (413, True, [])
            assert reply.header("connection") == "close"

    return check


async def too_large_and_sent_all_the_same(way: Way) -> None:
    """A client that sends all of it before it looks finds the answer, not a reset."""
    size = 200 * LIMIT
    async with way.caller() as (caller, _):
        await caller.sends(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size
        )
        for _piece in range(200):
            await caller.sends(b"x" * LIMIT)
        reply = await caller.reply()
        assert (reply.status, reply.is_whole) == (413, True)
        assert await caller.piece() == b""


HALF: dict[str, Check] = {
    **{f"whole {path}": half_closed(path, b"1.1") for path in PATHS},
    **{f"HTTP/1.0 {path}": half_closed(path, b"1.0") for path in PATHS},
    "stream before its head": half_closed_stream(b"1.1", late=False),
    "stream in the middle": half_closed_stream(b"1.1", late=True),
    "HTTP/1.0 stream": half_closed_stream(b"1.0", late=True),
}
GONE: dict[str, Check] = {
    **{f"whole {path}": leaves(path, stream=False) for path in PATHS},
    "stream before its head": leaves(PATHS[0], stream=True),
    "stream in the middle": leaves(PATHS[0], stream=True, late=True),
}
ENDS: dict[str, Check] = {
    f"{'chunks' if headers is CHUNKED else 'length'} {path}": ends_as_it_ended(headers, path)
    for path in PATHS[:2]
    for headers in (CHUNKED, SSE)
}
LARGE: dict[str, Check] = {
    "announced": too_large(expect=False),
    "announced and asked for": too_large(expect=True),
}
ALL = {f"{kind}: {name}": check for kind, checks in (("half", HALF), ("gone", GONE), ("ends", ENDS), ("large", LARGE)) for name, check in checks.items()}  # fmt: skip  # noqa: E501


@pytest.mark.spec("H09")
@pytest.mark.parametrize("name", ALL)
async def test_the_proxy(proxy: Way, name: str) -> None:
    await ALL[name](proxy)


@pytest.mark.spec("H09", "P3")
async def test_the_proxy_cuts_what_was_cut(proxy: Way) -> None:
    await a_cut_is_a_cut(proxy)


@pytest.mark.spec("H09")
async def test_the_proxy_takes_in_what_it_has_refused(proxy: Way) -> None:
    await too_large_and_sent_all_the_same(proxy)


CONTROLS: list[tuple[Fault, Check]] = [
    *[("leaves_at_eof", check) for check in HALF.values()],
    *[("stays_at_eof", check) for check in GONE.values()],
    *[("adds_an_error", check) for name, check in ENDS.items() if name.startswith("chunks")],
    ("ends_cleanly", a_cut_is_a_cut),
    *[("reads_all", check) for check in LARGE.values()],
    ("resets", too_large_and_sent_all_the_same),
]


@pytest.mark.parametrize("at", range(len(CONTROLS)))
async def test_a_broken_relay_is_found_out(at: int) -> None:
    fault, check = CONTROLS[at]
    async with Scripted() as upstream, Broken(upstream.port, fault) as port:
        with pytest.raises((AssertionError, TimeoutError, ConnectionError, asyncio.IncompleteReadError)):
            await check(Way(port, upstream, SHORT_PATIENCE))
        upstream._expected.clear()


@pytest.mark.spec("H09", "P3")
@pytest.mark.parametrize("headers", [CHUNKED, SSE])
async def test_an_answer_that_never_says_it_is_complete_is_kept_as_incomplete(
    line: Line, headers: Headers
) -> None:
    wire = head(200, headers) + chunk(SAID) + b"0\r\n\r\n"
    if headers is SSE:
        wire = head(200, [*SSE, (b"Content-Length", b"%d" % len(SAID))]) + SAID
    line.upstream.expects(once(set_event(), b"", wire))
    reply = await line.asks(post(chat_body(stream=True)))
    assert (reply.is_whole, line.states(reply)) == (True, ["incomplete"])
    row = (await line.rows(reply))[-1]
    assert (row["state"], row["message"]["content"]) == ("incomplete", "Once upon")
    # Its client goes on from it, and the conversation is one.
    said = json.loads(line.upstream.requests[-1].body)["messages"]
    said += [{"role": "assistant", "content": "Once upon"}, {"role": "user", "content": "And then?"}]
    line.upstream.expects(replies(answer_body("A time.")))
    again = await line.asks(post(json.dumps({"model": "test-model", "messages": said}).encode()))
    assert again.header("x-palimpsest-session") == reply.header("x-palimpsest-session")
    assert [row["message"]["content"] for row in await line.rows(again)][1:3] == ["Once upon", "And then?"]


@pytest.mark.spec("H09")
async def test_a_half_closed_exchange_is_recorded_as_any_other(line: Line) -> None:
    released, body = asyncio.Event(), answer_body("Late.")
    rest = head(200, [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]) + body
    line.upstream.expects(once(released, b"", rest))
    async with Way(line.port, line.upstream).caller() as (caller, writer):
        await caller.sends(post(chat_body()))
        writer.write_eof()
        # The interim answer tells that the end of the request was seen.
        assert await caller.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        released.set()
        reply = await caller.reply()
    assert reply.header("connection") == "close"
    assert line.states(reply) == ["done"]


@pytest.mark.spec("H09")
async def test_half_of_a_request_is_none(line: Line) -> None:
    before = len(line.upstream.requests)
    async with Way(line.port, line.upstream).caller() as (caller, writer):
        await caller.sends(post(chat_body())[:-1])
        writer.write_eof()
        assert await caller.piece() == b""
    assert len(line.upstream.requests) == before


@pytest.mark.spec("H09")
async def test_the_sdk_learns_that_its_body_is_too_large(line: Line) -> None:
    url = f"http://127.0.0.1:{line.port}/v1"
    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        said = "x" * 70_000_000
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": said}])
    assert (caught.value.status_code, caught.value.code) == (413, "body_too_large")


@pytest.mark.spec("H07")
async def test_a_body_that_stands_still_is_given_up(line: Line) -> None:
    for path in ("/v1/chat/completions", "/v1/files"):
        async with Way(line.port, line.upstream).caller() as (caller, _):
            await caller.sends(post(b"x" * 100_000, path=path)[:-1])
            reply = await caller.reply()
            assert (reply.status, reply.code) == (408, "request_timeout")


@pytest.mark.spec("H07")
@pytest.mark.parametrize("path", ["/v1/files", "/v1/audio/transcriptions", "/v1/images/edits"])
async def test_what_only_passes_through_may_be_of_any_size(line: Line, path: str) -> None:
    body = bytes(range(256)) * (LIMIT // 256 * 5)
    line.upstream.expects(replies(body))
    kind = (b"Content-Type", b"multipart/form-data; boundary=x")
    reply = await line.asks(post(body, [kind], path=path))
    assert line.upstream.requests[-1].body == body
    assert (reply.status, reply.body) == (200, body)
