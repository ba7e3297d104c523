"""However an answer ends, the client is told the truth and the archive says the same (P3)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.kit.wire import Headers, Line, Reply, answer_body, chat_body, event, post
from tests.upstream.scripted import Script, chunk, cuts_after, head, replies, streams

pytestmark = pytest.mark.asyncio(loop_scope="module")

SSE: Headers = [(b"Content-Type", b"text/event-stream")]
CHUNKED: Headers = [*SSE, (b"Transfer-Encoding", b"chunked")]
OPENING = [
    event({"role": "assistant", "content": ""}),
    event({"content": "Once upon"}),
    event({"content": " a time"}),
]
END = [event({}, "stop"), b"data: [DONE]\n\n"]


async def answered(line: Line, script: Script, *, stream: bool = True) -> Reply:
    line.upstream.expects(script)
    return await line.asks(post(chat_body(stream=stream)))


def on_wire(parts: Sequence[bytes], *, ended: bool = False) -> bytes:
    body = b"".join(chunk(part) for part in parts)
    return head(200, CHUNKED) + body + (b"0\r\n\r\n" if ended else b"")


def error_at_the_end(reply: Reply, parts: Sequence[bytes]) -> str:
    """The code of the error event that follows the upstream's bytes."""
    assert reply.body.startswith(b"".join(parts))
    rest = reply.body.removeprefix(b"".join(parts))
    assert rest.startswith(b"data: ")
    assert rest.endswith(b"\n\n")
    return str(json.loads(rest[6:])["error"]["code"])


async def newest(line: Line, reply: Reply) -> tuple[str, str | None]:
    """State and text of the session's newest message."""
    row = (await line.rows(reply))[-1]
    return row["state"], row["message"]["content"]


@pytest.mark.spec("P3", "W13", "W43")
@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("count", [2, 3])
async def test_a_cut_stream_ends_in_an_error_and_is_kept_as_incomplete(
    line: Line, count: int, reset: bool
) -> None:
    parts = OPENING[:count]
    wire = on_wire(parts)
    reply = await answered(line, cuts_after(len(wire), wire, reset=reset))
    assert not reply.is_whole
    assert error_at_the_end(reply, parts) == "upstream_cut"
    assert line.states(reply) == ["incomplete"]
    assert await newest(line, reply) == ("incomplete", "Once upon" + " a time" * (count - 2))


@pytest.mark.spec("P3", "W43")
async def test_a_stream_cut_inside_an_event_is_incomplete(line: Line) -> None:
    wire = on_wire(OPENING) + chunk(END[0][:-1])
    reply = await answered(line, cuts_after(len(wire), wire))
    assert not reply.is_whole
    assert line.states(reply) == ["incomplete"]


@pytest.mark.spec("P3", "H09")
async def test_a_proper_end_without_a_finish_is_passed_on_and_kept_as_incomplete(line: Line) -> None:
    reply = await answered(line, streams(OPENING))
    assert (reply.is_whole, reply.body) == (True, b"".join(OPENING))
    assert line.states(reply) == ["incomplete"]
    assert await newest(line, reply) == ("incomplete", "Once upon a time")


@pytest.mark.spec("P3", "W13")
async def test_a_stream_that_ends_with_its_connection_is_judged_by_its_finish(line: Line) -> None:
    whole = head(200, SSE) + b"".join([*OPENING, *END])
    good = await answered(line, cuts_after(len(whole), whole))
    assert (good.is_whole, line.states(good)) == (True, ["done"])
    part = head(200, SSE) + b"".join(OPENING)
    bad = await answered(line, cuts_after(len(part), part))
    assert (bad.is_whole, line.states(bad)) == (False, ["incomplete"])
    assert error_at_the_end(bad, OPENING) == "upstream_cut"


@pytest.mark.spec("P3", "W43")
async def test_an_answer_whose_finish_was_seen_is_done_even_if_cut_behind_it(line: Line) -> None:
    wire = on_wire([*OPENING, END[0]])
    reply = await answered(line, cuts_after(len(wire), wire))
    assert not reply.is_whole
    assert await newest(line, reply) == ("live", "Once upon a time")


@pytest.mark.spec("P3", "W12")
async def test_an_error_event_after_a_200_is_relayed_and_is_no_finished_turn(line: Line) -> None:
    failing = b'data: {"error":{"message":"overloaded","code":"server_error"}}\n\n'
    parts = [*OPENING, failing, b"data: [DONE]\n\n"]
    reply = await answered(line, streams(parts))
    assert (reply.is_whole, reply.body) == (True, b"".join(parts))
    assert line.states(reply) == ["incomplete"]
    assert await newest(line, reply) == ("incomplete", "Once upon a time")


@pytest.mark.spec("P3", "W43")
@pytest.mark.parametrize("headers", [[*SSE, (b"Content-Length", b"0")], CHUNKED])
async def test_an_empty_stream_is_an_error(line: Line, headers: Headers) -> None:
    wire = head(200, headers) + (b"0\r\n\r\n" if headers is CHUNKED else b"")
    reply = await answered(line, cuts_after(len(wire), wire))
    assert reply.status == 502
    assert reply.code == "upstream_cut"
    assert [row["role"] for row in await line.rows(line.session_of_newest())] == ["user"]


@pytest.mark.spec("P3")
async def test_a_stream_of_done_alone_holds_no_answer(line: Line) -> None:
    reply = await answered(line, streams([b"data: [DONE]\n\n"]))
    assert (reply.is_whole, reply.body) == (True, b"data: [DONE]\n\n")
    assert line.states(reply) == ["failed"]


@pytest.mark.spec("P3")
async def test_done_without_a_finish_is_an_end(line: Line) -> None:
    parts = [*OPENING, END[1]]
    reply = await answered(line, streams(parts))
    assert (reply.is_whole, reply.body) == (True, b"".join(parts))
    assert await newest(line, reply) == ("live", "Once upon a time")


@pytest.mark.spec("P3")
async def test_open_calls_of_a_cut_answer_stay_off_the_path(line: Line) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    wire = on_wire([*OPENING, event({"tool_calls": [call]})])
    reply = await answered(line, cuts_after(len(wire), wire))
    assert [row["role"] for row in await line.rows(reply)] == ["user"]


@pytest.mark.spec("P3", "W43")
async def test_a_whole_answer_that_is_cut_is_a_502(line: Line) -> None:
    wire = head(200, [(b"Content-Type", b"application/json"), (b"Content-Length", b"500")]) + answer_body()
    reply = await answered(line, cuts_after(len(wire), wire), stream=False)
    assert (reply.status, reply.code) == (502, "upstream_cut")


@pytest.mark.spec("P1")
@pytest.mark.parametrize("body", [b"not json", b'{"error":{"message":"no"}}', b'{"choices":[]}', b"[]"])
async def test_a_200_that_is_no_answer_passes_and_is_no_finished_turn(line: Line, body: bytes) -> None:
    reply = await answered(line, replies(body), stream=False)
    assert (reply.status, reply.is_whole, reply.body) == (200, True, body)
    assert line.states(reply) == ["failed"]
    assert [row["role"] for row in await line.rows(reply)] == ["user"]


@pytest.mark.spec("P3", "W43")
async def test_an_upstream_that_hangs_up_before_its_answer_is_a_502(line: Line) -> None:
    reply = await answered(line, cuts_after(0, b""))
    assert (reply.status, reply.code) == (502, "upstream_unreachable")
    reply = await answered(line, cuts_after(12, b"not HTTP at all\r\n\r\n"))
    assert reply.status == 502
