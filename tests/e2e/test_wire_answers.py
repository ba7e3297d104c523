"""The answer reaches the client as the upstream sent it, whatever it is and however it is cut."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import brotli
import pytest

from tests.kit.wire import Headers, Line, Reply, answer_body, chat_body, event, post
from tests.upstream.scripted import Wire, head, replies, streams

pytestmark = pytest.mark.asyncio(loop_scope="module")

SSE_TYPE = (b"Content-Type", b"text/event-stream; charset=utf-8")
USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'
CALLS = [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}]
MORE = [{"index": 0, "function": {"arguments": ":1}"}}]

# Comments, CR LF, an event name, unknown fields, several characters of several bytes, calls, usage.
LIVELY = b"".join(
    (
        b": keep-alive\n\n",
        event({"role": "assistant", "content": ""}, obfuscation="xyz", service_tier="default"),
        'data: {"choices":[{"index":0,"delta":{"content":"Grüße 世界 🌍"}}]}\r\n\r\n'.encode(),
        b'event: message\nid: 7\ndata: {"choices":[{"index":0,"delta":{"content":"x"},\n',
        b'data: "logprobs":null}]}\n\n',
        event({"tool_calls": CALLS}),
        event({"tool_calls": MORE}),
        event({}, "tool_calls"),
        b": after the end\n\n",
        USAGE,
        b"data: [DONE]\n\n",
    )
)


def pieces(data: bytes, at: int) -> list[bytes]:
    return [part for part in (data[:at], data[at:]) if part]


async def streamed(line: Line, parts: list[bytes], headers: Headers, **fields: Any) -> Reply:
    """One streamed answer in these parts, by way of the proxy."""
    line.upstream.expects(streams(parts, headers=headers))
    return await line.asks(post(chat_body(stream=True, **fields)))


@pytest.mark.spec("P1", "W10", "W11")
async def test_a_stream_cut_anywhere_arrives_byte_for_byte(line: Line) -> None:
    async def cut_where_asked(wire: Wire) -> None:
        at = json.loads(wire.request.body)["seed"]
        await streams(pieces(LIVELY, at), headers=[SSE_TYPE])(wire)

    # Every place around the end of the answer, every third before it.
    places = [
        at for at in range(len(LIVELY) + 1) if at % 3 == 0 or at > LIVELY.index(b'"finish_reason": "') - 60
    ]

    async def some(start: int) -> None:
        async with line.caller() as caller:
            for at in places[start::16]:
                await caller.sends(post(chat_body(f"cut {at}", stream=True, seed=at)))
                reply = await caller.reply()
                assert (reply.status, reply.is_whole, reply.body) == (200, True, LIVELY), at
                assert line.states(reply) == ["done"], at

    line.upstream.always(cut_where_asked)
    await asyncio.gather(*(some(start) for start in range(16)))
    found = line.query(
        "SELECT DISTINCT CAST(body AS TEXT) FROM bodies WHERE instr(body, CAST('call_1' AS BLOB))"
    )
    stored = [json.loads(body) for (body,) in found]
    assert [message["tool_calls"][0]["function"]["arguments"] for message in stored] == ['{"a":1}']
    assert stored[0]["content"] == "Grüße 世界 🌍x"


@pytest.mark.spec("P1", "W11")
@pytest.mark.parametrize("size", [1, 7])
async def test_a_stream_in_tiny_chunks_arrives_byte_for_byte(line: Line, size: int) -> None:
    parts = [LIVELY[i : i + size] for i in range(0, len(LIVELY), size)]
    reply = await streamed(line, parts, [SSE_TYPE])
    assert (reply.is_whole, reply.body) == (True, LIVELY)
    assert line.states(reply) == ["done"]


@pytest.mark.spec("P1", "W16")
@pytest.mark.parametrize("coding", ["gzip", "br"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_coded_answer_stays_coded_and_is_stored_decoded(
    line: Line, coding: str, stream: bool
) -> None:
    plain = LIVELY if stream else answer_body("Grüße 世界 🌍x")
    coded = gzip.compress(plain) if coding == "gzip" else brotli.compress(plain)
    kind = SSE_TYPE if stream else (b"Content-Type", b"application/json")
    for at in range(0, len(coded), 23):
        line.upstream.expects(streams(pieces(coded, at), [kind, (b"Content-Encoding", coding.encode())]))
        body = chat_body(f"{coding} {at}", stream=stream)
        reply = await line.asks(post(body, [(b"Accept-Encoding", coding.encode())]))
        assert (reply.is_whole, reply.body) == (True, coded)
        assert reply.header("content-encoding") == coding
        assert (await line.rows(reply))[-1]["message"]["content"] == "Grüße 世界 🌍x"


@pytest.mark.spec("P1", "W16")
async def test_a_coding_that_cannot_be_read_is_not_asked_for(line: Line) -> None:
    line.upstream.expects(replies(answer_body()), replies(answer_body()))
    await line.asks(post(chat_body(), [(b"Accept-Encoding", b"compress, gzip;q=0.5")]))
    assert line.upstream.requests[-1].header("accept-encoding") == "gzip;q=0.5"
    await line.asks(post(chat_body()))
    assert line.upstream.requests[-1].header("accept-encoding") is None


@pytest.mark.spec("P1", "W07")
@pytest.mark.parametrize("n", [1, 3])
async def test_every_choice_of_a_stream_arrives_and_is_stored(line: Line, n: int) -> None:
    def part(index: int, delta: object, finish: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    said = [part(i, {"role": "assistant", "content": f"answer {i}"}) for i in range(n)]
    said += [part(i, {}, "stop") for i in reversed(range(n))] + [b"data: [DONE]\n\n"]
    reply = await streamed(line, said, [SSE_TYPE], n=n)
    assert (reply.is_whole, reply.body) == (True, b"".join(said))
    statement = "SELECT state FROM messages WHERE relayed AND session = ?"
    assert line.query(statement, reply.header("x-palimpsest-session")) == [("live",)] * n


@pytest.mark.spec("P1", "W15")
async def test_headers_of_an_answer_are_the_upstreams(line: Line) -> None:
    theirs = [
        (b"content-type", b"application/json"),
        (b"x-request-id", b"req_1"),
        (b"openai-processing-ms", b"12"),
        (b"openai-organization", b"org-x"),
        (b"x-ratelimit-remaining-tokens", b"99"),
        (b"set-cookie", b"a=1; Path=/"),
        (b"set-cookie", b"b=2"),
        (b"server", b"theirs"),
        (b"date", b"Mon, 01 Jan 2024 00:00:00 GMT"),
        (b"x-odd", "grüße".encode()),
    ]
    hop = [(b"Connection", b"x-secret-hop"), (b"X-Secret-Hop", b"1"), (b"Keep-Alive", b"timeout=5")]
    line.upstream.expects(replies(answer_body(), headers=[*theirs, *hop]))
    reply = await line.asks(post(chat_body()))
    ours = [(name, value) for name, value in reply.headers if not name.startswith(b"x-palimpsest-")]
    assert ours == [*theirs, (b"content-length", b"%d" % len(answer_body()))]


@pytest.mark.spec("P1", "P3")
@pytest.mark.parametrize("value", [b"a\x01b", b"a\x0bb", b"a\x7fb"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_header_that_may_not_be_sent_costs_no_answer(line: Line, path: str, value: bytes) -> None:
    line.upstream.expects(replies(answer_body(), 200, [(b"X-Odd", value), (b"X-Tab", b"a\tb")]))
    reply = await line.asks(post(chat_body(), path=path))
    assert (reply.status, reply.body) == (200, answer_body())
    assert (reply.header("x-odd"), reply.header("x-tab")) == ("a b", "a\tb")


@pytest.mark.spec("P1")
async def test_our_own_headers_say_what_was_done(line: Line) -> None:
    line.upstream.expects(replies(answer_body()))
    reply = await line.asks(post(chat_body("hi there")))
    assert reply.header("x-palimpsest-view") == "original"
    assert reply.header("x-palimpsest-mode") == "full; found=new"
    full, _, forwarded = (reply.header("x-palimpsest-tokens") or "").partition("/")
    assert int(full) == int(forwarded) > 0
    assert [row["message"]["content"] for row in await line.rows(reply)] == ["hi there", "Hello."]


@pytest.mark.spec("P1", "W15", "W40")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error":{"message":"bad image","type":"invalid_request_error","param":null,"code":null}}'),
        (401, b'{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}'),
        (403, b"<html>forbidden</html>"),
        (404, b'{"detail":"no such model"}'),
        (409, b"{}"),
        (418, b"short and stout"),
        (422, b""),
        (429, b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}'),
        (500, b"boom"),
        (503, b'{"error":"overloaded"}'),
        (529, b'{"type":"error"}'),
    ],
)
async def test_errors_of_the_upstream_are_its_own(line: Line, status: int, body: bytes, stream: bool) -> None:
    headers = [(b"Content-Type", b"x/y"), (b"Retry-After", b"7"), (b"retry-after-ms", b"7000")]
    headers += [(b"x-should-retry", b"true"), (b"x-request-id", b"r")]
    before = len(line.upstream.requests)
    line.upstream.expects(replies(body, status, headers))
    reply = await line.asks(post(chat_body(stream=stream)))
    assert (reply.status, reply.body, reply.is_whole) == (status, body, True)
    assert [reply.header(name.decode()) for name, _ in headers] == [v.decode() for _, v in headers]
    assert len(line.upstream.requests) == before + 1
    assert line.states(reply)[-1] == ("rejected" if status in (400, 401, 403, 404, 418, 422) else "failed")


@pytest.mark.spec("P1")
async def test_redirects_are_not_followed(line: Line) -> None:
    before = len(line.upstream.requests)
    away = [(b"Location", line.upstream.url.encode() + b"/elsewhere")]
    line.upstream.expects(replies(b"moved", 307, away))
    reply = await line.asks(post(chat_body()))
    assert (reply.status, reply.header("location")) == (307, away[0][1].decode())
    assert len(line.upstream.requests) == before + 1


@pytest.mark.spec("P1")
async def test_an_interim_answer_is_not_taken_for_the_answer(line: Line) -> None:
    async def interim(wire: Wire) -> None:
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        await wire.send(early + head(200, [(b"Content-Length", b"2")]) + b"{}")

    line.upstream.expects(interim)
    assert (await line.asks(post(chat_body("two")))).body == b"{}"


@pytest.mark.spec("P1")
async def test_a_changed_byte_would_be_noticed(line: Line) -> None:
    reply = await streamed(line, [LIVELY.replace(b"x", b"y", 1)], [SSE_TYPE])
    assert reply.is_whole
    assert reply.body != LIVELY
