"""However an upstream breaks, a client of the Responses API hears of it in its own events, or with the
upstream's status, and what had come is kept as incomplete (W43).
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from tests.kit.responses import text_item
from tests.kit.wire import Headers, Line, Reply, post
from tests.upstream.scripted import Script, chunk, cuts_after, head, replies, streams

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("W43")]

Json = dict[str, Any]
JSON_TYPE = (b"Content-Type", b"application/json")
SSE: Headers = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]
ITEM = text_item("Once upon")
ENDED = {"id": "resp_1", "object": "response", "status": "completed", "output": [ITEM], "error": None}


def event(kind: str, **fields: Any) -> bytes:
    told = json.dumps({"type": kind, **fields}).encode()
    return b"event: " + kind.encode() + b"\ndata: " + told + b"\n\n"


def said(text: str) -> bytes:
    return event("response.output_text.delta", output_index=0, item_id="msg_1", content_index=0, delta=text)


PARTS = [
    event("response.created", response={**ENDED, "status": "in_progress", "output": []}),
    said("Once"),
    said(" upon"),
    event("response.output_item.done", output_index=0, item=ITEM),
    event("response.completed", response=ENDED),
]
STREAM = head(200, SSE) + b"".join(map(chunk, PARTS)) + b"0\r\n\r\n"
HEAD = len(head(200, SSE))
# Where the first words, and the end, have come.
SPOKEN = HEAD + len(chunk(PARTS[0])) + len(chunk(PARTS[1]))
FINISHED = len(STREAM) - len(b"\r\n0\r\n\r\n")


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
    body = json.dumps({"model": "large", "input": f"Tell me {uuid.uuid4()}.", "stream": stream}).encode()
    return await line.asks(post(body, path="/v1/responses"))


async def answers(line: Line, reply: Reply) -> list[Json]:
    return [row for row in await line.rows(reply) if row["role"] == "assistant"]


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("at", range(0, len(STREAM), 71))
async def test_a_stream_that_breaks_at_any_stage(line: Line, at: int, reset: bool) -> None:
    reply = await asked(line, cuts_after(at, STREAM, reset=reset))
    if reply.status != 200:
        assert at <= HEAD + 5
        assert (reply.status, reply.is_whole) == (502, True)
        assert reply.code in ("upstream_unreachable", "upstream_cut", "upstream_error")
        assert await state(line) == "failed"
        return
    assert not reply.is_whole
    told = json.loads(reply.body.rpartition(b"data: ")[2])
    assert (told["type"], told["code"], told["error"]["code"]) == ("error", "upstream_cut", "upstream_cut")
    kept = await answers(line, reply)
    if at < FINISHED:
        assert await state(line) in ("incomplete", "failed")
        assert all(row["state"] == "incomplete" for row in kept)
    # Reset, what was still under way may be lost.
    if at > SPOKEN and not reset:
        assert kept[0]["message"][0]["content"][0]["text"] in ("Once", "Once upon")


@pytest.mark.parametrize("end", ["ended", "ended behind words", "failed", "error"])
async def test_an_answer_that_does_not_come_to_its_end(line: Line, end: str) -> None:
    failed = {**ENDED, "status": "failed", "error": {"code": "server_error", "message": "boom"}}
    last = {
        "ended": b"",
        "ended behind words": b": still here\n\n<html>504</html>\n\n",
        "failed": event("response.failed", response=failed),
        "error": event("error", code="server_error", message="boom"),
    }[end]
    reply = await asked(line, streams([*PARTS[:2], last] if last else PARTS[:2]))
    assert (reply.is_whole, reply.body) == (True, b"".join([*PARTS[:2], last]))
    assert await state(line) == "incomplete"
    assert [row["state"] for row in await answers(line, reply)] == ["incomplete"]


async def test_the_last_event_may_lack_its_empty_line(line: Line) -> None:
    reply = await asked(line, streams([*PARTS[:-1], PARTS[-1].rstrip(b"\n")]))
    assert (reply.is_whole, reply.body) == (True, b"".join(PARTS).rstrip(b"\n"))
    assert await state(line) == "done"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/html"])
async def test_how_an_answer_begins_says_more_than_its_type(line: Line, kind: str, stream: bool) -> None:
    types = [(b"Content-Type", kind.encode())]
    for script in (replies(json.dumps(ENDED).encode(), 200, types), streams(PARTS, types)):
        reply = await asked(line, script, stream=stream)
        assert (reply.is_whole, reply.header("content-type")) == (True, kind)
        assert await state(line) == "done"
        assert [row["message"] for row in await answers(line, reply)][-1] == [ITEM]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [200, 401, 429, 502])
async def test_a_body_that_breaks_off_or_is_none(line: Line, status: int, stream: bool) -> None:
    broken = (
        head(status, [JSON_TYPE, (b"Content-Length", b"90"), (b"Retry-After", b"7")]) + b'{"error": {"mes'
    )
    for script in (cuts_after(1_000, broken), cuts_after(1_000, broken, reset=True)):
        reply = await asked(line, script, stream=stream)
        assert (reply.status, reply.is_whole) == (502 if status == 200 else status, True)
        assert reply.code == "upstream_cut"
        assert reply.header("retry-after") == (None if status == 200 else "7")
    reply = await asked(line, replies(b"", status, [JSON_TYPE]), stream=stream)
    assert (reply.status, reply.is_whole) == (502 if status == 200 else status, True)
    assert (reply.body == b"") == (status != 200)
    assert await state(line) == ("rejected" if status == 401 else "failed")
