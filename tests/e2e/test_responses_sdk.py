"""The real OpenAI SDK speaks the Responses API through the proxy as to the model server itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from tests.kit.responses import call_item, text_item, thought_item
from tests.kit.wire import Line, wired
from tests.upstream.scripted import Script, chunk, cuts_after, head, replies, streams

Json = dict[str, Any]
JSON = (b"content-type", b"application/json")
EVENTS = (b"Content-Type", b"text/event-stream; charset=utf-8")
TOOLS: Any = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}]
QUESTION: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
SAID = '{"city": "Oslo", "degrees": 7}'


class Weather(BaseModel):
    """What an answer is parsed into."""

    city: str
    degrees: int


def response(output: list[Json], ident: str = "resp_1", **fields: Any) -> Json:
    usage: Json = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    usage |= {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    told: Json = {"id": ident, "object": "response", "created_at": 1, "model": "m", "tools": TOOLS}
    told |= {"status": "completed", "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}}
    return {**told, "error": None, "output": output, "usage": usage, **fields}


def events(output: list[Json], end: str = "completed", **fields: Any) -> list[bytes]:
    """A stream as OpenAI sends it, event by event."""
    begun = response([], status="in_progress", usage=None)
    told: list[Json] = [
        {"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")
    ]
    for place, item in enumerate(output):
        told += _spoken({"output_index": place, "item_id": item["id"]}, item)
    told.append({"type": f"response.{end}", "response": response(output, **fields)})
    return [_frame(event | {"sequence_number": number}) for number, event in enumerate(told)]


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _spoken(at: Json, item: Json) -> list[Json]:
    place = {"output_index": at["output_index"]}
    empty: Json = {"content": []} if item["type"] == "message" else {}
    empty = {"arguments": ""} if item["type"] == "function_call" else empty
    told: list[Json] = [{"type": "response.output_item.added", **place, "item": item | empty}]
    for number, part in enumerate(item.get("content") or []):
        here = at | {"content_index": number}
        text = part["text"]
        told.append({"type": "response.content_part.added", **here, "part": part | {"text": ""}})
        pieces = (text[:9], text[9:])
        told += [{"type": "response.output_text.delta", **here, "delta": p, "logprobs": []} for p in pieces]
        told.append({"type": "response.output_text.done", **here, "text": text, "logprobs": []})
        told.append({"type": "response.content_part.done", **here, "part": part})
    if item["type"] == "function_call":
        said = item["arguments"]
        told.append({"type": "response.function_call_arguments.delta", **at, "delta": said})
        told.append(
            {"type": "response.function_call_arguments.done", **at, "arguments": said, "name": "weather"}
        )
    return [*told, {"type": "response.output_item.done", **place, "item": item}]


TEXT = [text_item(SAID)]
CALLS = [thought_item("rs_1"), call_item("c1", "weather", {"city": "Oslo"}), call_item("c2", "weather", {})]
ERROR = b'{"error":{"message":"boom","type":"server_error","param":null,"code":null}}'
OVERLOADED: Json = {"error": {"code": "server_error", "message": "boom"}, "status": "failed"}
CUT_SHORT: Json = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
IN_BAND: Json = {
    "type": "error",
    "code": "server_error",
    "message": "boom",
    "param": None,
    "sequence_number": 2,
}


def whole(output: list[Json], **fields: Any) -> Script:
    return replies(json.dumps(response(output, **fields)).encode(), 200, [JSON])


ANSWERS: dict[str, tuple[Script, bool]] = {
    "text": (whole(TEXT), False),
    "tools": (whole(CALLS), False),
    "text_stream": (streams(events(TEXT), [EVENTS]), True),
    "tool_stream": (streams(events(CALLS), [EVENTS]), True),
    "done_stream": (streams([*events(TEXT), b"data: [DONE]\n\n"], [EVENTS]), True),
    "cut_short": (streams(events(TEXT, "incomplete", **CUT_SHORT), [EVENTS]), True),
    "failed": (streams(events([], "failed", **OVERLOADED), [EVENTS]), True),
    "error_in_stream": (streams([*events(TEXT)[:4], _frame(IN_BAND)], [EVENTS]), True),
    "error": (replies(ERROR, 400, [JSON, (b"x-request-id", b"r")]), False),
    "rate_limit": (replies(ERROR, 429, [JSON, (b"retry-after", b"3")]), True),
    "html": (replies(b"<html>Bad gateway</html>", 502, [(b"content-type", b"text/html")]), True),
}


def _failure(error: openai.APIError) -> list[Any]:
    return [type(error).__name__, error.message, getattr(error, "request_id", None), error.body]


def asked(url: str, stream: bool, **options: Any) -> list[Any]:
    """What the SDK makes of one answer: what it returned, event by event, or the error it raised."""
    with (
        httpx2.Client(trust_env=False) as http,
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", http_client=http, **options) as client,
    ):
        try:
            made: Any = client.responses.create(model="m", input=QUESTION, tools=TOOLS, stream=stream)
            return [part.model_dump() for part in made] if stream else [made.model_dump()]
        except openai.APIError as error:
            return _failure(error)


async def asked_async(url: str, stream: bool, **options: Any) -> list[Any]:
    """The same with the asynchronous SDK."""
    async with client_of(url, **options) as client:
        try:
            made: Any = await client.responses.create(model="m", input=QUESTION, tools=TOOLS, stream=stream)
            return [part.model_dump() async for part in made] if stream else [made.model_dump()]
        except openai.APIError as error:
            return _failure(error)


async def helped(url: str, stream: bool) -> list[Any]:
    """The same by the SDK's helpers, which assemble a stream and parse what it says."""
    async with client_of(url, max_retries=0) as client:
        try:
            if not stream:
                return [
                    (
                        await client.responses.parse(model="m", input=QUESTION, text_format=Weather)
                    ).model_dump()
                ]
            async with client.responses.stream(model="m", input=QUESTION, text_format=Weather) as made:
                heard = [part.type async for part in made]
                return [*heard, (await made.get_final_response()).output_parsed]
        except openai.APIError as error:
            return _failure(error)
        except RuntimeError as error:
            return [str(error)]


def client_of(url: str, sent: list[bytes] | None = None, **options: Any) -> openai.AsyncOpenAI:
    """An SDK; `sent` gets the body of each of its requests."""

    async def noted(request: httpx2.Request) -> None:
        if sent is not None:
            sent.append(request.content)

    http = httpx2.AsyncClient(trust_env=False, verify=False, event_hooks={"request": [noted]})
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", http_client=http, **options)


@pytest.mark.spec("W45")
async def test_the_sdk_cannot_tell_the_proxy_from_the_model_server(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        for name, (script, stream) in ANSWERS.items():
            line.upstream.expects(*[script] * 6)
            results: list[list[Any]] = []
            for url in (line.upstream.url, line.url):
                results.append(await asked_async(url, stream, max_retries=0))
                results.append(await asyncio.to_thread(asked, url, stream, max_retries=0))
            assert results[0], name
            assert results == [results[0]] * 4, name
            assert await helped(line.url, stream) == await helped(line.upstream.url, stream), name


CUT = head(200, [EVENTS, (b"Transfer-Encoding", b"chunked")]) + b"".join(map(chunk, events(TEXT)[:5]))


@pytest.mark.spec("W45")
async def test_a_cut_stream_is_an_error_for_the_sdk(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(cuts_after(len(CUT), CUT))
        proxied = await asked_async(line.url, True)
        assert proxied[0] == "APIError"
        assert proxied[3]["code"] == "upstream_cut"
        await kept_as_incomplete(line)


@pytest.mark.spec("H09")
async def test_a_stream_that_ends_early_in_good_order_is_the_same_without_us(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(streams(events(TEXT)[:5]), streams(events(TEXT)[:5]))
        direct = await asked_async(line.upstream.url, True)
        assert len(direct) == 5
        assert await asked_async(line.url, True) == direct
        await kept_as_incomplete(line)


async def kept_as_incomplete(line: Line) -> None:
    (_, said) = await line.rows(line.session_of_newest(), "k")
    assert said["state"] == "incomplete"
    assert said["message"][0]["content"][0]["text"] == SAID[:9]


@pytest.mark.spec("W46")
async def test_a_retry_of_the_sdk_is_one_stored_turn(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        soon = [(b"retry-after-ms", b"1")]
        failed = [replies(ERROR, 500, soon), replies(ERROR, 429, soon), cuts_after(0, b"")]
        line.upstream.expects(*failed, ANSWERS["text"][0])
        (made,) = await asked_async(line.url, False, max_retries=3)
        assert made["output"][0]["content"][0]["text"] == SAID
        assert len({len(request.body) for request in line.upstream.requests}) == 1
        assert line.query("SELECT count(*) FROM sessions") == [(1,)]
        assert line.query("SELECT count(*) FROM messages") == [(2,)]


HABITS: dict[str, Callable[[Any], list[Any]]] = {
    "the objects": lambda output: list(output),
    "dumped": lambda output: [item.model_dump(mode="json") for item in output],
    "without ids": lambda output: [
        item.model_dump(mode="json", exclude={"id", "status"}, exclude_none=True) for item in output
    ],
    "without thoughts": lambda output: [item for item in output if item.type != "reasoning"],
}


@pytest.mark.spec("W46", "P1")
@pytest.mark.parametrize("habit", HABITS)
async def test_a_loop_of_tools_is_one_session_whatever_is_sent_back(habit: str, tmp_path: Path) -> None:
    sent: list[bytes] = []
    async with wired(tmp_path) as line, client_of(line.url, sent) as client:
        line.upstream.expects(whole(CALLS), ANSWERS["text_stream"][0], whole(TEXT, id="resp_3"))
        said: list[Any] = [*QUESTION]
        first = await client.responses.create(model="m", input=said, tools=TOOLS)
        said += HABITS[habit](first.output)
        said += [{"type": "function_call_output", "call_id": c, "output": "7"} for c in ("c2", "c1")]
        async with client.responses.stream(model="m", input=said, tools=TOOLS) as made:
            said += HABITS[habit]((await made.get_final_response()).output)
        said.append({"role": "user", "content": "Thanks."})
        await client.responses.create(model="m", input=said, tools=TOOLS)
        assert line.query("SELECT count(*) FROM sessions") == [(1,)]
        rows = await line.rows(line.session_of_newest(), "k")
        roles = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
        assert [row["role"] for row in rows] == roles
        # The upstream was sent what the client sent, byte for byte, and the store has the model's own words.
        assert [request.body for request in line.upstream.requests] == sent
        assert len(sent) == 3
        assert rows[1]["message"] == CALLS


@pytest.mark.spec("W46")
async def test_a_chain_of_answers_is_one_session(tmp_path: Path) -> None:
    async with wired(tmp_path) as line, client_of(line.url, max_retries=1) as client:
        answers = [whole([text_item(f"Answer {n}.", f"msg_{n}")], id=f"resp_{n}") for n in range(3)]
        line.upstream.expects(answers[0], cuts_after(0, b""), *answers[1:])
        made = await client.responses.create(model="m", input="One.")
        for words in ("Two.", "Three."):
            made = await client.responses.create(model="m", input=words, previous_response_id=made.id)
        assert line.query("SELECT count(*) FROM sessions") == [(1,)]
        rows = await line.rows(line.session_of_newest(), "k")
        assert [row["role"] for row in rows] == ["user", "assistant"] * 3
        assert b"One." not in line.upstream.requests[-1].body
