"""Everything below /v1/ that is no chat completion passes untouched, both ways, as it streams."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.kit.wire import Line, post, wired
from tests.upstream.scripted import Wire, chunk, head, replies

pytestmark = pytest.mark.asyncio(loop_scope="module")

TYPES = [(b"content-type", b"application/json"), (b"x-request-id", b"r1")]


def request(method: str, path: str, body: bytes = b"", more: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    line = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n".encode()
    return line + more + length + b"\r\n" + body


@pytest.mark.spec("P1", "W19", "W20", "W53")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/gpt%2F4?a=1&b=%20x&a=2"),
        ("DELETE", "/v1/files/file-1"),
        ("POST", "/v1/embeddings"),
        ("PUT", "/v1/x"),
        ("PATCH", "/v1/x"),
        ("OPTIONS", "/v1/chat/completions"),
        ("GET", "/v1/chat/completions"),
        ("GET", "/v1/chat/completions/chatcmpl-1/messages?limit=2"),
        ("POST", "/v1/chat/completions/chatcmpl-1"),
        ("DELETE", "/v1/chat/completions/chatcmpl-1"),
        ("GET", "/v1/responses/resp_1?stream=true&starting_after=3"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("GET", "/v1/responses/resp_1/input_items?limit=2"),
        ("POST", "/v1/responses/input_tokens"),
        ("POST", "/v1/conversations"),
        ("POST", "/v1/messages?beta=true"),
        ("GET", "/s/any/v1/models"),
        ("POST", "/v1//odd//path/"),
    ],
)
async def test_any_method_and_path_passes(line: Line, method: str, path: str) -> None:
    before = line.query("SELECT count(*) FROM exchanges")
    body = os.urandom(1000) if method in ("POST", "PUT", "PATCH") else b""
    answer = os.urandom(3000)
    line.upstream.expects(replies(answer, 207, TYPES))
    reply = await line.asks(request(method, path, body))
    assert (reply.status, reply.is_whole, reply.body) == (207, True, answer)
    assert reply.headers == [*TYPES, (b"content-length", b"3000")]
    sent = line.upstream.requests[-1]
    assert (sent.method, sent.target, sent.body) == (method, path.removeprefix("/s/any"), body)
    assert sent.header("authorization") == "Bearer k"
    assert line.query("SELECT count(*) FROM exchanges") == before


@pytest.mark.spec("P1", "W20")
async def test_head_has_the_headers_and_no_body(line: Line) -> None:
    line.upstream.expects(replies(b"x" * 500, 200, TYPES))
    async with line.caller() as caller:
        await caller.sends(request("HEAD", "/v1/models"))
        reply = await caller.reply(to_head=True)
        assert reply.headers == [*TYPES, (b"content-length", b"500")]
        line.upstream.expects(replies(b"{}"))
        await caller.sends(request("GET", "/v1/models"))
        assert (await caller.reply()).body == b"{}"


@pytest.mark.spec("P1", "W20")
@pytest.mark.parametrize(("status", "length"), [(204, False), (304, False), (304, True)])
async def test_answers_without_a_body(line: Line, status: int, length: bool) -> None:
    async def bodiless(wire: Wire) -> None:
        await wire.send(head(status, [(b"etag", b"x"), *([(b"Content-Length", b"77")] if length else [])]))

    async with line.caller() as caller:
        line.upstream.expects(bodiless)
        await caller.sends(request("GET", "/v1/files/1/content"))
        reply = await caller.reply()
        assert (reply.status, reply.header("etag")) == (status, "x")
        line.upstream.expects(replies(b"{}"))
        await caller.sends(request("GET", "/v1/models"))
        assert (await caller.reply()).body == b"{}"


@pytest.mark.spec("P1", "W20")
async def test_a_multipart_upload_passes_untouched(line: Line) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + os.urandom(300_000)
    body += b"\r\n--b--\r\n"
    line.upstream.expects(replies(b"{}"))
    kind = b"Content-Type: multipart/form-data; boundary=b\r\n"
    assert (await line.asks(request("POST", "/v1/audio/transcriptions", body, kind))).status == 200
    sent = line.upstream.requests[-1]
    assert (sent.body, sent.header("content-type")) == (body, "multipart/form-data; boundary=b")
    assert sent.header("content-length") == str(len(body))


@pytest.mark.spec("P1", "W20")
async def test_an_upload_in_chunks_arrives_before_it_is_complete(tmp_path: Path) -> None:
    """The upstream answers the first piece before the client sends the second: both ways stream."""

    async def echoes(wire: Wire) -> None:
        await wire.send(head(200, [(b"Transfer-Encoding", b"chunked")]))
        for _ in range(2):
            heard = await wire.until(b"!\r\n")
            await wire.send(chunk(b"heard " + heard.split(b"\r\n")[1]))
        await wire.send(b"0\r\n\r\n")

    async with wired(tmp_path, reads_bodies=False) as line, line.caller() as caller:
        line.upstream.expects(echoes)
        given = b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        await caller.sends(given + chunk(b"one!"))
        reply = await caller.head()
        assert reply.status == 200
        assert await caller.chunk() == b"heard one!"
        await caller.sends(chunk(b"two!"))
        assert await caller.chunk() == b"heard two!"
        await caller.sends(b"0\r\n\r\n")
        assert await caller.chunk() == b""


@pytest.mark.spec("P1", "W20")
async def test_a_streamed_answer_passes_as_it_comes(line: Line) -> None:
    """The upstream sends the second event only when the client has got the first."""
    got_one = asyncio.Event()

    async def in_turns(wire: Wire) -> None:
        await wire.send(head(200, [(b"Transfer-Encoding", b"chunked")]) + chunk(b"event: one\n\n"))
        await got_one.wait()
        await wire.send(chunk(b"event: two\n\n") + b"0\r\n\r\n")

    line.upstream.expects(in_turns)
    async with line.caller() as caller:
        await caller.sends(post(b"{}", path="/v1/responses"))
        await caller.head()
        assert await caller.chunk() == b"event: one\n\n"
        got_one.set()
        assert await caller.chunk() == b"event: two\n\n"
        assert await caller.chunk() == b""


@pytest.mark.spec("P1", "W20", "W43")
async def test_a_cut_answer_is_cut_for_the_client_too(line: Line) -> None:
    async def cut(wire: Wire) -> None:
        await wire.send(head(200, [(b"Content-Length", b"100")]) + b"half")
        await wire.cut()

    line.upstream.expects(cut)
    reply = await line.asks(request("GET", "/v1/files/1/content"))
    assert (reply.is_whole, reply.body) == (False, b"half")
