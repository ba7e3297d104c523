from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.errors import UpstreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from app.upstream.client import Answer, Upstream, UpstreamOptions
from tests.upstream.scripted import (
    Scripted,
    Wire,
    chunk,
    cuts_after,
    head,
    replies,
    stalls_after,
    streams,
)

SSE = [b"data: %d\n\n" % n for n in range(50)]
JSON = [(b"Content-Type", b"application/json")]


def options(server: Scripted, **changes: object) -> UpstreamOptions:
    return UpstreamOptions(base_url=server.url + "/v1", **changes)  # type: ignore[arg-type]


async def whole(upstream: Upstream, method: str = "POST", path: str = "/chat", body: bytes = b"{}") -> bytes:
    async with upstream.open(method, path, JSON, body or None) as answer:
        return await answer.read(1_000_000)


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), 10)


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
        server.expects(replies(b"\x1f\x8bnot really gzip", 418, odd), replies(b"second"))
        async with upstream.open("POST", "/", [], b"{}") as answer:
            assert answer.status == 418
            assert list(answer.headers[:-1]) == odd
            assert await answer.read(100) == b"\x1f\x8bnot really gzip"
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


async def test_finished_answers_share_a_connection() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.always(streams(SSE))
        for _ in range(5):
            assert await whole(upstream) == b"".join(SSE)
    assert server.connections == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_leaving_early_closes_the_connection(streamed: bool) -> None:
    start = head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"data: 1\n\n")
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(stalls_after(start if streamed else b""), replies(b"ok"))
        task = asyncio.create_task(whole(upstream))
        request = await server.arrived(1)
        task.cancel()
        await asyncio.wait([task])
        await until(request.gone)
        assert await whole(upstream) == b"ok"
    assert server.connections == 2


async def test_breaking_out_of_a_stream_closes_the_connection() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(stalls_after(head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"data: 1\n\n")))
        async with upstream.open("POST", "/", [], b"{}") as answer:
            async for piece in answer.chunks():
                assert piece == b"data: 1\n\n"
                break
        await until((await server.arrived(1)).gone)


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


async def test_a_full_pool_ends_in_a_timeout() -> None:
    tight = {"connections": 1, "queue_seconds": 0.05, "connect_seconds": 0.05}
    async with Scripted() as server, Upstream(options(server, **tight)) as upstream:
        server.expects(stalls_after(head(200, [(b"Transfer-Encoding", b"chunked")])), replies(b"ok"))
        async with upstream.open("POST", "/", [], b"{}"):
            with pytest.raises(UpstreamTimeout):
                await whole(upstream)
        assert await whole(upstream) == b"ok"


async def test_nonsense_is_not_an_answer() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(cuts_after(100, b"SSH-2.0-OpenSSH_9.9\r\n"))
        with pytest.raises(UpstreamError):
            await whole(upstream)


async def test_long_answer_headers_pass() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"ok", 200, [(b"Content-Security-Policy", b"x" * 40_000)]))
        assert await whole(upstream) == b"ok"


async def test_read_is_bounded() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"x" * 101))
        async with upstream.open("POST", "/", [], b"{}") as answer:
            with pytest.raises(UpstreamError, match="larger"):
                await answer.read(100)


async def test_extra_headers_follow() -> None:
    async with Scripted() as server:
        extra = options(server, extra_headers=((b"X-Team", b"blue"),))
        async with Upstream(extra) as upstream:
            server.expects(replies(b"ok"))
            await whole(upstream)
    assert server.requests[0].header("x-team") == "blue"


async def test_bugs_pass_through() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        with pytest.raises(ValueError, match="control character"):
            async with upstream.open("POST", "/", [(b"x", b"a\r\nb: c")], b"{}"):
                pass
        with pytest.raises(RuntimeError, match="not open"):
            _ = Upstream(options(server)).session
    with pytest.raises(ValueError, match="base_url"):
        Upstream(UpstreamOptions(base_url="ftp://host"))


# A pooled connection that the upstream has closed.


async def idle_then_closed(server: Scripted, upstream: Upstream) -> None:
    """One answered request; then the server closes the idle connection, unseen by this loop so far."""
    server.expects(replies(b"warm"))
    await whole(upstream)
    await server.close_idle()


async def test_a_connection_closed_while_idle_costs_nothing() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        await idle_then_closed(server, upstream)
        server.expects(replies(b"ok"))
        assert await whole(upstream) == b"ok"
    assert [request.connection for request in server.requests] == [1, 2]


async def test_a_post_that_was_read_is_not_sent_twice() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"warm"), cuts_after(0, b""))
        await whole(upstream)
        with pytest.raises(UpstreamUnreachable):
            await whole(upstream)
    assert len(server.requests) == 2


async def test_a_get_is_repeated_once() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(replies(b"warm"), cuts_after(0, b""), replies(b"ok"))
        await whole(upstream)
        assert await whole(upstream, "GET", "/models", b"") == b"ok"
        server.expects(cuts_after(0, b""), cuts_after(0, b""))
        with pytest.raises(UpstreamUnreachable):
            await whole(upstream, "GET", "/models", b"")


# Storms.


async def test_a_thousand_hang_ups_leave_the_pool_alive() -> None:
    async def slow(wire: Wire) -> None:
        if wire.request.target.endswith("/slow"):
            await wire.send(head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"data: 1\n\n"))
            await wire.stall()
        else:
            await replies(b"ok")(wire)

    async with Scripted() as server, Upstream(options(server, connections=10)) as upstream:
        server.always(slow)
        for round_ in range(50):
            tasks = [asyncio.create_task(whole(upstream, path="/slow")) for _ in range(20)]
            for turn in range(20):
                # Some are cancelled while they wait for a place, some while connecting, some in mid-answer.
                tasks[(turn * 7 + round_) % 20].cancel()
                await asyncio.sleep(0)
            await asyncio.wait(tasks)
        assert await asyncio.gather(*[whole(upstream) for _ in range(20)]) == [b"ok"] * 20
        connector = upstream.session.connector
        assert connector is not None
        assert len(connector._acquired) == 0
        await server.settled(10)


async def test_a_proxy_is_used_and_its_password_is_never_told(tmp_path: Path) -> None:
    async with Scripted() as proxy:
        proxy.expects(replies(b"ok"))
        through = UpstreamOptions(
            base_url="http://upstream.invalid/v1", proxy=f"http://u:secret@127.0.0.1:{proxy.port}"
        )
        async with Upstream(through) as upstream:
            assert await whole(upstream) == b"ok"
    assert proxy.requests[0].target == "http://upstream.invalid/v1/chat"
    assert proxy.requests[0].header("proxy-authorization") == "Basic dTpzZWNyZXQ="
    async with Upstream(through) as upstream:
        with pytest.raises(UpstreamUnreachable) as failure:
            await whole(upstream)
    assert "secret" not in str(failure.value)


async def test_an_answer_outside_its_block_is_no_answer() -> None:
    async with Scripted() as server, Upstream(options(server)) as upstream:
        server.expects(stalls_after(head(200, [(b"Content-Length", b"5")]) + b"ab"))
        kept: list[Answer] = []
        async with upstream.open("POST", "/", [], b"{}") as answer:
            kept.append(answer)
        with pytest.raises(UpstreamCut):
            await kept[0].read(10)
