"""Connections: shared, closed, found dead, and hung up on by the thousand."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from palimpsest.errors import UpstreamTimeout, UpstreamUnreachable
from palimpsest.upstream.client import Upstream

from tests.upstream.asking import at, opened, until, whole
from tests.upstream.scripted import Scripted, Wire, chunk, cuts_after, head, replies, stalls_after


@pytest.mark.parametrize("streamed", [True, False])
async def test_leaving_early_closes_the_connection(streamed: bool) -> None:
    start = head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"data: 1\n\n")
    async with Scripted() as server, opened(server) as upstream:
        server.expects(stalls_after(start if streamed else b""), replies(b"ok"))
        task = asyncio.create_task(whole(upstream))
        request = await server.arrived(1)
        task.cancel()
        await asyncio.wait([task])
        await until(request.gone)
        assert await whole(upstream) == b"ok"
    assert server.connections == 2


async def test_a_full_pool_ends_in_a_timeout() -> None:
    tight = {"max_connections": 1, "queue_seconds": 0.05, "connect_timeout_seconds": 0.05}
    async with Scripted() as server, opened(server, **tight) as upstream:
        server.expects(stalls_after(head(200, [(b"Transfer-Encoding", b"chunked")])), replies(b"ok"))
        async with upstream.open("POST", "/", [], b"{}"):
            with pytest.raises(UpstreamTimeout):
                await whole(upstream)
        assert await whole(upstream) == b"ok"


async def idle_then_closed(server: Scripted, upstream: Upstream) -> None:
    """One answered request; then the server closes the idle connection, unseen by this loop so far."""
    server.expects(replies(b"warm"))
    await whole(upstream)
    await server.close_idle()


async def test_a_connection_closed_while_idle_costs_nothing() -> None:
    async with Scripted() as server, opened(server) as upstream:
        await idle_then_closed(server, upstream)
        server.expects(replies(b"ok"))
        assert await whole(upstream) == b"ok"
    assert [request.connection for request in server.requests] == [1, 2]


async def test_a_post_that_was_read_is_not_sent_twice() -> None:
    async with Scripted() as server, opened(server) as upstream:
        server.expects(replies(b"warm"), cuts_after(0, b""))
        await whole(upstream)
        with pytest.raises(UpstreamUnreachable):
            await whole(upstream)
    assert len(server.requests) == 2


async def test_a_get_is_repeated_once() -> None:
    async with Scripted() as server, opened(server) as upstream:
        server.expects(replies(b"warm"), cuts_after(0, b""), replies(b"ok"))
        await whole(upstream)
        assert await whole(upstream, "GET", "/models", b"") == b"ok"
        server.expects(cuts_after(0, b""), cuts_after(0, b""))
        with pytest.raises(UpstreamUnreachable):
            await whole(upstream, "GET", "/models", b"")


async def test_a_thousand_hang_ups_leave_the_pool_alive() -> None:
    async def slow(wire: Wire) -> None:
        if wire.request.target.endswith("/slow"):
            await wire.send(head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"data: 1\n\n"))
            await wire.stall()
        else:
            await replies(b"ok")(wire)

    async with Scripted() as server, opened(server, max_connections=10) as upstream:
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
        password = f"http://u:secret@127.0.0.1:{proxy.port}"
        async with at("http://upstream.invalid/v1", proxy_url=password) as upstream:
            assert await whole(upstream) == b"ok"
    assert proxy.requests[0].target == "http://upstream.invalid/v1/chat"
    assert proxy.requests[0].header("proxy-authorization") == "Basic dTpzZWNyZXQ="
    async with at("http://upstream.invalid/v1", proxy_url=password) as upstream:
        with pytest.raises(UpstreamUnreachable) as failure:
            await whole(upstream)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("exempt", [True, False])
async def test_the_environments_proxy_counts_if_asked(monkeypatch: pytest.MonkeyPatch, exempt: bool) -> None:
    async with Scripted() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "exempt.invalid,127.0.0.9" if exempt else "")
        proxy.always(replies(b"ok"))
        host = "http://exempt.invalid" if exempt else "http://other.invalid"
        for asked in (True, False):
            async with at(host, trust_env=asked) as upstream:
                if asked and not exempt:
                    assert await whole(upstream) == b"ok"
                else:
                    with pytest.raises(UpstreamUnreachable):
                        await whole(upstream)
    assert len(proxy.requests) == (0 if exempt else 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_this_machine_is_never_behind_a_proxy(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "")
    async with Scripted() as server, at(f"http://{host}:{server.port}", trust_env=True) as upstream:
        server.expects(replies(b"ok"))
        assert await whole(upstream) == b"ok"


async def test_a_connection_that_breaks_while_idle_breaks_nothing() -> None:
    """Nobody waits for it any more: its failure is nobody's to log."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    begun, answered = asyncio.Event(), asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.send(head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"o"))
        await begun.wait()
        await wire.send(chunk(b"ne") + b"0\r\n\r\n")
        await answered.wait()
        await wire.reset()

    async with Scripted() as server, opened(server) as upstream:
        server.expects(script, replies(b"two"))
        async with upstream.open("POST", "/", [], b"{}") as answer:
            assert await answer.first() == b"o"
            begun.set()
            assert await answer.read(10) == b"one"
        del answer
        answered.set()
        await server.settled(0)
        assert await whole(upstream) == b"two"
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []
