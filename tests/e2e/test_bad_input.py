"""Bad input is answered in OpenAI's shape, with a stable code, before anything is forwarded."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.wire import Headers, Line, answer_body, chat_body, post, wired
from tests.upstream.scripted import replies

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL = {
    "models": [{"match": "tiny", "window_tokens": 1_000}, {"match": "*", "window_tokens": 1_000_000}],
    "limits.body_bytes": 200_000,
}
USER = '{"role":"user","content":"hi"}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy with low limits."""
    async with wired(tmp_path_factory.mktemp("small"), SMALL) as running:
        yield running


def with_message(message: str) -> bytes:
    return f'{{"model":"m","messages":[{message}]}}'.encode()


async def refused(line: Line, request: bytes, status: int, code: str) -> str | None:
    """The request is refused so, and nothing was forwarded; the parameter that the error names."""
    before = len(line.upstream.requests)
    reply = await line.asks(request)
    assert (reply.status, reply.code) == (status, code), reply.body
    assert reply.header("content-type") == "application/json"
    assert reply.header("x-should-retry") == "false"
    assert len(line.upstream.requests) == before
    param: str | None = reply.json()["error"]["param"]
    return param


MALFORMED = {
    "empty": b"",
    "not_json": b"hello",
    "cut": chat_body()[:-1],
    "more_behind": chat_body() + b"x",
    "nan": b'{"model":"m","messages":[' + USER.encode() + b'],"temperature":NaN}',
    "infinity": b'{"model":"m","messages":[' + USER.encode() + b'],"temperature":-Infinity}',
    "nan_in_message": with_message('{"role":"user","content":"hi","x":NaN}'),
    "duplicate_at_top": b'{"model":"m","model":"n","messages":[' + USER.encode() + b"]}",
    "duplicate_messages": b'{"messages":[],"model":"m","messages":[' + USER.encode() + b"]}",
    "duplicate_in_message": with_message('{"role":"user","role":"system","content":"hi"}'),
    "escaped_duplicate": with_message('{"role":"user","r\\u006fle":"system","content":"hi"}'),
    "not_utf8": with_message('{"role":"user","content":"\xff"}').replace("\xff".encode(), b"\xff"),
    "utf16": chat_body().decode().encode("utf-16"),
    "control_character": with_message('{"role":"user","content":"a\nb"}'),
    "single_quotes": b"{'model':'m'}",
    "trailing_comma": b'{"model":"m","messages":[' + USER.encode() + b",]}",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_json(small: Line, name: str) -> None:
    await refused(small, post(MALFORMED[name]), 400, "invalid_json")


async def test_a_body_too_large(small: Line) -> None:
    await refused(small, post(chat_body("x" * 200_000)), 413, "body_too_large")


async def test_a_chunked_body_too_large(small: Line) -> None:
    part = b"x" * 50_000
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await refused(small, request + b"%x\r\n%s\r\n" % (len(part), part) * 5, 413, "body_too_large")


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ([(b"X-Session-Id", b"x" * 201)], "x-session-id"),
        ([(b"X-Session-Id", b"a\tb")], "x-session-id"),
        ([(b"X-Session-Id", b"s"), (b"X-Session-Mode", b"sometimes")], "X-Session-Mode"),
        ([(b"X-Session-Mode", b"append")], "X-Session-Mode"),
        ([(b"X-Palimpsest", b"no_store")], "X-Palimpsest"),
    ],
)
async def test_controls_that_mean_nothing(small: Line, headers: Headers, param: str) -> None:
    assert await refused(small, post(chat_body(), headers), 400, "invalid_field") == param


@pytest.mark.parametrize("name", ["authorization", "x-session-id", "x-session-mode", "x-palimpsest"])
async def test_a_header_that_decides_must_stand_once(small: Line, name: str) -> None:
    twice = [(name.encode(), b"append"), (name.encode(), b"full")]
    request = post(chat_body(), twice, key=None)
    await refused(small, request, 400, "repeated_header")


async def test_a_name_too_long_in_the_path(small: Line) -> None:
    request = post(chat_body(), path=f"/s/{'x' * 201}/v1/chat/completions")
    assert await refused(small, request, 400, "invalid_field") == "path"


async def appends(line: Line, *messages: Any, session: bytes) -> bytes:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    return post(body, [(b"X-Session-Id", session), (b"X-Session-Mode", b"append")])


async def test_results_that_answer_nothing(small: Line) -> None:
    session = b"results-of-nothing"
    small.upstream.expects(replies(answer_body()))
    await small.asks(await appends(small, {"role": "user", "content": "hi"}, session=session))
    result = {"role": "tool", "tool_call_id": "call_9", "content": "42"}
    await refused(small, await appends(small, result, session=session), 422, "open_tool_calls")
    assert [row["role"] for row in await small.rows(session.decode())] == ["user", "assistant"]


async def test_results_that_leave_calls_open(small: Line) -> None:
    session = b"half-answered"
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in (1, 2)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    small.upstream.expects(replies(json.dumps({"choices": [choice]}).encode()))
    await small.asks(await appends(small, {"role": "user", "content": "hi"}, session=session))
    result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    await refused(small, await appends(small, result, session=session), 422, "open_tool_calls")


async def test_a_newest_message_beyond_a_known_window(small: Line) -> None:
    text = "word and another one, " * 600
    body = chat_body(text).replace(b"test-model", b"tiny")
    assert await refused(small, post(body), 400, "context_length_exceeded") == "messages"
    session = small.session_of_newest()
    row = small.query("SELECT state FROM messages WHERE session = ?", session)
    assert row == [("refused",)]
    told = "SELECT state, status, tokens_full > 0, tokens_forwarded FROM exchanges WHERE session = ?"
    assert small.query(told, session) == [("refused", 400, 1, 0)]


async def test_instructions_beyond_a_known_window(small: Line) -> None:
    messages = [{"role": "system", "content": "rule, " * 2_000}, {"role": "user", "content": "hi"}]
    body = json.dumps({"model": "tiny", "messages": messages}).encode()
    await refused(small, post(body), 400, "context_length_exceeded")


DOTTED = [
    "/v1/../secret",
    "/v1/./chat/completions",
    "/v1/%2e%2e/secret",
    "/v1/%2E./secret",
    "/v1/a%2f..%2f..%2fsecret",
    "/v1/a%5c..%5csecret",
    "/v1/files/..",
    "/s/x/v1/../secret",
    "/v1/..;/secret",
    "/v1/..;a=b/secret",
    "/v1/.%2e%3bx/secret",
    "/v1/%252e%252e/secret",
    "/v1/a/..%09/secret",
    "/v1/a/..%00/secret",
    "/v1/a/..%5c/secret",
]


@pytest.mark.parametrize("path", DOTTED)
async def test_dot_segments_are_not_forwarded(small: Line, path: str) -> None:
    await refused(small, post(chat_body(), path=path), 400, "invalid_field")


@pytest.mark.spec("H11")
async def test_a_path_that_is_encoded_again_and_again_keeps_nobody_waiting(small: Line) -> None:
    """Each decoding took a pass over it: 6 s of the event loop for 60 kB."""
    calls = [0]

    def called(frame: object, event: str, argument: object) -> None:
        calls[0] += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        path = f"/v1/../%{'25' * 20_000}2e"
        await refused(small, post(chat_body(), path=path), 400, "invalid_field")
    finally:
        sys.setprofile(None)
    assert calls[0] < 60_000


@pytest.mark.parametrize(
    "path", ["/v1%2fchat/completions", "/%76%31/chat/completions", "/", "/v1", "/v2/models"]
)
async def test_other_paths_are_not_forwarded(small: Line, path: str) -> None:
    before = len(small.upstream.requests)
    reply = await small.asks(post(chat_body(), path=path))
    assert (reply.status, reply.code) in [
        (404, "not_found"),
        (404, "wrong_base_url"),
        (405, "method_not_allowed"),
    ]
    assert len(small.upstream.requests) == before


@pytest.mark.spec("W20")
@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/chat/completions", "/api/sessions", "/"])
async def test_websockets_are_refused_plainly(small: Line, path: str) -> None:
    before = len(small.upstream.requests)
    key = base64.b64encode(os.urandom(16))
    request = (
        b"GET "
        + path.encode()
        + b" HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
    )
    reply = await small.asks(request)
    assert 400 <= reply.status < 500
    assert reply.code
    assert len(small.upstream.requests) == before


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/s/any/v1/models", "/"])
async def test_a_trace_that_would_show_the_operators_key_goes_nowhere(small: Line, path: str) -> None:
    before = len(small.upstream.requests)
    reply = await small.asks(b"TRACE " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert len(small.upstream.requests) == before


async def test_after_all_that_it_still_answers(small: Line) -> None:
    small.upstream.expects(replies(answer_body()))
    assert (await small.asks(post(chat_body()))).body == answer_body()
