"""Whoever leaves or falls silent, the other side learns of it and what was said is kept (P3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from palimpsest.proxy.answering.delivery import Delivery
from palimpsest.proxy.answering.relay import Relay

from tests.kit.wire import Line, Reply, answer_body, chat_body, event, post, wired
from tests.upstream.scripted import Wire, chunk, head, replies, stalls_after

CHUNKED = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]
SAID = event({"role": "assistant", "content": "Once upon"})
SILENT_AFTER = {"upstream.idle_timeout_seconds": 0.2, "upstream.first_byte_timeout_seconds": 0.2}
MEGABYTE = 2**20


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Returns once it holds; each look is a round trip of its own."""
    async with asyncio.timeout(20):
        while not await true():
            pass


async def ends(line: Line, states: list[str]) -> None:
    """The newest session's exchanges have ended so; a record may still be on its way when a client left."""

    async def ended() -> bool:
        await line.http.get("/healthz")
        found = line.query("SELECT state FROM exchanges ORDER BY started_at, id")
        return [state for (state,) in found] == states

    await eventually(ended)


@pytest.mark.spec("P3")
@pytest.mark.spec("F26")
async def test_a_client_that_leaves_a_stream_ends_it_upstream(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(stalls_after(head(200, CHUNKED) + chunk(SAID)))
        async with line.caller() as caller:
            await caller.sends(post(chat_body(stream=True)))
            reply = await caller.head()
            await caller.until(SAID)
            await caller.leaves()
        async with asyncio.timeout(20):
            await line.upstream.requests[0].gone.wait()
        await ends(line, ["incomplete"])
        row = (await line.rows(reply))[-1]
        assert (row["state"], row["message"]["content"]) == ("incomplete", "Once upon")


@pytest.mark.spec("P3", "F26")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_while_it_waits_ends_the_request_upstream(
    tmp_path: Path, stream: bool
) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(stalls_after(b""))
        async with line.caller() as caller:
            await caller.sends(post(chat_body("waited for", stream=stream)))
            request = await line.upstream.arrived(1)
            await caller.leaves()
        async with asyncio.timeout(20):
            await request.gone.wait()
        await ends(line, ["failed"])
        rows = await line.rows(line.session_of_newest())
        assert [(row["role"], row["message"]["content"]) for row in rows] == [("user", "waited for")]
        line.upstream.expects(replies(answer_body()))
        again = await line.asks(post(chat_body("waited for")))
        assert again.header("x-palimpsest-mode") == "full; found=retry"


@pytest.mark.spec("P3")
async def test_a_client_that_leaves_in_the_middle_of_a_whole_answer(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(stalls_after(head(200, [(b"Content-Length", b"100")]) + b'{"ch'))
        async with line.caller() as caller:
            await caller.sends(post(chat_body()))
            request = await line.upstream.arrived(1)
            await caller.leaves()
        async with asyncio.timeout(20):
            await request.gone.wait()
        await ends(line, ["failed"])


@pytest.mark.spec("P3")
@pytest.mark.parametrize(("where", "step"), [(Delivery, "_opening"), (Delivery, "_headers"), (Relay, "body")])
async def test_an_exchange_that_a_bug_ends_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: type[object], step: str
) -> None:
    async with wired(tmp_path) as line:
        with monkeypatch.context() as broken:
            broken.setattr(where, step, None)
            line.upstream.expects(replies(answer_body()))
            reply = await line.asks(post(chat_body("kept")))
        assert (reply.status, reply.code) == (500, "internal_error")
        await ends(line, ["failed"])
        assert line.query("SELECT code, cause FROM exchanges") == [("internal_error", "proxy")]
        line.upstream.always(replies(answer_body()))
        again = await line.asks(post(chat_body("kept")))
        assert again.header("x-palimpsest-mode") == "full; found=retry"
        await ends(line, ["failed", "done"])


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_client_that_leaves_a_passed_request(tmp_path: Path, method: str) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(stalls_after(b""))
        async with line.caller() as caller:
            await caller.sends(post(b"{}", path="/v1/responses").replace(b"POST", method.encode(), 1))
            request = await line.upstream.arrived(1)
            await caller.leaves()
        async with asyncio.timeout(20):
            await request.gone.wait()


async def test_a_client_that_leaves_after_a_long_upload(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(stalls_after(b""))
        async with line.caller() as caller:
            await caller.sends(post(b"x" * MEGABYTE, path="/v1/files"))
            request = await line.upstream.arrived(1)
            await eventually(lambda: arrived_whole(line))
            await caller.leaves()
        async with asyncio.timeout(20):
            await request.gone.wait()


async def arrived_whole(line: Line) -> bool:
    await line.http.get("/healthz")
    return len(line.upstream.requests[0].body) == MEGABYTE


async def test_a_client_that_leaves_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(stalls_after(b""))
        async with line.caller() as caller:
            await caller.sends(post(b"x" * MEGABYTE, path="/v1/files")[: MEGABYTE // 2])
            await line.upstream.arrived(1)
            await caller.leaves()
        await line.upstream.settled(0)


@pytest.mark.spec("P3")
async def test_a_stream_that_falls_silent_is_ended(tmp_path: Path) -> None:
    async with wired(tmp_path, SILENT_AFTER) as line:
        line.upstream.expects(stalls_after(head(200, CHUNKED) + chunk(SAID)))
        reply = await line.asks(post(chat_body(stream=True)))
        assert not reply.is_whole
        assert json.loads(reply.body.removeprefix(SAID + b"data: "))["error"]["code"] == "upstream_timeout"
        row = (await line.rows(reply))[-1]
        assert (row["state"], row["message"]["content"]) == ("incomplete", "Once upon")


async def test_an_upstream_that_never_begins_is_a_504(tmp_path: Path) -> None:
    async with wired(tmp_path, SILENT_AFTER) as line:
        line.upstream.expects(stalls_after(b""))
        reply = await line.asks(post(chat_body()))
        assert (reply.status, reply.code) == (504, "upstream_timeout")
        await ends(line, ["failed"])


class Flood:
    """A stream of many megabytes; `sent` counts what the upstream got rid of."""

    def __init__(self, megabytes: int) -> None:
        self.sent = 0
        self._megabytes = megabytes
        self._piece = b": " + b"x" * (MEGABYTE // 4) + b"\n\n"
        self.began = asyncio.Event()

    async def __call__(self, wire: Wire) -> None:
        await wire.send(head(200, CHUNKED))
        for _ in range(4 * self._megabytes):
            await wire.send(chunk(self._piece))
            self.sent += 1
            self.began.set()
        await wire.send(chunk(event({}, "stop")) + b"0\r\n\r\n")

    @property
    def megabytes(self) -> float:
        return self.sent * len(self._piece) / MEGABYTE


async def test_a_slow_reader_slows_the_upstream_down(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        flood = Flood(28)
        line.upstream.expects(flood)
        async with line.caller(window=65536) as caller:
            await caller.sends(post(chat_body(stream=True)))
            await flood.began.wait()
            # The clock: as many whole exchanges as would have moved the flood many times over.
            for _ in range(30):
                line.upstream.expects(replies(b"x" * (MEGABYTE // 2)))
                await line.http.get("/v1/files/1/content")
            assert flood.megabytes < 16
            reply = await caller.reply()
        assert reply.is_whole
        assert len(reply.body) > 28 * MEGABYTE


async def test_a_quick_reader_would_have_had_it_all(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        flood = Flood(28)
        line.upstream.expects(flood)
        reading = asyncio.ensure_future(line.asks(post(chat_body(stream=True))))
        await flood.began.wait()
        for _ in range(30):
            line.upstream.expects(replies(b"x" * (MEGABYTE // 2)))
            await line.http.get("/v1/files/1/content")
        assert flood.megabytes > 16
        reply: Reply = await reading
        assert reply.is_whole
