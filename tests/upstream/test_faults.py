"""Every way an upstream can fail, and what it is called."""

from __future__ import annotations

import asyncio

import pytest
from palimpsest.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from palimpsest.upstream.client import Upstream, UpstreamAnswer, UpstreamOptions

from tests.upstream.asking import options, until, whole
from tests.upstream.scripted import Scripted, Wire, chunk, cuts_after, head, replies, stalls_after

WHOLE = head(200, [(b"Content-Length", b"20")]) + b"x" * 20


CHUNKED = (
    head(200, [(b"Transfer-Encoding", b"chunked")])
    + chunk(b"data: 1\n\n")
    + chunk(b"data: 2\n\n")
    + b"0\r\n\r\n"
)


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("wire_bytes", [WHOLE, CHUNKED], ids=["length", "chunked"])
async def test_every_cut_is_seen(wire_bytes: bytes, reset: bool) -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        for count in range(len(wire_bytes)):
            server.expects(cuts_after(count, wire_bytes, reset=reset))
            with pytest.raises(UpstreamError) as failure:
                await whole(upstream)
            in_body = count >= wire_bytes.index(b"\r\n\r\n") + 4
            if in_body and not reset:
                assert type(failure.value) is UpstreamCut
            else:
                assert type(failure.value) in (UpstreamCut, UpstreamUnreachable, UpstreamError)
            assert len(server.requests) == count + 1, "a POST was sent twice"
        server.expects(cuts_after(len(wire_bytes), wire_bytes))
        await whole(upstream)


async def test_a_reset_is_seen_without_a_length() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        body = head(200) + b"data: 1\n\n"
        server.expects(cuts_after(len(body), body), cuts_after(len(body), body, reset=True))
        assert await whole(upstream) == b"data: 1\n\n"
        with pytest.raises((UpstreamCut, UpstreamUnreachable)):
            await whole(upstream)


async def test_what_came_before_the_cut_is_delivered() -> None:
    got = b""

    async def relay(upstream: Upstream) -> None:
        nonlocal got
        async with upstream.open("POST", "/", [], b"{}") as answer:
            async for piece in answer.chunks():
                got += piece

    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(cuts_after(len(CHUNKED) - 5, CHUNKED))
        with pytest.raises(UpstreamCut):
            await relay(upstream)
    assert got == b"data: 1\n\ndata: 2\n\n"


async def test_nobody_listens() -> None:
    async with Scripted() as server:
        gone = options(server)
    async with Upstream(gone) as upstream:
        with pytest.raises(UpstreamUnreachable):
            await whole(upstream)


@pytest.mark.parametrize(
    ("start", "patience"),
    [
        (b"", {"first_byte_seconds": 0.05}),
        (head(200, [(b"Transfer-Encoding", b"chunked")]), {"first_byte_seconds": 0.05}),
        (head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"a"), {"idle_seconds": 0.05}),
    ],
    ids=["head", "first byte", "idle"],
)
async def test_silence_ends(start: bytes, patience: dict[str, float]) -> None:
    async with Scripted() as server, Upstream(options(server, **patience)) as upstream:
        server.expects(stalls_after(start))
        with pytest.raises(UpstreamTimeout):
            await whole(upstream)
        await until((await server.arrived(1)).gone)


async def test_idle_time_begins_after_the_first_piece() -> None:
    first = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.send(head(200, [(b"Transfer-Encoding", b"chunked")]))
        await first.wait()
        await wire.send(chunk(b"a") + b"0\r\n\r\n")

    async with Scripted() as server, Upstream(options(server, idle_seconds=0.02)) as upstream:
        server.expects(script)
        async with upstream.open("POST", "/", [], b"{}") as answer:
            asyncio.get_running_loop().call_later(0.1, first.set)
            assert await answer.read(10) == b"a"


async def test_nonsense_is_not_an_answer() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(cuts_after(100, b"SSH-2.0-OpenSSH_9.9\r\n"))
        with pytest.raises(UpstreamError):
            await whole(upstream)


async def test_read_is_bounded() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"x" * 101))
        async with upstream.open("POST", "/", [], b"{}") as answer:
            with pytest.raises(UpstreamError, match="larger"):
                await answer.read(100)


async def test_bugs_pass_through() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        with pytest.raises(ValueError, match="control character"):
            async with upstream.open("POST", "/", [(b"x", b"a\r\nb: c")], b"{}"):
                pass
        with pytest.raises(RuntimeError, match="not open"):
            _ = Upstream(options(server)).session
    with pytest.raises(ValueError, match="base_url"):
        Upstream(UpstreamOptions(base_url="ftp://host"))


async def test_an_answer_outside_its_block_is_no_answer() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(stalls_after(head(200, [(b"Content-Length", b"5")]) + b"ab"))
        kept: list[UpstreamAnswer] = []
        async with upstream.open("POST", "/", [], b"{}") as answer:
            kept.append(answer)
        with pytest.raises(UpstreamCut):
            await kept[0].read(10)


CHUNKING = head(200, [(b"Transfer-Encoding", b"chunked")])


async def test_a_malformed_chunk_ends_an_answer_at_once() -> None:
    """Nobody else would wake the reader: the library has stopped its timer by then."""
    second = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.send(CHUNKING + chunk(b"ab"))
        await second.wait()
        await wire.send(b"zz\r\n")
        await wire.stall()

    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(script)
        async with upstream.open("POST", "/", [], b"{}") as answer:
            assert await answer.first() == b"ab"
            second.set()
            with pytest.raises(UpstreamCut):
                async with asyncio.timeout(10):
                    await answer.read(10)


@pytest.mark.parametrize(
    ("start", "patience"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", {"first_byte_seconds": 0.2}),
        (CHUNKING + b"fffff\r\n", {"answer_seconds": 0.2}),
    ],
    ids=["head", "body"],
)
async def test_an_answer_that_drips_is_bounded(start: bytes, patience: dict[str, float]) -> None:
    async def drips(wire: Wire) -> None:
        await wire.send(start)
        try:
            for _ in range(1_000):
                await wire.send(b"a")
                await asyncio.sleep(0.01)
        except ConnectionError:
            wire.request.gone.set()
            raise

    async with Scripted() as server, Upstream(options(server, **patience)) as upstream:
        server.expects(drips)
        with pytest.raises(UpstreamTimeout):
            await whole(upstream)
        await until((await server.arrived(1)).gone)
