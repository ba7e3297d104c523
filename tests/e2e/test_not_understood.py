"""What is not understood is the upstream's to refuse: it gets the same bytes, the client its answer (P8)."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.wire import Line, Reply, answer_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Scripted, Wire, head, replies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("H08")]

USER = {"role": "user", "content": "hi"}
REFUSED = b'{"error":{"message":"[] is too short","type":"invalid_request_error","param":null,"code":null}}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy that takes few messages and little nesting, before an upstream that judges by itself."""
    limits = {"limits.messages": 50, "limits.json_depth": 20, "compaction.background": False}
    async with wired(tmp_path_factory.mktemp("line"), limits) as running:
        yield running


def body_of(**fields: Any) -> bytes:
    """A request of one new message, with these fields in it or in place of its own."""
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


# What no conversation can be read from.
UNREAD: dict[str, bytes] = {
    "nothing": b"{}",
    "no_messages": b'{"model":"m"}',
    "null_messages": body_of(messages=None),
    "empty_messages": body_of(messages=[]),
    "object_of_messages": body_of(messages={"0": USER}),
    "text_for_messages": body_of(messages="hi"),
    "text_as_message": body_of(messages=["hi"]),
    "null_as_message": body_of(messages=[USER, None]),
    "list_as_message": body_of(messages=[[USER]]),
    "too_many_messages": body_of(messages=[USER] * 51),
    "long_model": body_of(model="m" * 513),
    "array": b"[]",
    "string": b'"hi"',
    "null": b"null",
    "deep": body_of(messages=[USER], x=json.loads("[" * 30 + "]" * 30)),
    "deep_in_message": body_of(messages=[USER | {"x": json.loads("[" * 30 + "]" * 30)}]),
    "far_too_deep": b'{"messages":[{"role":"user","content":' + b"[" * 90_000 + b"]" * 90_000 + b"}]}",
}
# What one can be read from all the same.
READ: dict[str, bytes] = {
    "byte_order_mark": b"\xef\xbb\xbf" + body_of(),
    "stream_1": body_of(stream=1),
    "stream_true": body_of(stream="true"),
    "stream_object": body_of(stream={}),
    "max_tokens_text": body_of(max_tokens="100"),
    "max_tokens_words": body_of(max_tokens="many"),
    "max_tokens_infinite": body_of(max_tokens=7).replace(b"7", b"1e400"),
    "max_tokens_list": body_of(max_completion_tokens=[10]),
    "n_text": body_of(n="1"),
    "n_0": body_of(n=0),
    "n_half": body_of(n=1.5),
    "n_true": body_of(n=True),
    "model_number": body_of(model=7),
    "model_list": body_of(model=["m"]),
    "no_model": json.dumps({"messages": [USER]}).encode(),
    "tools_object": body_of(tools={}),
    "tools_text": body_of(tools="none"),
    "tools_of_numbers": body_of(tools=[1, None, "x"]),
    "tool_choice_list": body_of(tools=[], tool_choice=[1]),
    "stream_options_text": body_of(stream_options="x"),
    "content_texts": body_of(messages=[{"role": "user", "content": ["text"]}]),
    "content_number": body_of(messages=[{"role": "user", "content": 7}]),
    "content_object": body_of(messages=[{"role": "user", "content": {"type": "text"}}]),
    "content_nulls": body_of(messages=[{"role": "user", "content": [None]}]),
    "no_role": body_of(messages=[{"content": "hi"}]),
    "null_role": body_of(messages=[{"role": None, "content": "hi"}]),
    "number_as_role": body_of(messages=[{"role": 7, "content": 0.5}]),
    "list_as_role": body_of(messages=[{"role": ["user"], "content": "hi"}]),
    "unknown_role": body_of(messages=[{"role": "narrator", "content": "hi"}]),
    "empty_message": body_of(messages=[{}]),
    "metadata_list": body_of(metadata=[1]),
    "calls_text": body_of(messages=[USER, {"role": "assistant", "tool_calls": "x"}, USER]),
    "sealed_number": body_of(messages=[USER, {"role": "assistant", "encrypted_reasoning": 7}, USER]),
}  # fmt: skip


async def passes(line: Line, body: bytes, *, path: str = "/v1/chat/completions") -> Reply:
    """The upstream gets these bytes and refuses them; the client gets its words."""
    line.upstream.expects(replies(REFUSED, 400))
    reply = await line.asks(post(body, path=path))
    assert line.upstream.requests[-1].body == body
    assert (reply.status, reply.body) == (400, REFUSED)
    return reply


@pytest.mark.parametrize("name", UNREAD)
async def test_what_cannot_be_read_goes_on_unrecorded(line: Line, name: str) -> None:
    stored = line.query("SELECT count(*) FROM exchanges")
    reply = await passes(line, UNREAD[name])
    assert reply.header("x-palimpsest-store") == "not-understood"
    assert reply.header("x-palimpsest-session") is None
    assert line.query("SELECT count(*) FROM exchanges") == stored


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_body_in_a_coding_nobody_here_knows_goes_on(line: Line, path: str) -> None:
    line.upstream.expects(replies(REFUSED, 400))
    reply = await line.asks(post(b"\0\1\2", [(b"Content-Encoding", b"x-unheard-of")], path=path))
    sent = line.upstream.requests[-1]
    assert (sent.body, sent.header("content-encoding")) == (b"\0\1\2", "x-unheard-of")
    assert (reply.status, reply.body) == (400, REFUSED)
    assert reply.header("x-palimpsest-store") == "not-understood"


@pytest.mark.parametrize("name", READ)
async def test_what_can_be_read_is_recorded_however_odd(line: Line, name: str) -> None:
    reply = await passes(line, READ[name])
    assert reply.header("x-palimpsest-store") is None
    assert line.states(reply)[-1] == "rejected"


@pytest.mark.parametrize("name", READ)
async def test_an_upstream_that_accepts_it_has_its_answer_kept(line: Line, name: str) -> None:
    line.upstream.expects(replies(answer_body(f"to {name}")))
    reply = await line.asks(post(READ[name], key=f"accepted-{name}"))
    assert (reply.status, reply.body) == (200, answer_body(f"to {name}"))
    rows = await line.rows(reply, f"accepted-{name}")
    said = json.loads(READ[name].removeprefix(b"\xef\xbb\xbf"))["messages"]
    assert [row["message"] for row in rows] == [*said, {"role": "assistant", "content": f"to {name}"}]


ODD_ITEMS: dict[str, bytes] = {
    "number": b'{"model":"m","input":7}',
    "object": b'{"model":"m","input":{"role":"user","content":"hi"}}',
    "of_numbers": b'{"model":"m","input":[1,2]}',
    "of_texts": b'{"model":"m","input":["hi"]}',
    "goes_on_from_a_number": b'{"model":"m","previous_response_id":7,"input":"hi"}',
    "too_many": json.dumps({"model": "m", "input": [USER] * 51}).encode(),
}
ODD_READ: dict[str, bytes] = {
    "byte_order_mark": b'\xef\xbb\xbf{"model":"m","input":"hi"}',
    "limit_text": b'{"model":"m","input":"hi","max_output_tokens":"100"}',
    "instructions_object": b'{"model":"m","input":"hi","instructions":{"a":[1]}}',
    "content_number": b'{"model":"m","input":[{"role":"user","content":7}]}',
    "content_texts": b'{"model":"m","input":[{"role":"user","content":["hi"]}]}',
    "type_number": b'{"model":"m","input":[{"type":7,"content":"hi"}]}',
    "type_list": b'{"model":"m","input":[{"type":["message"],"role":"user","content":"hi"}]}',
    "call_without_id": b'{"model":"m","input":[{"type":"function_call","name":7},{"role":"user"}]}',
}


@pytest.mark.parametrize("name", ODD_ITEMS)
async def test_input_that_cannot_be_read_goes_on_unrecorded(line: Line, name: str) -> None:
    reply = await passes(line, ODD_ITEMS[name], path="/v1/responses")
    assert reply.header("x-palimpsest-store") == "not-understood"


@pytest.mark.parametrize("name", ODD_READ)
async def test_input_that_can_be_read_is_recorded(line: Line, name: str) -> None:
    reply = await passes(line, ODD_READ[name], path="/v1/responses")
    assert line.states(reply)[-1] == "rejected"


async def test_a_lenient_server_streams_to_who_asks_for_it_in_a_word(line: Line) -> None:
    events = b'data: {"choices":[{"index":0,"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\n'
    line.upstream.expects(replies(events, 200, [(b"Content-Type", b"text/plain")]))
    reply = await line.asks(post(body_of(stream="True"), key="worded"))
    assert reply.body == events
    assert line.states(reply) == ["done"]


async def test_every_choice_is_kept_of_a_number_in_a_word(line: Line) -> None:
    choices = [{"index": at, "delta": {"content": f"No. {at}"}, "finish_reason": "stop"} for at in range(2)]
    events = b"".join(b"data: " + json.dumps({"choices": [each]}).encode() + b"\n\n" for each in choices)
    line.upstream.expects(replies(events, 200, [(b"Content-Type", b"text/event-stream")]))
    reply = await line.asks(post(body_of(stream=True, n="2"), key="two"))
    assert reply.body == events
    session = reply.header("x-palimpsest-session")
    assert line.query("SELECT count(*) FROM messages WHERE session = ?", session) == [(3,)]


# Values that stand in for others, anywhere.
STRANGE: list[Any] = [
    None, True, 0, -1, 1.5, "", "x", "1", [], {}, [None], ["text"], {"type": 7}, [[]], 10**30, "\ud83d",
]  # fmt: skip
VALID: list[dict[str, Any]] = [
    {"model": "m", "messages": [USER], "stream": False, "n": 1, "max_tokens": 10},
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "42"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "metadata": {"session_id": "s"}, "stream_options": {"include_usage": True},
    },
]  # fmt: skip
ITEMS: list[dict[str, Any]] = [
    {
        "model": "m", "instructions": "Be brief.", "max_output_tokens": 9,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "b"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "42"},
            {"id": "i", "type": "item_reference"},
        ],
    },
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value where something else can be put."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from places(value[key])


def mutated(seed: int, samples: list[dict[str, Any]]) -> bytes:
    chance = random.Random(seed)
    value = copy.deepcopy(chance.choice(samples))
    for _ in range(chance.randint(1, 3)):
        at, key = chance.choice(list(places(value)))
        if chance.random() < 0.2:
            del at[key]
        else:
            at[key] = copy.deepcopy(chance.choice(STRANGE))
        if not value:
            break
    return chance.choice([b"", b"", b"", b"\xef\xbb\xbf"]) + json.dumps(value).encode()


async def judges(wire: Wire) -> None:
    """A strict server, in the manner of those in use: what it answers follows from the bytes alone."""
    try:
        value = json.loads(wire.request.body.decode())
        list_ = value.get("messages", value.get("input"))
        assert isinstance(list_, list) and list_ and all(isinstance(each, dict) for each in list_)  # noqa: PT018
        assert type(value.get("n", 1)) is int
        assert value.get("stream") in (None, False)
        status, answer = 200, answer_body("Fine.")
    except (AssertionError, ValueError, AttributeError) as error:
        told = {"message": f"{type(error).__name__}: {len(wire.request.body)}", "code": None}
        status, answer = 422, json.dumps({"error": told}).encode()
    length = (b"Content-Length", b"%d" % len(answer))
    await wire.send(head(status, [(b"Content-Type", b"application/json"), length]) + answer)


@pytest.mark.parametrize(("path", "samples"), [("chat/completions", VALID), ("responses", ITEMS)])
async def test_mutations_fare_as_they_would_without_the_proxy(
    line: Line, path: str, samples: list[dict[str, Any]]
) -> None:
    line.upstream.always(judges)
    direct = Line(line.upstream.url, line.upstream, line.folder, line.http)
    for seed in range(250):
        body = mutated(seed, samples)
        request = post(body, path=f"/v1/{path}", key=f"mutation-{path}-{seed}")
        there, here = await direct.asks(request), await line.asks(request)
        assert (here.status, here.body) == (there.status, there.body), body
        assert line.upstream.requests[-1].body == body


async def test_a_long_conversation_with_odd_messages_is_folded_all_the_same(tmp_path: Path) -> None:
    small = {
        "models": [{"match": "*", "window_tokens": 4_000}],
        "compaction.deadline_seconds": 0,
        "compaction.background": False,
    }
    odd: list[Any] = [
        {"content": "no role"}, {"role": 7, "content": 7}, {"role": "user", "content": ["a text"]},
        {"role": "narrator", "content": {"text": "x"}}, {"role": "assistant", "tool_calls": 7}, {},
        {"role": ["user"], "content": [None, {"type": 7}]},
    ]  # fmt: skip
    said: list[Any] = [{"role": "system", "content": "You keep the log."}]
    async with wired(tmp_path, small) as line:
        for turn in range(14):
            said += [odd[turn % len(odd)], {"role": "user", "content": f"Entry {turn}. {prose(turn, 350)}"}]
            line.upstream.expects(replies(answer_body(f"Noted {turn}.")))
            reply = await line.asks(post(json.dumps({"model": "m", "messages": said}).encode()))
            assert (reply.status, reply.json()["choices"][0]["message"]["content"]) == (200, f"Noted {turn}.")
            said.append({"role": "assistant", "content": f"Noted {turn}."})
        assert reply.header("x-palimpsest-view") == "compacted"
        sent = json.loads(line.upstream.requests[-1].body)["messages"]
        assert len(sent) < len(said) / 2
        assert (sent[0], sent[-1]) == (said[0], said[-2])
        assert [row["message"] for row in await line.rows(reply)] == said


@pytest.mark.parametrize("name", ["text_for_messages", "deep", "byte_order_mark", "no_model", "array"])
async def test_with_several_upstreams_it_goes_to_the_one_of_its_model(tmp_path: Path, name: str) -> None:
    body = ({**UNREAD, **READ}[name]).replace(b'"m"', b'"local-1"')
    is_named = b'"local-1"' in body
    async with Scripted() as local:
        routes = [{"match": "local-*", "base_url": f"{local.url}/v1", "model": "there-*"}]
        async with wired(tmp_path, {"routes": routes}) as line:
            there = local if is_named else line.upstream
            there.expects(replies(REFUSED, 400))
            reply = await line.asks(post(body))
            assert (reply.status, reply.body) == (400, REFUSED)
            sent = there.requests[-1].body
    assert sent.removeprefix(b"\xef\xbb\xbf") == body.removeprefix(b"\xef\xbb\xbf").replace(
        b'"local-1"', b'"there-1"'
    )
