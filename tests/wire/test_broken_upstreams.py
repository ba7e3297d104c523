"""However an upstream breaks, the client hears of it in OpenAI's shape or in the upstream's own words, and
what had come is kept as incomplete (W43).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.wire import Headers, Line, Reply, answer_body, chat_body, event, post, wired
from tests.upstream.scripted import Script, Wire, chunk, cuts_after, head, replies, stalls_after, streams

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("W43")]

Json = dict[str, Any]
JSON_TYPE = (b"Content-Type", b"application/json")
HTML = (b"Content-Type", b"text/html; charset=utf-8")
SSE: Headers = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]
PARTS = [event({"role": "assistant", "content": "Once"}), event({"content": " upon"}), event({}, "stop")]
DONE = b"data: [DONE]\n\n"
# Long enough for a request on a busy machine, short enough to be waited for.
HASTY = {
    "models": [{"match": "*", "window_tokens": 1_000_000}],
    "upstream.connect_timeout_seconds": 0.3,
    "upstream.first_byte_timeout_seconds": 0.5,
    "upstream.idle_timeout_seconds": 0.3,
    "upstream.answer_timeout_seconds": 0.8,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy with little patience."""
    async with wired(tmp_path_factory.mktemp("hasty"), HASTY) as running:
        yield running


async def state(line: Line) -> str:
    """How the newest exchange ended; it may be recorded a moment after the client has heard."""
    for _ in range(500):
        newest = line.query("SELECT state FROM exchanges ORDER BY started_at DESC, id DESC")[0][0]
        if newest != "open":
            return str(newest)
        await asyncio.sleep(0.01)
    return "open"


async def asked(line: Line, script: Script, *, stream: bool = True) -> Reply:
    line.upstream.expects(script)
    return await line.asks(post(chat_body(model="large", stream=stream)))


def last_error(reply: Reply) -> str:
    """The code of the event that tells of the end."""
    tail = reply.body.rpartition(b"data: ")[2]
    error = json.loads(tail)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["code"])


STREAM = head(200, SSE) + b"".join(map(chunk, [*PARTS, DONE])) + b"0\r\n\r\n"
WHOLE = head(200, [JSON_TYPE, (b"Content-Length", b"%d" % len(answer_body()))]) + answer_body()
HEAD = len(head(200, SSE))
UNFINISHED = head(200, SSE) + b"".join(map(chunk, PARTS[:2]))
FINISHED = STREAM.index(b'"finish_reason": "stop"') + len(b'"finish_reason": "stop"}]}\n\n\r\n')


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("at", range(0, len(STREAM) + 1, 23))
async def test_a_stream_that_breaks_at_any_stage(line: Line, at: int, reset: bool) -> None:
    reply = await asked(line, cuts_after(at, STREAM, reset=reset))
    if at <= HEAD or reply.status != 200:
        # Before anything of the answer was there: a status of ours.
        assert at <= HEAD + 5
        assert (reply.status, reply.is_whole) == (502, True)
        assert reply.code in ("upstream_unreachable", "upstream_cut", "upstream_error")
        assert await state(line) == "failed"
        return
    if at >= len(STREAM) - 4:
        # The last chunk is there, or a reset overtakes it.
        assert await state(line) == "done"
        return
    assert not reply.is_whole
    assert last_error(reply) == "upstream_cut"
    rows = await line.rows(reply)
    if at >= FINISHED:
        assert (await state(line), rows[-1]["state"]) == ("done", "live")
    else:
        assert await state(line) in ("incomplete", "failed")
        assert all(row["state"] == "incomplete" for row in rows if row["role"] == "assistant")


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("at", range(0, len(WHOLE), 29))
async def test_a_whole_answer_that_breaks_at_any_stage(line: Line, at: int, reset: bool) -> None:
    reply = await asked(line, cuts_after(at, WHOLE, reset=reset), stream=False)
    assert (reply.status, reply.is_whole) == (502, True)
    assert reply.code in ("upstream_unreachable", "upstream_cut", "upstream_error")
    assert await state(line) == "failed"


GATEWAY = b"<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 403, 404, 413, 500, 502, 503, 504, 520, 524])
async def test_a_gateways_page_is_relayed_with_its_status(line: Line, status: int, stream: bool) -> None:
    reply = await asked(line, replies(GATEWAY, status, [HTML]), stream=stream)
    assert (reply.status, reply.body, reply.header("content-type")) == (status, GATEWAY, HTML[1].decode())
    assert await state(line) == ("rejected" if status < 500 else "failed")


NO_ANSWERS: dict[str, tuple[bytes, tuple[bytes, bytes]]] = {
    "page": (GATEWAY, HTML),
    "cut_json": (answer_body()[:-20], JSON_TYPE),
    "no_type": (answer_body()[:-20], (b"X-Nothing", b"1")),
    "null": (b"null", JSON_TYPE),
    "words": (b"OK", (b"Content-Type", b"text/plain")),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_a_200_that_is_no_answer_is_no_turn(line: Line, name: str, stream: bool) -> None:
    body, kind = NO_ANSWERS[name]
    reply = await asked(line, replies(body, 200, [kind]), stream=stream)
    assert (reply.status, reply.body) == (200, body)
    assert await state(line) == "failed"
    assert [row["role"] for row in await line.rows(line.session_of_newest())] == ["user"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [JSON_TYPE, HTML, SSE[0], (b"X-Nothing", b"1")])
async def test_a_200_with_nothing_in_it_is_a_502(line: Line, kind: tuple[bytes, bytes], stream: bool) -> None:
    reply = await asked(line, replies(b"", 200, [kind]), stream=stream)
    assert (reply.status, reply.is_whole, reply.code) == (502, True, "upstream_cut")
    assert await state(line) == "failed"


REFUSAL = json.dumps({"error": {"message": "Slow down.", "type": "requests", "code": "rate_limit"}}).encode()
LATER = (b"Retry-After", b"7")


@pytest.mark.parametrize("end", ["closed", "reset", "too long"])
@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
async def test_a_refusal_that_breaks_off_keeps_its_status(line: Line, status: int, end: str) -> None:
    said = head(status, [JSON_TYPE, LATER, (b"Content-Length", b"%d" % len(REFUSAL))]) + REFUSAL[:-9]
    script = cuts_after(len(said), said, reset=end == "reset")
    if end == "too long":
        script = replies(b"x" * 5_000_000, status, [HTML, LATER])
    reply = await asked(line, script)
    assert (reply.status, reply.is_whole, reply.header("retry-after")) == (status, True, "7")
    assert reply.header("content-type") == "application/json"
    assert reply.code in ("upstream_cut", "upstream_error")
    assert await state(line) == ("failed" if status in (429, 500, 503) else "rejected")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_how_an_answer_begins_says_more_than_its_type(line: Line, kind: str, stream: bool) -> None:
    types = [(b"Content-Type", kind.encode())]
    is_events = kind == "application/json"
    script = streams([*PARTS, DONE], types) if is_events else replies(answer_body("Once upon"), 200, types)
    reply = await asked(line, script, stream=stream)
    assert (reply.is_whole, reply.header("content-type")) == (True, kind)
    assert await state(line) == "done"
    assert (await line.rows(reply))[-1]["message"]["content"] == "Once upon"


@pytest.mark.parametrize("status", [101, 600, 999])
async def test_a_status_that_nobody_can_be_given_is_a_502(line: Line, status: int) -> None:
    reply = await asked(line, cuts_after(1_000, head(status, [(b"Content-Length", b"1")]) + b"x"))
    assert (reply.status, reply.is_whole, reply.code) == (502, True, "upstream_error")
    assert await state(line) == "failed"


async def test_the_news_of_a_cut_is_an_event_of_its_own(line: Line) -> None:
    broken = head(200, SSE) + chunk(PARTS[0]) + chunk(PARTS[1][:-9])
    reply = await asked(line, cuts_after(len(broken), broken))
    assert last_error(reply) == "upstream_cut"
    assert PARTS[1][:-9] + b"\n\ndata: " in reply.body


async def test_the_last_event_may_lack_its_empty_line(line: Line) -> None:
    reply = await asked(line, streams([*PARTS[:2], PARTS[2].rstrip(b"\n")]))
    assert (reply.is_whole, reply.body) == (True, b"".join(PARTS).rstrip(b"\n"))
    assert await state(line) == "done"
    assert (await line.rows(reply))[-1]["state"] == "live"


async def test_chunks_that_stop_making_sense_end_the_answer_at_once(line: Line) -> None:
    """The connection stays open: nothing but the malformed size says that no more will come."""
    seen = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.send(head(200, SSE) + chunk(PARTS[0]))
        await seen.wait()
        await wire.send(b"zz\r\nnot a size\r\n")
        await wire.stall()

    line.upstream.expects(script)
    async with line.caller() as caller:
        await caller.sends(post(chat_body(model="large", stream=True)))
        await caller.head()
        assert await caller.chunk() == PARTS[0]
        seen.set()
        error = json.loads((await caller.chunk()).removeprefix(b"data: "))["error"]
        assert error["code"] == "upstream_cut"
        assert await caller.piece() == b""
    assert await state(line) == "incomplete"


BAD_HTTP = {
    "not_http": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "bad_status": b"HTTP/1.1 abc OK\r\n\r\n",
    "bad_length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "two_lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "bad_chunk": head(200, SSE) + b"zz\r\nhello\r\n",
    "endless_header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000,
}


@pytest.mark.parametrize("name", BAD_HTTP)
async def test_what_is_not_http_is_a_502(line: Line, name: str) -> None:
    reply = await asked(line, cuts_after(len(BAD_HTTP[name]), BAD_HTTP[name]))
    assert reply.status == 502
    assert reply.code in ("upstream_error", "upstream_cut", "upstream_unreachable")
    assert await state(line) == "failed"


def drips(start: bytes, pieces: list[bytes]) -> Script:
    """A piece every 20 ms, until the other side has had enough."""

    async def script(wire: Wire) -> None:
        try:
            await wire.send(start)
            for piece in pieces:
                await wire.send(piece)
                await asyncio.sleep(0.02)
            await wire.stall()
        except ConnectionError:
            wire.request.gone.set()
            raise

    return script


# Signs of life, four seconds of them.
SIGNS = 200
SLOW_HEAD = [bytes([byte]) for byte in head(200, [(b"X-Slow", b"a" * 400)])[:-4]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "status"),
    [
        pytest.param(stalls_after(b""), 504, id="never_begins"),
        pytest.param(drips(b"", SLOW_HEAD), 504, id="head_drips"),
        pytest.param(stalls_after(head(200, SSE)), 504, id="head_only"),
    ],
)
async def test_an_upstream_that_does_not_begin_is_given_up(
    hasty: Line, script: Script, status: int, stream: bool
) -> None:
    reply = await asked(hasty, script, stream=stream)
    assert (reply.status, reply.code) == (status, "upstream_timeout")
    assert await state(hasty) == "failed"
    await asyncio.wait_for(hasty.upstream.requests[-1].gone.wait(), 10)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(stalls_after(UNFINISHED), id="falls_silent"),
        pytest.param(drips(UNFINISHED, [chunk(b": still here\n\n")] * SIGNS), id="drips"),
    ],
)
async def test_an_upstream_that_does_not_end_is_given_up(hasty: Line, script: Script) -> None:
    reply = await asked(hasty, script)
    assert (reply.status, reply.is_whole) == (200, False)
    assert last_error(reply) == "upstream_timeout"
    assert await state(hasty) == "incomplete"
    assert (await hasty.rows(reply))[-1]["message"]["content"] == "Once upon"
    # Given up long before it had said all that it would have.
    assert reply.body.count(b"still here") < SIGNS
    await asyncio.wait_for(hasty.upstream.requests[-1].gone.wait(), 10)


async def test_nobody_listens(tmp_path_factory: pytest.TempPathFactory) -> None:
    closed = {"upstream.base_url": "http://127.0.0.1:9/v1", "models": HASTY["models"]}
    async with wired(tmp_path_factory.mktemp("closed"), closed) as line:
        reply = await line.asks(post(chat_body()))
        assert (reply.status, reply.code) == (502, "upstream_unreachable")
        assert "127.0.0.1" not in reply.body.decode()
        assert await state(line) == "failed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [b"text/plain", b"application/octet-stream", b"text/html"])
async def test_an_answer_under_a_wrong_type_is_stored_all_the_same(
    line: Line, kind: bytes, stream: bool
) -> None:
    types = [(b"Content-Type", kind)]
    script = streams([*PARTS, DONE], types) if stream else replies(answer_body("Once upon"), 200, types)
    reply = await asked(line, script, stream=stream)
    assert (reply.is_whole, reply.header("content-type")) == (True, kind.decode())
    assert (await line.rows(reply))[-1]["message"]["content"] == "Once upon"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_relayed_and_never_followed(line: Line, status: int) -> None:
    before = len(line.upstream.requests)
    away = [(b"Location", line.upstream.url.encode() + b"/v1/elsewhere")]
    reply = await asked(line, replies(b"moved", status, away))
    assert (reply.status, reply.header("location")) == (status, away[0][1].decode())
    assert len(line.upstream.requests) == before + 1
    assert await state(line) == "failed"
