"""What goes out and what comes back, as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from palimpsest.upstream.client import Upstream, UpstreamOptions

from tests.upstream.asking import options, until, whole
from tests.upstream.scripted import Scripted, Wire, replies, stalls_after


async def test_request_arrives_as_given() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"ok"))
        headers = [
            (b"X-Odd-CASE", b"1"),
            (b"x-twice", b"a"),
            (b"X-Twice", b"b"),
            (b"x-utf8", "é".encode()),
            (b"Accept", b"x/y"),
        ]
        async with upstream.open("POST", "/a%2Fb/c?q=%20+x&y", headers, b'{"a": 1e2}') as answer:
            assert await answer.read(10) == b"ok"
    (request,) = server.requests
    assert request.target == "/v1/a%2Fb/c?q=%20+x&y"
    assert request.body == b'{"a": 1e2}'
    host, *rest = request.headers
    assert host == (b"Host", f"127.0.0.1:{server.port}".encode())
    # Names that differ in case alone are one name, as RFC 9110 has it: the first spelling is used.
    assert rest == [*headers[:2], (b"x-twice", b"b"), *headers[3:], (b"Content-Length", b"10")]


async def test_length_follows_the_body() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"ok"))
        async with upstream.open("POST", "/", [(b"content-length", b"999"), (b"b", b"1")], b"1234") as answer:
            await answer.read(10)
    assert server.requests[0].headers[1:] == [(b"content-length", b"4"), (b"b", b"1")]


async def test_answer_is_relayed_raw() -> None:
    odd = [
        (b"X-A", b"1"),
        (b"x-a", b"2"),
        (b"Content-Encoding", b"gzip"),
        (b"Set-Cookie", b"a=b"),
        (b"SET-cookie", b"c"),
    ]
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"\x1f\x8bnot really gzip", 418, odd))
        async with upstream.open("POST", "/", [], b"{}") as answer:
            assert answer.status == 418
            assert list(answer.headers[:-1]) == odd
            assert await answer.read(100) == b"\x1f\x8bnot really gzip"


async def test_cookies_are_not_kept() -> None:
    async with Scripted() as server:
        # Cookie jars take nothing from a host without a name.
        named = UpstreamOptions(base_url=f"http://localhost:{server.port}")
        async with Upstream(named) as upstream:
            server.always(replies(b"ok", 200, [(b"Set-Cookie", b"a=b; Path=/")]))
            await whole(upstream)
            await whole(upstream)
    assert server.requests[1].header("cookie") is None


async def test_redirect_is_an_answer() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"", 307, [(b"Location", server.url.encode() + b"/elsewhere")]))
        async with upstream.open("POST", "/", [(b"authorization", b"k")], b"{}") as answer:
            assert answer.status == 307
    assert len(server.requests) == 1


async def test_head_and_204_have_no_body() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"12345"), replies(b"", 204))
        assert await whole(upstream, "HEAD", "/models", b"") == b""
        assert await whole(upstream, "DELETE", "/x", b"") == b""
    assert server.connections == 1


async def test_base_url_query_is_added() -> None:
    async with Scripted() as server:
        azure = UpstreamOptions(base_url=server.url + "/openai/deployments/d?api-version=2024-10-21")
        async with Upstream(azure) as upstream:
            server.always(replies(b"ok"))
            await whole(upstream, path="/chat")
            await whole(upstream, path="/chat?a=b")
    assert [request.target for request in server.requests] == [
        "/openai/deployments/d/chat?api-version=2024-10-21",
        "/openai/deployments/d/chat?a=b&api-version=2024-10-21",
    ]


@pytest.mark.parametrize("path", ["@127.0.0.2/", "http://127.0.0.2/", ".evil.example/", ""])
async def test_path_cannot_leave_the_host(path: str) -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        with pytest.raises(ValueError, match="slash"):
            await whole(upstream, path=path)
    assert server.requests == []


@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
async def test_large_bodies_both_ways(size: int) -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"z" * size))
        async with upstream.open("POST", "/", [], b"y" * size) as answer:
            assert len(await answer.read(4_000_000)) == size
    assert len(server.requests[0].body) == size


async def test_upload_streams_while_it_arrives() -> None:
    seen = asyncio.Event()

    async def upload() -> AsyncIterator[bytes]:
        yield b"first"
        await seen.wait()
        yield b""
        yield b"second"

    async def script(wire: Wire) -> None:
        seen.set()
        await wire.until(b"second\r\n0\r\n\r\n")
        await replies(b"ok")(wire)

    async with Scripted(reads_bodies=False) as server, Upstream(options(server)) as upstream:
        server.expects(script)
        async with upstream.open("POST", "/files", [], upload()) as answer:
            assert await answer.read(10) == b"ok"
    assert seen.is_set()


@pytest.mark.spec("H07")
async def test_an_upload_may_take_longer_than_all_that_is_waited_for_together() -> None:
    """For a connection, and for the answer that begins once the upload has ended."""
    hasty = {"queue_seconds": 0.1, "connect_seconds": 0.1, "first_byte_seconds": 0.1}

    async def upload() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x"
            await asyncio.sleep(0.01)

    async with Scripted() as server, Upstream(options(server, **hasty)) as upstream:
        server.expects(replies(b"ok"))
        async with upstream.open("POST", "/files", [], upload()) as answer:
            assert await answer.read(10) == b"ok"
    assert server.requests[0].body == b"x" * 40


@pytest.mark.parametrize("framing", [[], [(b"Content-Length", b"11")]])
async def test_uploads_keep_their_framing(framing: list[tuple[bytes, bytes]]) -> None:
    async def upload() -> AsyncIterator[bytes]:
        yield b"first"
        yield b"second"

    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"ok"))
        async with upstream.open("POST", "/files", framing, upload()) as answer:
            await answer.read(10)
    (request,) = server.requests
    assert request.body == b"firstsecond"
    assert request.header("transfer-encoding") == (None if framing else "chunked")


class ClientLeft(Exception):
    pass


async def test_a_failing_upload_is_the_clients_fault() -> None:
    async def upload() -> AsyncIterator[bytes]:
        yield b"first"
        raise ClientLeft

    async with Scripted(reads_bodies=False) as server, Upstream(options(server)) as upstream:
        server.expects(stalls_after(b""))
        with pytest.raises(ClientLeft):
            async with upstream.open("POST", "/files", [], upload()):
                pass
        await until((await server.arrived(1)).gone)


async def test_a_short_upload_is_not_a_whole_one() -> None:
    async def upload() -> AsyncIterator[bytes]:
        yield b"first"

    async with Scripted(reads_bodies=False) as server, Upstream(options(server)) as upstream:
        server.expects(stalls_after(b""))
        with pytest.raises(ValueError, match="5 bytes"):
            async with upstream.open("POST", "/files", [(b"content-length", b"11")], upload()):
                pass
        await until((await server.arrived(1)).gone)


async def test_long_answer_headers_pass() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"ok", 200, [(b"Content-Security-Policy", b"x" * 40_000)]))
        assert await whole(upstream) == b"ok"


async def test_extra_headers_follow() -> None:
    async with Scripted() as server:
        extra = options(server, extra_headers=((b"X-Team", b"blue"),))
        async with Upstream(extra) as upstream:
            server.expects(replies(b"ok"))
            await whole(upstream)
    assert server.requests[0].header("x-team") == "blue"
