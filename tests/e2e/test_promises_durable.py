"""Stored before forwarded, stored before finished, and what happens when the store cannot (P2, P3).

The store is held up by a second writer: while it holds the database's lock no commit can succeed.
Round trips through the proxy that store nothing serve as a clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.wire import Line, Reply, answer_body, chat_body, event, opened, post, wired
from tests.upstream.scripted import Script, Wire, chunk, head, replies

CHUNKED = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]
OPENING = [event({"role": "assistant", "content": ""}), event({"content": "Once upon a time"})]
FINISH = event({}, "stop")
DONE = b"data: [DONE]\n\n"
# Enough for anything that waited for nothing to have been done.
ROUND_TRIPS = 20
# A new database must be made within it too, on a machine that is busy.
IMPATIENT = {"database.store_deadline_seconds": 0.5}
DELIVERING = {**IMPATIENT, "database.on_store_failure": "passthrough"}


class Lock:
    """Holds up every commit from `taken` until `given_back`."""

    def __init__(self, line: Line) -> None:
        self._opened = opened(line.database)
        self._connection = self._opened.__enter__()

    def taken(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def given_back(self) -> None:
        self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


@contextmanager
def lock(line: Line) -> Iterator[Lock]:
    held = Lock(line)
    try:
        yield held
    finally:
        held.close()


async def time_passes(line: Line) -> None:
    for _ in range(ROUND_TRIPS):
        line.upstream.expects(replies(b"{}"))
        assert (await line.http.get("/v1/models")).status_code == 200


def locking(held: Lock, answer: bytes, headers: list[tuple[bytes, bytes]]) -> Script:
    """An answer that comes when nothing can be stored any more."""

    async def script(wire: Wire) -> None:
        held.taken()
        await wire.send(head(200, headers) + answer)

    return script


def streamed(parts: list[bytes]) -> bytes:
    return b"".join(chunk(part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.spec("P2")
async def test_nothing_is_forwarded_before_it_is_stored(tmp_path: Path) -> None:
    async with wired(tmp_path) as line, line.caller() as caller:
        with lock(line) as held:
            held.taken()
            await caller.sends(post(chat_body("durable first")))
            await time_passes(line)
            assert not [r for r in line.upstream.requests if r.method == "POST"]
            line.upstream.expects(replies(answer_body()))
            held.given_back()
            assert (await caller.reply()).status == 200
        assert [r.body for r in line.upstream.requests if r.method == "POST"]


@pytest.mark.spec("P3")
@pytest.mark.parametrize("end", [[FINISH, DONE], [DONE]])
async def test_the_end_of_a_stream_waits_for_the_store(tmp_path: Path, end: list[bytes]) -> None:
    async with wired(tmp_path) as line, line.caller() as caller:
        with lock(line) as held:
            line.upstream.expects(locking(held, streamed([*OPENING, *end]), CHUNKED))
            await caller.sends(post(chat_body(stream=True)))
            reply = await caller.head()
            seen = await caller.until(OPENING[-1])
            await time_passes(line)
            seen += caller.arrived()
            assert b"stop" not in seen
            assert b"DONE" not in seen
            held.given_back()
            assert end[-1] in await caller.until(DONE)
        assert [row["state"] for row in await line.rows(reply)] == ["live", "live"]


def as_lines(parts: list[bytes]) -> list[bytes]:
    """The same chunks as lines of JSON."""
    return [part.removeprefix(b"data: ").removesuffix(b"\n") for part in parts]


@pytest.mark.spec("P3")
@pytest.mark.parametrize(
    ("kind", "opening", "end"),
    [
        (b"text/plain", OPENING, [FINISH, DONE]),
        (b"application/x-ndjson", as_lines(OPENING), as_lines([FINISH])),
    ],
)
async def test_so_does_the_end_of_a_stream_of_another_name(
    tmp_path: Path, kind: bytes, opening: list[bytes], end: list[bytes]
) -> None:
    headers = [(b"Content-Type", kind), (b"Transfer-Encoding", b"chunked")]
    async with wired(tmp_path) as line, line.caller() as caller:
        with lock(line) as held:
            line.upstream.expects(locking(held, streamed([*opening, *end]), headers))
            await caller.sends(post(chat_body(stream=True)))
            reply = await caller.head()
            await caller.until(opening[-1])
            await time_passes(line)
            assert b"stop" not in caller.arrived()
            held.given_back()
            await caller.until(end[-1])
        assert [row["state"] for row in await line.rows(reply)] == ["live", "live"]


@pytest.mark.spec("P3")
async def test_a_whole_answer_waits_for_the_store(tmp_path: Path) -> None:
    async with wired(tmp_path) as line, line.caller() as caller:
        with lock(line) as held:
            headers = [(b"Content-Length", b"%d" % len(answer_body()))]
            line.upstream.expects(locking(held, answer_body(), headers))
            await caller.sends(post(chat_body()))
            await line.upstream.arrived(1)
            await time_passes(line)
            assert caller.arrived() == b""
            held.given_back()
            assert (await caller.reply()).body == answer_body()


async def unstored(line: Line, *, stream: bool) -> Reply:
    """What a client gets when the answer cannot be stored."""
    with lock(line) as held:
        if stream:
            line.upstream.expects(locking(held, streamed([*OPENING, FINISH, DONE]), CHUNKED))
        else:
            headers = [(b"Content-Length", b"%d" % len(answer_body()))]
            line.upstream.expects(locking(held, answer_body(), headers))
        reply = await line.asks(post(chat_body(stream=stream)))
        held.given_back()
    assert len(line.upstream.requests) == 1
    return reply


@pytest.mark.spec("P3")
async def test_an_answer_that_cannot_be_stored_is_refused_and_not_asked_for_again(tmp_path: Path) -> None:
    async with wired(tmp_path, IMPATIENT) as line:
        reply = await unstored(line, stream=False)
        assert (reply.status, reply.code) == (503, "answer_not_stored")
        assert reply.header("x-should-retry") == "false"


@pytest.mark.spec("P3")
async def test_a_stream_that_cannot_be_stored_ends_in_an_error(tmp_path: Path) -> None:
    async with wired(tmp_path, IMPATIENT) as line:
        reply = await unstored(line, stream=True)
        assert not reply.is_whole
        assert FINISH not in reply.body
        last = reply.body.removeprefix(b"".join(OPENING))
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "answer_not_stored"


@pytest.mark.spec("P8")
async def test_an_operator_may_prefer_answers_to_records(tmp_path: Path) -> None:
    async with wired(tmp_path, DELIVERING) as line:
        reply = await unstored(line, stream=False)
        assert (reply.status, reply.body) == (200, answer_body())
        assert reply.header("x-palimpsest-store") == "unavailable"


@pytest.mark.spec("P8")
async def test_an_operator_may_prefer_streams_to_records(tmp_path: Path) -> None:
    async with wired(tmp_path, DELIVERING) as line:
        reply = await unstored(line, stream=True)
        assert (reply.is_whole, reply.body) == (True, b"".join([*OPENING, FINISH, DONE]))


@pytest.mark.spec("P8")
async def test_a_store_that_is_down_answers_503_before_anything_is_forwarded(tmp_path: Path) -> None:
    async with wired(tmp_path, IMPATIENT) as line:
        line.upstream.expects(replies(answer_body()))
        assert (await line.asks(post(chat_body()))).status == 200
        with lock(line) as held:
            held.taken()
            reply = await line.asks(post(chat_body()))
            held.given_back()
        assert (reply.status, reply.code) == (503, "store_unavailable")
        assert reply.header("retry-after")
        assert len(line.upstream.requests) == 1
        line.upstream.expects(replies(answer_body()))
        assert (await line.asks(post(chat_body()))).status == 200


@pytest.mark.spec("P8")
async def test_a_store_that_is_down_may_be_passed_by(tmp_path: Path) -> None:
    async with wired(tmp_path, DELIVERING) as line:
        line.upstream.expects(replies(answer_body()), replies(answer_body()))
        await line.asks(post(chat_body()))
        body = chat_body("unseen")
        with lock(line) as held:
            held.taken()
            reply = await line.asks(post(body))
            held.given_back()
        assert (reply.status, reply.body) == (200, answer_body())
        assert reply.header("x-palimpsest-store") == "unavailable"
        assert reply.header("x-palimpsest-session") is None
        assert line.upstream.requests[1].body == body


@pytest.mark.spec("P8")
async def test_the_upstreams_own_error_passes_though_it_cannot_be_noted(tmp_path: Path) -> None:
    async with wired(tmp_path, IMPATIENT) as line:
        with lock(line) as held:

            async def refusing(wire: Wire) -> None:
                held.taken()
                await replies(b'{"error":{"message":"slow down"}}', 429)(wire)

            line.upstream.expects(refusing)
            reply = await line.asks(post(chat_body()))
            held.given_back()
        assert (reply.status, reply.body) == (429, b'{"error":{"message":"slow down"}}')
