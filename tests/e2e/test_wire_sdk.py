"""The real OpenAI SDK gets through the proxy what it gets from the model server itself (S12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.kit.wire import Line, answer_body, event, wired
from tests.upstream.scripted import Script, chunk, cuts_after, head, replies, streams

MESSAGES: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}}
REST = {"index": 0, "function": {"arguments": '"Oslo"}'}}
USAGE = (
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}\n\n'
)
TEXT_STREAM = [
    event({"role": "assistant", "content": ""}),
    event({"content": "It "}),
    event({"content": "rains."}),
]
TEXT_STREAM += [event({}, "stop"), USAGE, b"data: [DONE]\n\n"]
TOOL_STREAM = [event({"tool_calls": [CALL]}), event({"tool_calls": [REST]}), event({}, "tool_calls")]
TOOL_STREAM += [b"data: [DONE]\n\n"]
WHOLE = {key: value for key, value in CALL.items() if key != "index"}
TOOL_ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [WHOLE]},
            "finish_reason": "tool_calls",
        }
    ],
}
JSON = (b"content-type", b"application/json")
FAILED = b'{"error":{"message":"boom","type":"server_error","param":null,"code":null}}'

ANSWERS: dict[str, tuple[Script, bool]] = {
    "text": (replies(answer_body(created=1, model="m"), 200, [JSON]), False),
    "tools": (replies(json.dumps(TOOL_ANSWER).encode(), 200, [JSON]), False),
    "text_stream": (streams(TEXT_STREAM), True),
    "tool_stream": (streams(TOOL_STREAM), True),
    "error": (replies(FAILED, 400, [JSON, (b"x-request-id", b"r")]), False),
    "rate_limit": (replies(FAILED, 429, [(b"retry-after", b"3")]), True),
    "error_in_stream": (streams([TEXT_STREAM[0], b"data: " + FAILED + b"\n\n"]), True),
}


def asked(url: str, stream: bool, **options: Any) -> list[Any]:
    """What the SDK makes of one answer: what it returned, piece by piece, or the error it raised."""
    with (
        httpx2.Client(trust_env=False) as http,
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", http_client=http, **options) as client,
    ):
        try:
            made = client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS, stream=stream)
            if not isinstance(made, openai.Stream):
                return [made.model_dump()]
            return [part.model_dump() for part in made]
        except openai.APIError as error:
            return [type(error).__name__, error.message, getattr(error, "request_id", None), error.body]


async def asked_async(url: str, stream: bool, **options: Any) -> list[Any]:
    """The same with the asynchronous SDK."""
    async with (
        httpx2.AsyncClient(trust_env=False, verify=False) as http,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", http_client=http, **options) as client,
    ):
        try:
            made = await client.chat.completions.create(
                model="m", messages=MESSAGES, tools=TOOLS, stream=stream
            )
            if not isinstance(made, openai.AsyncStream):
                return [made.model_dump()]
            return [part.model_dump() async for part in made]
        except openai.APIError as error:
            return [type(error).__name__, error.message, getattr(error, "request_id", None), error.body]


async def in_thread(call: Callable[..., list[Any]], *args: Any, **options: Any) -> list[Any]:
    return await asyncio.to_thread(call, *args, **options)


@pytest.mark.spec("P1")
@pytest.mark.spec("S12")
async def test_the_sdk_cannot_tell_the_proxy_from_the_model_server(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        for name, (script, stream) in ANSWERS.items():
            line.upstream.expects(script, script, script, script)
            results = []
            for url in (line.upstream.url, line.url):
                results.append(await asked_async(url, stream, max_retries=0))
                results.append(await in_thread(asked, url, stream, max_retries=0))
            assert results[0], name
            assert results == [results[0]] * 4, name


RETRIED = (408, 409, 429, 500, 503)


@pytest.mark.spec("S12", "W14")
async def test_a_retry_of_the_sdk_is_one_stored_turn(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        soon = [(b"retry-after-ms", b"1")]
        refusals = [replies(FAILED, status, soon) for status in RETRIED]
        line.upstream.expects(*refusals, ANSWERS["text"][0])
        (made,) = await asked_async(line.url, False, max_retries=len(RETRIED))
        assert made["choices"][0]["message"]["content"] == "Hello."
        sent = line.upstream.requests
        assert [r.header("x-stainless-retry-count") for r in sent] == [
            str(at) for at in range(len(RETRIED) + 1)
        ]
        assert {r.body for r in sent} == {sent[0].body}
        assert line.query("SELECT count(*) FROM sessions") == [(1,)]
        assert [row["role"] for row in await line.rows(line.session_of_newest(), "k")] == [
            "user",
            "assistant",
        ]
        assert line.query("SELECT count(*) FROM messages") == [(2,)]


@pytest.mark.spec("S12", "W14")
async def test_a_cut_whole_answer_is_retried_into_one_turn(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(cuts_after(0, b""), ANSWERS["text"][0])
        (made,) = await asked_async(line.url, False, max_retries=1)
        assert made["choices"][0]["message"]["content"] == "Hello."
        assert line.query("SELECT count(*) FROM messages") == [(2,)]


async def retried(line: Line, script: Script) -> int:
    """How often the upstream was asked by an SDK that may try three times."""
    before = len(line.upstream.requests)
    line.upstream.always(script)
    await asked_async(line.url, False, max_retries=2)
    return len(line.upstream.requests) - before


@pytest.mark.spec("W14")
async def test_what_the_upstream_says_of_retries_counts(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        never = replies(FAILED, 500, [(b"x-should-retry", b"false")])
        soon = replies(FAILED, 400, [(b"x-should-retry", b"true"), (b"retry-after-ms", b"1")])
        assert await retried(line, never) == 1
        assert await retried(line, soon) == 3


async def test_the_sdk_does_not_repeat_what_we_refuse(tmp_path: Path) -> None:
    seen = 0

    async def counting(_: httpx2.Request) -> None:
        nonlocal seen
        seen += 1

    async with (
        wired(tmp_path) as line,
        httpx2.AsyncClient(trust_env=False, verify=False, event_hooks={"request": [counting]}) as http,
        openai.AsyncOpenAI(base_url=f"{line.url}/v1", api_key="k", http_client=http) as client,
    ):
        said: Any = [{"role": "user", "content": "hi"}]
        wrong = {"X-Palimpsest": "maybe"}
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="m", messages=said, extra_headers=wrong)
        assert (refused.value.code, refused.value.param) == ("invalid_field", "X-Palimpsest")
        assert seen == 1


CUT = head(200, [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]) + b"".join(
    map(chunk, TEXT_STREAM[:2])
)


@pytest.mark.spec("P3", "W13")
async def test_a_cut_stream_is_an_error_for_the_sdk(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(cuts_after(len(CUT), CUT))
        proxied = await asked_async(line.url, True)
        assert proxied[0] == "APIError"
        assert proxied[3]["code"] == "upstream_cut"


@pytest.mark.spec("H09")
async def test_a_stream_that_ends_early_in_good_order_is_the_same_without_us(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(streams(TEXT_STREAM[:2]), streams(TEXT_STREAM[:2]))
        direct = await asked_async(line.upstream.url, True)
        assert len(direct) == 2
        assert await asked_async(line.url, True) == direct


async def test_the_sdk_streams_pages_and_models_through_the_proxy(tmp_path: Path) -> None:
    page = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "o"}]}
    async with wired(tmp_path) as line, httpx2.AsyncClient(trust_env=False, verify=False) as http:
        line.upstream.expects(replies(json.dumps(page).encode()), replies(b"\x00binary"))
        async with openai.AsyncOpenAI(base_url=f"{line.url}/v1", api_key="k", http_client=http) as client:
            assert [model.id async for model in client.models.list()] == ["m"]
            assert (await client.files.content("f")).content == b"\x00binary"
