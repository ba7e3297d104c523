"""Every way an upstream can fail, and what it is called."""

from __future__ import annotations

import asyncio

import pytest
from palimpsest.errors import UpstreamCut, UpstreamError, UpstreamUnreachable
from palimpsest.upstream.client import UpstreamAnswer

from tests.upstream.asking import at, opened, whole
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
    async with Scripted() as server, opened(server) as upstream:
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
    async with Scripted() as server, opened(server) as upstream:
        body = head(200) + b"data: 1\n\n"
        server.expects(cuts_after(len(body), body), cuts_after(len(body), body, reset=True))
        assert await whole(upstream) == b"data: 1\n\n"
        with pytest.raises((UpstreamCut, UpstreamUnreachable)):
            await whole(upstream)


async def test_idle_time_begins_after_the_first_piece() -> None:
    first = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.send(head(200, [(b"Transfer-Encoding", b"chunked")]))
        await first.wait()
        await wire.send(chunk(b"a") + b"0\r\n\r\n")

    async with Scripted() as server, opened(server, idle_timeout_seconds=0.02) as upstream:
        server.expects(script)
        async with upstream.open("POST", "/", [], b"{}") as answer:
            asyncio.get_running_loop().call_later(0.1, first.set)
            assert await answer.read(10) == b"a"


async def test_read_is_bounded() -> None:
    async with Scripted() as server, opened(server) as upstream:
        server.expects(replies(b"x" * 101))
        async with upstream.open("POST", "/", [], b"{}") as answer:
            with pytest.raises(UpstreamError, match="larger"):
                await answer.read(100)


async def test_bugs_pass_through() -> None:
    async with Scripted() as server, opened(server) as upstream:
        with pytest.raises(ValueError, match="control character"):
            async with upstream.open("POST", "/", [(b"x", b"a\r\nb: c")], b"{}"):
                pass
        with pytest.raises(AttributeError):
            _ = opened(server).session
    with pytest.raises(ValueError, match="base_url"):
        at("ftp://host")


async def test_an_answer_outside_its_block_is_no_answer() -> None:
    async with Scripted() as server, opened(server) as upstream:
        server.expects(stalls_after(head(200, [(b"Content-Length", b"5")]) + b"ab"))
        kept: list[UpstreamAnswer] = []
        async with upstream.open("POST", "/", [], b"{}") as answer:
            kept.append(answer)
        with pytest.raises(UpstreamCut):
            await kept[0].read(10)
