"""What goes out and what comes back, as bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.upstream.asking import at, opened, until, whole
from tests.upstream.scripted import Scripted, replies, stalls_after


async def test_request_arrives_as_given() -> None:
    async with Scripted() as server, opened(server) as upstream:
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


async def test_cookies_are_not_kept() -> None:
    # Cookie jars take nothing from a host without a name.
    async with Scripted() as server, at(f"http://localhost:{server.port}") as upstream:
        server.always(replies(b"ok", 200, [(b"Set-Cookie", b"a=b; Path=/")]))
        await whole(upstream)
        await whole(upstream)
    assert server.requests[1].header("cookie") is None


@pytest.mark.parametrize("path", ["@127.0.0.2/", "http://127.0.0.2/", ".evil.example/", ""])
async def test_path_cannot_leave_the_host(path: str) -> None:
    async with Scripted() as server, opened(server) as upstream:
        with pytest.raises(ValueError, match="slash"):
            await whole(upstream, path=path)
    assert server.requests == []


@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
async def test_large_bodies_both_ways(size: int) -> None:
    async with Scripted() as server, opened(server) as upstream:
        server.expects(replies(b"z" * size))
        async with upstream.open("POST", "/", [], b"y" * size) as answer:
            assert len(await answer.read(4_000_000)) == size
    assert len(server.requests[0].body) == size


class ClientLeft(Exception):
    pass


async def test_a_failing_upload_is_the_clients_fault() -> None:
    async def upload() -> AsyncIterator[bytes]:
        yield b"first"
        raise ClientLeft

    async with Scripted(reads_bodies=False) as server, opened(server) as upstream:
        server.expects(stalls_after(b""))
        with pytest.raises(ClientLeft):
            async with upstream.open("POST", "/files", [], upload()):
                pass
        await until((await server.arrived(1)).gone)


async def test_a_short_upload_is_not_a_whole_one() -> None:
    async def upload() -> AsyncIterator[bytes]:
        yield b"first"

    async with Scripted(reads_bodies=False) as server, opened(server) as upstream:
        server.expects(stalls_after(b""))
        with pytest.raises(ValueError, match="5 bytes"):
            async with upstream.open("POST", "/files", [(b"content-length", b"11")], upload()):
                pass
        await until((await server.arrived(1)).gone)


async def test_long_answer_headers_pass() -> None:
    async with Scripted() as server, opened(server) as upstream:
        server.expects(replies(b"ok", 200, [(b"Content-Security-Policy", b"x" * 40_000)]))
        assert await whole(upstream) == b"ok"
