"""A streamed answer of the Responses API: what is stored of it, however it comes and however it ends."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from palimpsest.core.wire.chat_answers import UnreadableAnswer
from palimpsest.core.wire.responses.answers import ResponseAssembly, parse_response
from palimpsest.core.wire.streams import FrameSplitter, data_of

pytestmark = pytest.mark.spec("W50")

Json = dict[str, Any]

THOUGHT: Json = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
PART: Json = {"type": "output_text", "text": "It is né.", "annotations": [], "logprobs": []}
WORDS: Json = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [PART],
}
CALL: Json = {
    "id": "f",
    "type": "function_call",
    "name": "go",
    "arguments": '{"a":1}',
    "call_id": "c",
    "x": 0.25,
}
OUTPUT = [THOUGHT, WORDS, CALL]
USAGE: Json = {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}}


def whole(status: str = "completed", **fields: Any) -> Json:
    return {"id": "resp_1", "status": status, "output": OUTPUT, "usage": USAGE} | fields


def begun() -> list[Json]:
    response = {"id": "resp_1", "status": "in_progress", "output": []}
    return [{"type": "response.created", "response": response}, {"type": "response.in_progress"}]


def spoken(place: int, item: Json) -> list[Json]:
    at = {"output_index": place, "item_id": item["id"]}
    events = [{"type": "response.output_item.added", "output_index": place, "item": item | {"content": []}}]
    if item["type"] == "message":
        events += [
            {"type": "response.output_text.delta", **at, "delta": piece} for piece in ("It ", "is né.")
        ]
    events += [{"type": "response.function_call_arguments.delta", **at, "delta": "{"}]
    return [*events, {"type": "response.output_item.done", "output_index": place, "item": item}]


def ended(response: Json, kind: str = "completed") -> Json:
    return {"type": f"response.{kind}", "response": response}


SAID = [event for place, item in enumerate(OUTPUT) for event in spoken(place, item)]


def framed(events: list[Json]) -> bytes:
    pieces = (b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)
    return b"".join(pieces)


def heard(stream: bytes, *cuts: int) -> ResponseAssembly:
    assembly, splitter = ResponseAssembly(), FrameSplitter(1_000_000)
    places = [0, *sorted(cuts), len(stream)]
    frames = [frame for start, end in pairwise(places) for frame in splitter.feed(stream[start:end])]
    for frame in [*frames, *splitter.finish()]:
        if (data := data_of(frame)) is not None:
            assembly.feed(data)
    return assembly


def items_in(assembly: ResponseAssembly) -> list[Json]:
    (choice,) = assembly.choices()
    items: list[Json] = json.loads(choice.message_body)
    return items


STREAM = framed([*begun(), *SAID, ended(whole())])


def test_a_stream_cut_anywhere_is_the_same_answer() -> None:
    for place in range(len(STREAM)):
        assembly = heard(STREAM, place)
        assert items_in(assembly) == OUTPUT
        assert assembly.is_finished
        assert assembly.response_id == "resp_1"


@pytest.mark.parametrize("kept", range(len(SAID)))
def test_what_had_come_of_a_stream_without_an_end_is_no_finished_answer(kept: int) -> None:
    assembly = heard(framed([*begun(), *SAID[:kept]]))
    assert not assembly.is_finished
    assert assembly.error is None
    (answer, *_) = assembly.choices() or (None,)
    if answer is not None:
        assert answer.finish_reason is None
        items = json.loads(answer.message_body)
        assert items[0] == THOUGHT
        said = items[1]["content"][0]["text"] if len(items) > 1 else ""
        assert "It is né.".startswith(said)


FAILURES: list[Json] = [
    ended(whole("failed", output=[], error={"code": "server_error", "message": "x"}), "failed"),
    {"type": "error", "code": "rate_limit_exceeded", "message": "x", "param": None},
    {"error": {"message": "x"}, "type": None},
]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kept", [0, 3])
def test_a_failure_is_no_finished_answer(failure: Json, kept: int) -> None:
    assembly = heard(
        b"".join([framed(begun() + SAID[:kept]), b"data: " + json.dumps(failure).encode() + b"\n\n"])
    )
    assert assembly.error == json.dumps(failure).encode()
    assert not assembly.is_finished


@pytest.mark.parametrize("output", [[], None, "absent"])
def test_an_end_that_repeats_nothing_ends_what_was_said(output: Any) -> None:
    response = whole(output=output)
    if output == "absent":
        del response["output"]
    assembly = heard(framed([*SAID, ended(response)]))
    assert items_in(assembly) == OUTPUT
    assert assembly.choices()[0].finish_reason == "tool_calls"


ODD: list[Any] = [
    7,
    [],
    {"type": "response.output_item.done"},
    {"type": "response.output_item.done", "output_index": 0, "item": None},
    {"type": "response.output_item.done", "output_index": 0, "item": [1]},
    {"type": "response.output_text.delta", "output_index": "0", "delta": "x"},
    {"type": "response.output_text.delta", "output_index": 0, "delta": 5},
    {"type": "response.completed"},
    {"type": "response.completed", "response": {"output": [1, None], "status": 5, "usage": "x", "id": 7}},
    {"type": ["x"], "output_index": True},
    {"type": "response.never_heard_of", "output_index": 0},
]


@pytest.mark.parametrize(
    "body",
    [
        whole(output=[1]),
        whole(output=[]),
        whole(output=None),
        whole(output={}),
        whole("failed"),
        whole(error={"message": "x"}),
        [],
        {},
    ],
)
def test_a_body_without_an_answer_is_none(body: Any) -> None:
    assert isinstance(parse_response(json.dumps(body).encode()), UnreadableAnswer)
