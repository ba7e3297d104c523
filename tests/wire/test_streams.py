"""Streams as upstreams send them: relayed as they are, put together rightly, whatever stands in them."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.wire import Caller, Line, Reply, answer_body, chat_body, event, post
from tests.kit.words import prose
from tests.upstream.scripted import Wire, chunk, head, replies, streams

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
SSE = (b"Content-Type", b"text/event-stream")
USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14, "x_vendor": {"a": 1}}
USAGE_CHUNK = b"data: " + json.dumps({"id": "c", "choices": [], "usage": USAGE}).encode() + b"\n\n"
on_module_loop = pytest.mark.asyncio(loop_scope="module")


ODD = b"".join(
    (
        b": ping\r\n\r\n",
        'data:{"choices":[{"index":0,"delta":{"content":"ü🌍"}}]}\n\n'.encode(),
        b':\n\nid: 1\nevent: x\ndata: {"choices":[{"index":0,\ndata: "delta":{"content":"!"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\r\r',
        b": bye\n\ndata: [DONE]\n\n: late\n\n",
    )
)


HEADERS = [
    (b"retry-after", b"3"),
    (b"retry-after-ms", b"2500"),
    (b"x-request-id", b"req_abc"),
    (b"x-ratelimit-limit-tokens", b"30000"),
    (b"x-ratelimit-remaining-requests", b"0"),
    (b"x-ratelimit-reset-tokens", b"6m0s"),
    (b"openai-processing-ms", b"17"),
    (b"openai-version", b"2020-10-01"),
    (b"openai-organization", b"org"),
    (b"openai-model", b"m"),
]


async def streamed(line: Line, parts: list[bytes], **fields: Any) -> Reply:
    line.upstream.expects(streams(parts))
    reply = await line.asks(post(chat_body(model="large", stream=True, **fields)))
    assert (reply.status, reply.is_whole, reply.body) == (200, True, b"".join(parts))
    return reply


@on_module_loop
@pytest.mark.spec("W08", "W21")
@pytest.mark.parametrize("asked", [True, False, None])
async def test_usage_is_the_upstreams_and_nobody_asks_for_it_but_the_client(
    line: Line, asked: bool | None
) -> None:
    fields = {} if asked is None else {"stream_options": {"include_usage": asked}}
    parts = [event({"role": "assistant", "content": "Hi"}), event({}, "stop")]
    await streamed(line, [*parts, *([USAGE_CHUNK] if asked else []), DONE], **fields)
    sent = json.loads(line.upstream.requests[-1].body)
    assert {key: sent[key] for key in sent if key == "stream_options"} == fields


@on_module_loop
@pytest.mark.spec("W08", "W21")
async def test_usage_in_every_chunk_passes_as_it_is(line: Line) -> None:
    running = [
        event({"content": "Hi"}, None if at < 2 else "stop", usage=USAGE | {"n": at}) for at in range(3)
    ]
    reply = await streamed(line, [*running, DONE])
    assert line.states(reply) == ["done"]
    assert (await line.rows(reply))[-1]["message"]["content"] == "HiHiHi"


@on_module_loop
@pytest.mark.spec("W09")
async def test_padding_is_relayed_and_not_stored(line: Line) -> None:
    parts = [
        event({"role": "assistant", "content": "Hi", "obfuscation": "inner"}, obfuscation="XyZ1"),
        event({"content": " you"}, obfuscation="padding-9"),
        event({}, "stop", obfuscation="Q"),
        DONE,
    ]
    reply = await streamed(line, parts)
    assert (await line.rows(reply))[-1]["message"] == {"role": "assistant", "content": "Hi you"}
    assert line.query("SELECT count(*) FROM bodies WHERE instr(body, CAST('padding-9' AS BLOB))") == [(0,)]


def calls(*pieces: Json, finish: str | None = None) -> bytes:
    return event({"tool_calls": list(pieces)}, finish)


INTERLEAVED = [
    event({"role": "assistant", "content": None}),
    calls({"index": 1, "id": "b", "type": "custom", "custom": {"name": "shell", "input": "ls"}}),
    calls({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}),
    calls({"index": 1, "custom": {"input": " -l"}}, {"index": 0, "function": {"arguments": '{"x"'}}),
    calls({"index": 2, "id": "c", "type": "function", "function": {"name": "g", "arguments": "{"}}),
    calls({"index": 0, "function": {"arguments": ":1}"}, "extra_content": {"google": {"s": "sig"}}}),
    calls({"index": 2, "function": {"arguments": "}"}}),
    calls({"index": 1, "custom": {"input": "a\n"}}),
    event({}, "tool_calls"),
    DONE,
]


@on_module_loop
@pytest.mark.spec("W10", "W04")
async def test_interleaved_calls_are_put_together_by_their_index(line: Line) -> None:
    reply = await streamed(line, INTERLEAVED)
    stored = (await line.rows(reply))[-1]["message"]["tool_calls"]
    assert [call["id"] for call in stored] == ["a", "b", "c"]
    assert stored[0]["function"] == {"name": "f", "arguments": '{"x":1}'}
    assert stored[0]["extra_content"] == {"google": {"s": "sig"}}
    assert stored[1]["custom"] == {"name": "shell", "input": "ls -la\n"}
    assert stored[2]["function"] == {"name": "g", "arguments": "{}"}


CALL_A, CALL_B = (
    {"index": 0, "id": name, "type": "function", "function": {"name": "f", "arguments": '{"city":"A"}'}}
    for name in "ab"
)
HI, STOP = event({"role": "assistant", "content": "Hi"}), event({}, "stop")
BROKEN = b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n'
CALLED = event({}, "tool_calls")
# What an upstream streams, and what is stored of it: state, text and calls.
ENDINGS: dict[str, tuple[list[bytes], str, str | None, list[str]]] = {
    "one index": ([calls(CALL_A), calls(CALL_B), CALLED, DONE], "done", None, ["a", "b"]),
    "text after the finish": ([HI, STOP, event({"content": " you"}), DONE], "done", "Hi you", []),
    "calls after the finish": ([HI, STOP, calls(CALL_A), CALLED, USAGE_CHUNK, DONE], "done", "Hi", ["a"]),
    "a finish in each chunk": ([event({"content": each}, "stop") for each in "abc"], "done", "abc", []),
    "usage after the finish": ([HI, STOP, b": wait\n\n", USAGE_CHUNK], "done", "Hi", []),
    "error": ([HI, event({}, "error"), DONE], "incomplete", "Hi", []),
    "network_error": ([HI, event({}, "network_error"), DONE], "incomplete", "Hi", []),
    "an invalid byte": ([HI, BROKEN, STOP, DONE], "incomplete", "Hi", []),
    "no object": ([HI, b"data: keep-alive\n\n", b": ping\n\n", STOP, DONE], "done", "Hi", []),
}  # fmt: skip


@on_module_loop
@pytest.mark.spec("W10", "W14")
@pytest.mark.parametrize("name", ENDINGS)
async def test_what_a_client_puts_together_is_stored(line: Line, name: str) -> None:
    parts, state, text, ids = ENDINGS[name]
    before = chat_body(name, model="large", stream=True)
    line.upstream.expects(streams(parts))
    reply = await line.asks(post(before))
    assert (reply.status, reply.is_whole, reply.body) == (200, True, b"".join(parts))
    assert line.states(reply) == [state]
    stored = (await line.rows(reply))[-1]["message"]
    assert (stored["content"], [call["id"] for call in stored.get("tool_calls") or []]) == (text, ids)
    session = reply.header("x-palimpsest-session")
    usage = line.query("SELECT prompt_tokens FROM exchanges WHERE session = ?", session)
    assert usage == [(11 if USAGE_CHUNK in parts else None,)]
    # The next turn is the same conversation.
    results = [{"role": "tool", "tool_call_id": ident, "content": "ok"} for ident in ids]
    said = [*json.loads(before)["messages"], stored, *results, {"role": "user", "content": "And now?"}]
    line.upstream.expects(streams([HI, STOP, DONE]))
    body = json.dumps({"model": "large", "stream": True, "messages": said}).encode()
    following = await line.asks(post(body))
    assert following.header("x-palimpsest-session") == session


@on_module_loop
@pytest.mark.parametrize("reason", ["error", "network_error"])
async def test_a_whole_answer_that_was_given_up_is_incomplete(line: Line, reason: str) -> None:
    line.upstream.expects(replies(answer_body("Half").replace(b'"stop"', b'"%b"' % reason.encode())))
    reply = await line.asks(post(chat_body(f"whole {reason}", model="large")))
    assert (reply.status, line.states(reply)) == (200, ["incomplete"])


@on_module_loop
async def test_blank_bytes_before_a_whole_answer_are_passed_on_as_they_come(line: Line) -> None:
    let_go = asyncio.Event()

    async def slow(wire: Wire) -> None:
        await wire.send(
            head(200, [(b"Content-Type", b"application/json"), (b"Transfer-Encoding", b"chunked")])
        )
        await wire.send(chunk(b"\n"))
        await let_go.wait()
        await wire.send(chunk(b" \n") + chunk(answer_body("Hi")) + b"0\r\n\r\n")

    line.upstream.expects(slow)
    async with line.caller() as caller:
        await caller.sends(post(chat_body("blank", model="large")))
        reply = await caller.head()
        assert await caller.chunk() == b"\n"
        let_go.set()
        rest = b"".join([piece async for piece in _chunks(caller)])
    assert rest == b" \n" + answer_body("Hi")
    assert line.states(reply) == ["done"]


async def _chunks(caller: Caller) -> AsyncIterator[bytes]:
    while piece := await caller.chunk():
        yield piece


@on_module_loop
@pytest.mark.parametrize("stream", [False, True])
async def test_an_http_1_0_client_is_sent_no_chunks(line: Line, stream: bool) -> None:
    parts = [HI, STOP, DONE] if stream else [answer_body("Hi")]
    line.upstream.expects(streams(parts) if stream else replies(parts[0]))
    request = post(chat_body(f"old {stream}", model="large", stream=stream))
    async with line.caller() as caller:
        await caller.sends(request.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        reply = await caller.head()
        assert reply.header("transfer-encoding") is None
        body = b""
        while piece := await caller.piece():
            body += piece
    assert body == b"".join(parts)


@on_module_loop
@pytest.mark.spec("W20")
async def test_which_pages_may_read_is_not_the_upstreams_to_say(line: Line) -> None:
    allowed = [
        (b"access-control-allow-origin", b"https://app.example"),
        (b"access-control-allow-headers", b"authorization,content-type,x-stainless-os"),
        (b"access-control-expose-headers", b"x-request-id"),
    ]
    line.upstream.expects(
        replies(b"", 204, [*allowed, (b"allow", b"POST")]),
        replies(answer_body(), 200, [*allowed, (b"vary", b"Origin")]),
    )
    plain = await line.asks(b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (plain.status, plain.header("allow")) == (204, "POST")
    reply = await line.asks(post(chat_body(model="large")))
    assert (reply.status, reply.header("vary")) == (200, "Origin")
    for answer in (plain, reply):
        assert [name for name, _ in answer.headers if name.startswith(b"access-control-")] == []


# What the form of an answer, its storage and its tools are, and what chooses how the model runs.
FORM: Json = {
    "response_format": {"type": "json_object"},
    "prediction": {"type": "content", "content": "x"},
    "store": True,
    "metadata": {"team": "blue"},
    "web_search_options": {"search_context_size": "low"},
    "stop": ["\n\n"],
    "logit_bias": {"50256": -100},
}
RUNS: Json = {
    "safety_identifier": "s",
    "service_tier": "flex",
    "seed": 12345678901234567890,
    "user": "u",
    "prompt_cache_key": "k",
    "reasoning_effort": "low",
    "enable_thinking": False,
    "chat_template_kwargs": {"enable_thinking": False},
    "provider": {"order": ["a"]},
    "temperature": 0.5,
    "unheard_of": [1.0, {"a": None}],
}
OURS = {"model", "messages", "max_tokens", "tools", "tool_choice", "stream", "stream_options"}


@pytest.mark.spec("W17")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_summary_is_asked_for_as_the_chat_is(tmp_path: Path, stream: bool) -> None:
    """A gateway that routes by a header, and serves only streams or only whole answers."""
    model = ModelServer(window=5_000)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(extra=FORM | RUNS, stream=stream)
        chat.headers |= {"x-portkey-provider": "@there", "x-session-id": "s", "idempotency-key": "k"}
        for turn in range(14):
            chat.headers["idempotency-key"] = str(turn)
            await chat.says(f"Entry {turn}. {prose(turn, 420)}")
        assert {row["author"] for row in await chat.compactions()} == {"model"}
        for seen in model.summaries:
            assert {key: seen.body[key] for key in seen.body if key not in OURS} == RUNS
            assert seen.body.get("stream", False) is stream
            assert seen.headers["x-portkey-provider"] == "@there"
            assert not {"x-session-id", "idempotency-key"} & seen.headers.keys()
        for seen in model.prompts:
            assert {key: seen.body[key] for key in FORM | RUNS} == FORM | RUNS


@pytest.mark.spec("W18")
@pytest.mark.parametrize("status", [401, 429])
async def test_a_long_compaction_hides_no_status_of_a_stream(tmp_path: Path, status: int) -> None:
    """Nothing goes out before the upstream has spoken: no comment that would make it a 200 (rule 16)."""
    let_go, asked = asyncio.Event(), asyncio.Event()

    async def summary(seen: Seen) -> Says:
        asked.set()
        await let_go.wait()
        return Says({"role": "assistant", "content": plain_summary(seen)})

    model = ModelServer(window=6_000, summary=summary)
    async with proxied(model, tmp_path, {"compaction.deadline_seconds": 0.2}) as proxy:
        chat = proxy.chat(stream=True)
        history: list[Json] = []
        for turn in range(12):
            history.append({"role": "user", "content": f"Entry {turn}. {prose(turn, 420)}"})
            history.append({"role": "assistant", "content": f"Noted {turn}."})
        model.answers.append(Says(status=status, error={"error": {"message": "no", "code": "c"}}))
        reply = await chat.posts([*history, {"role": "user", "content": "And now?"}])
        assert asked.is_set()
        assert reply.status_code == status
        assert reply.json()["error"]["code"] == "c"
        await chat.posts([*history, {"role": "user", "content": "And now, again?"}])
        assert chat.reply.status_code == 200
        assert chat.reply.text.startswith("data: ")
        let_go.set()


@on_module_loop
@pytest.mark.spec("W11")
@pytest.mark.parametrize("coded", [False, True])
async def test_every_place_of_a_cut_is_as_good_as_any(line: Line, coded: bool) -> None:
    """Two pieces, cut at every byte, each on its way before the other is sent."""
    body = gzip.compress(ODD, mtime=0) if coded else ODD
    coding = [(b"Content-Encoding", b"gzip")] if coded else []

    async def in_two(wire: Wire) -> None:
        at = json.loads(wire.request.body)["seed"]
        await wire.send(head(200, [SSE, *coding, (b"Transfer-Encoding", b"chunked")]))
        for part in (body[:at], body[at:]):
            if part:
                await wire.send(chunk(part))
        await wire.send(b"0\r\n\r\n")

    async def some(start: int) -> None:
        async with line.caller() as caller:
            for at in range(start, len(body) + 1, 8):
                await caller.sends(post(chat_body(f"odd {coded} {at}", model="large", stream=True, seed=at)))
                reply = await caller.reply()
                assert (reply.status, reply.is_whole, reply.body) == (200, True, body), at
                assert line.states(reply) == ["done"], at

    line.upstream.always(in_two)
    await asyncio.gather(*(some(start) for start in range(8)))
    texts = line.query("SELECT DISTINCT CAST(body AS TEXT) FROM bodies WHERE instr(body, CAST('🌍' AS BLOB))")
    assert [json.loads(text)["content"] for (text,) in texts] == ["ü🌍!"]


@on_module_loop
@pytest.mark.spec("W15")
@pytest.mark.parametrize("status", [200, 429, 503])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_answer_says_of_limits_and_itself_is_relayed(
    line: Line, status: int, stream: bool
) -> None:
    body = [event({"role": "assistant", "content": "Hi"}), event({}, "stop"), DONE]
    is_events = stream and status == 200
    line.upstream.expects(
        streams(body, [*HEADERS, SSE]) if is_events else replies(answer_body(), status, HEADERS)
    )
    reply = await line.asks(post(chat_body(model="large", stream=stream)))
    assert reply.status == status
    assert [pair for pair in reply.headers if pair in HEADERS] == HEADERS
