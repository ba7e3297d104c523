"""A stream that was asked for is relayed as it comes, whatever the upstream calls it."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.wire import Headers, Line, Reply, answer_body, chat_body, event, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Script, Wire, chunk, head, streams

pytestmark = pytest.mark.asyncio(loop_scope="module")


def line_of(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One chunk of a streamed answer as a line of JSON."""
    return event(delta, finish).removeprefix(b"data: ").removesuffix(b"\n")


EVENTS = [
    event({"role": "assistant", "content": "Once"}),
    event({"content": " upon"}),
    event({}, "stop"),
    b"data: [DONE]\n\n",
]
LINES = [
    line_of({"role": "assistant", "content": "Once"}),
    line_of({"content": " upon"}),
    line_of({}, "stop"),
    b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n',
]
PAGE = [b"<html><body>", b"Please log in.", b"</body></html>"]
WORDS = [b"Once upon a time", b" there was", b" plain text."]


def named(content_type: str | None) -> Headers:
    return [] if content_type is None else [(b"Content-Type", content_type.encode())]


@dataclass
class Held:
    """An upstream that has sent `early` and sends the rest when it is let go."""

    content_type: str | None
    early: bytes
    late: list[bytes]

    def __post_init__(self) -> None:
        self.let_go = asyncio.Event()

    async def __call__(self, wire: Wire) -> None:
        framing = (b"Transfer-Encoding", b"chunked")
        await wire.send(head(200, [*named(self.content_type), framing]) + chunk(self.early))
        await self.let_go.wait()
        await wire.send(b"".join(chunk(part) for part in self.late) + b"0\r\n\r\n")


STREAMS = [
    ("application/x-ndjson", LINES, "done"),
    ("application/jsonl; charset=utf-8", LINES, "done"),
    ("application/stream+json", LINES, "done"),
    ("application/x-ndjson", EVENTS, "done"),
    ("text/plain", EVENTS, "done"),
    ("text/plain; charset=utf-8", [b": a comment first\n\n", *EVENTS], "done"),
    ("application/octet-stream", EVENTS, "done"),
    (None, EVENTS, "done"),
    # Nobody can say what these mean: they pass, and no answer is stored.
    ("text/html", PAGE, "failed"),
    ("text/plain", WORDS, "failed"),
    (None, WORDS, "failed"),
    ("application/x-ndjson", [b'{"done":false}\n', b'{"done":true}\n'], "failed"),
]


@pytest.mark.spec("P1")
@pytest.mark.parametrize(("content_type", "parts", "state"), STREAMS)
async def test_it_arrives_while_the_upstream_still_speaks(
    line: Line, content_type: str | None, parts: list[bytes], state: str
) -> None:
    upstream = Held(content_type, parts[0], parts[1:])
    line.upstream.expects(upstream)
    async with line.caller() as caller:
        await caller.sends(post(chat_body(stream=True)))
        reply = await caller.head()
        assert await caller.chunk() == parts[0]
        upstream.let_go.set()
        while piece := await caller.chunk():
            reply.body += piece
    assert reply.body == b"".join(parts[1:])
    assert reply.header("content-type") == content_type
    assert line.states(reply) == [state]
    rows = await line.rows(reply)
    assert [(row["state"], row["message"]["content"]) for row in rows[1:]] == (
        [("live", "Once upon")] if state == "done" else []
    )


DOCUMENTS = [
    "application/json",
    "application/json; charset=utf-8",
    "application/vnd.gateway+json",
    # What has no telling name is a document when it begins like one.
    "text/plain",
    None,
]


@pytest.mark.spec("P3")
@pytest.mark.parametrize("content_type", DOCUMENTS)
async def test_a_document_is_stored_before_its_first_byte(line: Line, content_type: str | None) -> None:
    whole = b" \n" + json.dumps(json.loads(answer_body()), indent=2).encode()
    upstream = Held(content_type, whole[:60], [whole[60:]])
    line.upstream.expects(upstream)
    before = len(line.upstream.requests)
    async with line.caller() as caller:
        await caller.sends(post(chat_body(stream=True)))
        await line.upstream.arrived(before + 1)
        for _ in range(20):
            assert (await line.http.get("/healthz")).status_code == 200
        assert caller.arrived() == b""
        upstream.let_go.set()
        reply = await caller.reply()
    assert (reply.is_whole, reply.body) == (True, whole)
    assert line.states(reply) == ["done"]
    assert (await line.rows(reply))[-1]["message"]["content"] == "Hello."


async def test_who_asked_for_no_stream_gets_a_whole_answer(line: Line) -> None:
    upstream = Held("text/plain", WORDS[0], WORDS[1:])
    line.upstream.expects(upstream)
    before = len(line.upstream.requests)
    async with line.caller() as caller:
        await caller.sends(post(chat_body()))
        await line.upstream.arrived(before + 1)
        for _ in range(20):
            assert (await line.http.get("/healthz")).status_code == 200
        assert caller.arrived() == b""
        upstream.let_go.set()
        assert (await caller.reply()).body == b"".join(WORDS)


@pytest.mark.spec("P1")
@pytest.mark.parametrize("content_type", ["text/plain", None])
@pytest.mark.parametrize(("plain", "text"), [(b"".join(EVENTS), "Once upon"), (answer_body(), "Hello.")])
async def test_a_coded_answer_is_looked_into(
    line: Line, content_type: str | None, plain: bytes, text: str
) -> None:
    coded = gzip.compress(plain)
    headers = [*named(content_type), (b"Content-Encoding", b"gzip")]
    line.upstream.expects(streams([coded[:30], coded[30:]], headers))
    reply = await line.asks(post(chat_body(stream=True), [(b"Accept-Encoding", b"gzip")]))
    assert (reply.is_whole, reply.body) == (True, coded)
    assert (await line.rows(reply))[-1]["message"]["content"] == text


@pytest.mark.spec("P1")
@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/plain"])
async def test_lines_and_events_cut_anywhere_arrive_byte_for_byte(line: Line, kind: str) -> None:
    said = b"".join(LINES if kind.endswith("ndjson") else EVENTS)
    for at in range(1, len(said), 7):
        line.upstream.expects(streams([said[:at], said[at:]], named(kind)))
        reply = await line.asks(post(chat_body(stream=True)))
        assert (reply.is_whole, reply.body) == (True, said), at
        assert line.states(reply) == ["done"], at


@pytest.mark.spec("P3")
async def test_a_last_line_without_its_end_is_stored_all_the_same(line: Line) -> None:
    said = [LINES[0], LINES[1], LINES[2].removesuffix(b"\n")]
    line.upstream.expects(streams(said, named("application/x-ndjson")))
    reply = await line.asks(post(chat_body(stream=True)))
    assert (reply.is_whole, reply.body) == (True, b"".join(said))
    assert (await line.rows(reply))[-1]["state"] == "live"


def cut(content_type: str, parts: list[bytes]) -> Script:
    async def script(wire: Wire) -> None:
        headers = [*named(content_type), (b"Transfer-Encoding", b"chunked")]
        await wire.send(head(200, headers) + b"".join(chunk(part) for part in parts))
        await wire.cut()

    return script


CUT = [
    ("application/x-ndjson", LINES[:2], b"", "incomplete"),
    ("application/x-ndjson", [LINES[0], LINES[1], LINES[2][:9]], b"", "incomplete"),
    ("text/plain", EVENTS[:2], b"data: ", "incomplete"),
    ("text/html", PAGE[:2], None, "failed"),
]


@pytest.mark.spec("P3")
@pytest.mark.parametrize(("content_type", "parts", "before_error", "state"), CUT)
async def test_a_cut_one_is_kept_as_far_as_it_was_understood(
    line: Line, content_type: str, parts: list[bytes], before_error: bytes | None, state: str
) -> None:
    line.upstream.expects(cut(content_type, parts))
    reply: Reply = await line.asks(post(chat_body(stream=True)))
    assert not reply.is_whole
    said = b"".join(parts)
    assert reply.body.startswith(said)
    added = reply.body.removeprefix(said)
    if before_error is None:
        assert added == b""
    else:
        error = json.loads(added.strip().removeprefix(before_error))
        assert error["error"]["code"] == "upstream_cut"
    assert line.states(reply) == [state]
    rows = await line.rows(reply)
    assert [row["message"]["content"] for row in rows[1:]] == (["Once upon"] if state == "incomplete" else [])


async def test_one_that_ends_without_a_finish_ends_so(line: Line) -> None:
    line.upstream.expects(streams(LINES[:2], named("application/x-ndjson")))
    reply = await line.asks(post(chat_body(stream=True)))
    assert (reply.is_whole, reply.body) == (True, b"".join(LINES[:2]))
    assert line.states(reply) == ["incomplete"]


async def test_a_connection_cut_before_the_first_byte(line: Line) -> None:
    line.upstream.expects(cut("text/plain", []))
    reply = await line.asks(post(chat_body(stream=True)))
    assert (reply.status, reply.code) == (502, "upstream_cut")
    session = line.session_of_newest()
    assert line.query("SELECT state FROM exchanges WHERE session = ?", session) == [("failed",)]


TOO_LONG = (
    b'{"error":{"message":"This model\'s maximum context length is 3000 tokens. However, your messages '
    b'resulted in 3700 tokens.","code":"context_length_exceeded"}}'
)
NEAR = {
    "models": [{"match": "*", "window_tokens": 4_000}],
    "policy.trigger_ratio": 0.95,
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
}


def body_of(messages: list[dict[str, str]]) -> bytes:
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()


@pytest.mark.spec("A29")
@pytest.mark.parametrize(
    ("kind", "refusal", "answer"),
    [
        ("text/event-stream", b"data: " + TOO_LONG + b"\n\n", EVENTS),
        ("text/plain", b"data: " + TOO_LONG + b"\n\n", EVENTS),
        ("application/x-ndjson", TOO_LONG + b"\n", LINES),
    ],
)
async def test_a_refusal_for_length_as_the_first_frame(
    tmp_path: Path, kind: str, refusal: bytes, answer: list[bytes]
) -> None:
    said = [{"role": "user", "content": f"Entry {turn}. {prose(turn, 395)}"} for turn in range(8)]
    body = body_of(said)
    async with wired(tmp_path, NEAR) as line:
        line.upstream.expects(streams([refusal], named(kind)), streams(answer, named(kind)))
        reply = await line.asks(post(body))
        assert reply.header("x-palimpsest-view") == "compacted"
        assert (reply.status, reply.is_whole, reply.body) == (200, True, b"".join(answer))
        assert len(line.upstream.requests[1].body) < 0.8 * len(body)
        # Refused for ever: what the client gets is the refusal as it came.
        line.upstream.always(streams([refusal], named(kind)))
        said += [{"role": "assistant", "content": "Once upon"}, {"role": "user", "content": prose(9, 2_300)}]
        reply = await line.asks(post(body_of(said)))
        assert reply.body == refusal
