"""The request reaches the upstream as the client sent it: body, headers, nothing added."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.wire import Line, answer_body, chat_body, post
from tests.upstream.scripted import replies

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.spec("P1", "W17")
@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","content":"hi"}],"model":"m","seed":12345678901234567890123,"x":1e2}',
        b' {\n"model" : "m",\t"messages" : [ {"role":"user","content":"\\u0068\\ud83d"} ] } \n',
        '{"model":"m","messages":[{"content":"Grüße","role":"user","new":{"a":[1.0]}}],"store":false}'.encode(),
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{}}]}],'
        b'"stream":true,"n":3}',
        b'{"model":"m","messages":[{"role":"user","content":"\\u0000"}],"metadata":{"a":"b"},"tools":[]}',
        b'{"messages":[{"role":"user","content":null},{"role":"user","content":""},{"role":"function"}]}',
    ],
)
async def test_a_body_goes_on_byte_for_byte(line: Line, body: bytes) -> None:
    line.upstream.expects(replies(answer_body()))
    await line.asks(post(body))
    assert line.upstream.requests[-1].body == body


@pytest.mark.spec("P1")
async def test_the_second_turn_is_the_clients_own_too(line: Line) -> None:
    line.upstream.expects(replies(answer_body()), replies(answer_body()))
    first = await line.asks(post(chat_body("one")))
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"one"},'
        b'{"content" : "Hello.","role":"assistant", "refusal":null},{"role":"user","content":"two"}]}'
    )
    second = await line.asks(post(body))
    assert line.upstream.requests[-1].body == body
    assert second.header("x-palimpsest-session") == first.header("x-palimpsest-session")


@pytest.mark.spec("P1")
async def test_a_body_in_chunks_goes_on_whole(line: Line) -> None:
    body = chat_body("x" * 200_000)
    line.upstream.expects(replies(answer_body()))
    given = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts = [body[i : i + 9_999] for i in range(0, len(body), 9_999)]
    reply = await line.asks(given + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n")
    assert reply.status == 200
    assert line.upstream.requests[-1].body == body


@pytest.mark.spec("P1")
async def test_a_client_that_waits_for_100_is_answered(line: Line) -> None:
    body = chat_body()
    line.upstream.expects(replies(answer_body()))
    async with line.caller() as caller:
        request = post(body, [(b"Expect", b"100-continue")])
        await caller.sends(request[: -len(body)])
        assert (await caller.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await caller.sends(body)
        assert (await caller.reply()).status == 200
    assert line.upstream.requests[-1].header("expect") is None


OFFERS = [
    [(b"Connection", b"Upgrade, HTTP2-Settings"), (b"HTTP2-Settings", b"AAEAAEAA"), (b"Upgrade", b"h2c")],
    [(b"UPGRADE", b"TLS/1.2"), (b"connection", b"keep-alive, upgrade")],
    [(b"Upgrade", b"HTTP/2.0, IRC/6.9"), (b"Connection", b"Upgrade")],
]


@pytest.mark.spec("P1")
@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_an_offer_of_another_protocol_is_passed_over(
    line: Line, path: str, offer: list[tuple[bytes, bytes]]
) -> None:
    request = post(chat_body("\r\nUpgrade: h2c\r\n"), offer, path=path)
    body = request.partition(b"\r\n\r\n")[2]
    # Java sends head and body apart; a head may be cut anywhere.
    ends = [len(request), len(request) - len(body), *range(1, len(request) - len(body), 7)]
    async with line.caller() as caller:
        for end in ends:
            line.upstream.expects(replies(answer_body()))
            await caller.sends(request[:end])
            await asyncio.sleep(0)
            await caller.sends(request[end:])
            assert (await caller.reply()).body == answer_body()
            sent = line.upstream.requests[-1]
            assert sent.body == body
            assert not {b"upgrade", b"http2-settings"} & {name.lower() for name, _ in sent.headers}


@pytest.mark.spec("P1")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_what_stands_behind_a_body_is_no_header(line: Line, path: str) -> None:
    body = chat_body()
    head = [(b"Host", b"localhost"), (b"Transfer-Encoding", b"chunked"), (b"X-Early", b"1")]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in head)
    trailers = b"X-Late: 1\r\nAuthorization: Bearer other\r\nX-Palimpsest: no-store\r\n\r\n"
    start = b"POST " + path.encode() + b" HTTP/1.1\r\n" + lines + b"\r\n"
    async with line.caller() as caller:
        # The second request of a connection has headers again.
        for _ in range(2):
            line.upstream.expects(replies(answer_body()))
            await caller.sends(start + b"%x\r\n" % len(body) + body + b"\r\n0\r\n" + trailers)
            reply = await caller.reply()
            assert reply.body == answer_body()
            assert reply.header("x-palimpsest-store") is None
            sent = line.upstream.requests[-1]
            assert (sent.body, sent.header("x-early")) == (body, "1")
            assert not {b"x-late", b"authorization"} & {name.lower() for name, _ in sent.headers}


@pytest.mark.spec("P1")
async def test_headers_of_a_request_are_the_clients(line: Line) -> None:
    line.upstream.expects(replies(answer_body()))
    theirs = [
        (b"user-agent", b"OpenAI/Python 9"),
        (b"openai-organization", b"org"),
        (b"x-stainless-retry-count", b"0"),
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
        (b"idempotency-key", b"k"),
        (b"traceparent", b"00-1-2-03"),
        (b"x-odd", "grüße".encode()),
    ]
    ours = [(b"X-Session-Id", b"s"), (b"X-Palimpsest", b"off"), (b"X-Session-Mode", b"full")]
    await line.asks(post(chat_body(), [*theirs, *ours]))
    sent = [(name.lower(), value) for name, value in line.upstream.requests[-1].headers]
    assert [pair for pair in sent if pair in theirs] == theirs
    known = {name for name, _ in theirs} | {b"host", b"authorization", b"content-type", b"content-length"}
    assert {name for name, _ in sent} == known
