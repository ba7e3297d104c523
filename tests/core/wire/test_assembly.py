from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.wire.chat_answers import AnsweredChoice, Assembly, Usage, Verdict
from palimpsest.core.wire.streams import FrameSplitter, data_of

ORDINARY = Verdict()


def chunk(delta: dict[str, Any] | None, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]} | more).encode()


def assembled(chunks: Iterable[bytes], n: int = 1) -> Assembly:
    assembly = Assembly(n)
    for data in chunks:
        assembly.feed(data)
    return assembly


def message_of(*deltas: dict[str, Any]) -> dict[str, Any]:
    (choice,) = assembled(chunk(delta) for delta in deltas).choices()
    message: dict[str, Any] = json.loads(choice.message_body)
    return message


def call(index: int | None, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [fields if index is None else {"index": index} | fields]}


@pytest.mark.spec("W10")
def test_tool_calls_come_interleaved_and_in_pieces() -> None:
    message = message_of(
        {"role": "assistant", "content": None},
        call(1, id="b", type="custom", custom={"name": "sql", "input": ""}),
        call(0, id="a", type="function", function={"name": "get_", "arguments": ""}),
        call(1, custom={"input": "select"}),
        call(0, function={"name": "weather", "arguments": '{"city":'}),
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": '"Oslo"}'}},
                {"index": 1, "custom": {"input": " 1"}},
            ]
        },
    )
    assert message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}},
        {"id": "b", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
    ]


def test_what_servers_repeat_in_every_delta_is_kept_once() -> None:
    again: dict[str, Any] = {"id": "a", "type": "function"}
    message = message_of(
        {"role": "assistant"} | call(0, **again, function={"name": "f", "arguments": "{"}),
        {"role": "assistant"} | call(0, **again, function={"name": "f", "arguments": "}"}),
        {"role": ""} | call(0, id="", type="", function={"name": "", "arguments": ""}),
        call(0, id=None, type=None, function={"name": None, "arguments": None}),
    )
    assert message["role"] == "assistant"
    assert message["tool_calls"] == [again | {"function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize("ids", ["abc", "ab ", "   "])
def test_calls_that_share_an_index_are_told_apart(ids: str) -> None:
    """By another id, or by a name after whole arguments; a later delta with an id finds its call again."""
    a, b, c = ({"id": ident.strip(), "type": "function"} for ident in ids)
    message = message_of(
        call(0, **a, function={"name": "f", "arguments": '{"city":'}),
        call(0, function={"arguments": '"A"}'}),
        call(0, **b, function={"name": "f", "arguments": ""}),
        call(0, function={"arguments": '{"city":"B"}'}),
        call(1, **c, function={"name": "g", "arguments": "{}"}),
        {"tool_calls": [{"index": 0, **b}, {"index": 0, **a}]} if ids == "abc" else {},
    )
    told = [(c["id"], c["function"]) for c in message["tool_calls"]]
    assert told == [
        (a["id"], {"name": "f", "arguments": '{"city":"A"}'}),
        (b["id"], {"name": "f", "arguments": '{"city":"B"}'}),
        (c["id"], {"name": "g", "arguments": "{}"}),
    ]


def test_tool_calls_without_an_index_open_with_their_id() -> None:
    message = message_of(
        call(None, id="a", function={"name": "f", "arguments": "{"}),
        call(None, function={"arguments": "}"}),
        {"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "{}"}}]},
    )
    assert [(c["id"], c["function"]["arguments"]) for c in message["tool_calls"]] == [
        ("a", "{}"),
        ("b", "{}"),
    ]


@pytest.mark.spec("W06")
def test_sound_annotations_and_reasoning_details() -> None:
    message = message_of(
        {"audio": {"id": "audio_1", "transcript": "Hi"}},
        {"audio": {"data": "AAAA", "transcript": " you", "expires_at": 5}},
        {"audio": {"data": "BBBB", "expires_at": 6}},
        {"annotations": [{"type": "url_citation"}]},
        {"annotations": [{"type": "url_citation"}]},
        {"reasoning_details": [{"index": 0, "type": "reasoning.text", "format": "f", "text": "a"}]},
        {"reasoning_details": [{"index": 0, "type": "reasoning.text", "format": "f", "text": "b"}]},
        {"reasoning_details": [{"index": 1, "type": "reasoning.encrypted", "data": "z"}]},
    )
    assert message["audio"] == {"id": "audio_1", "transcript": "Hi you", "data": "AAAABBBB", "expires_at": 6}
    assert message["annotations"] == [{"type": "url_citation"}, {"type": "url_citation"}]
    assert message["reasoning_details"] == [
        {"index": 0, "type": "reasoning.text", "format": "f", "text": "ab"},
        {"index": 1, "type": "reasoning.encrypted", "data": "z"},
    ]


@pytest.mark.spec("W09")
def test_padding_and_logprobs_are_no_part_of_the_message() -> None:
    assembly = assembled([chunk({"content": "a", "obfuscation": "xyz"}, obfuscation="xyz")])
    assert json.loads(assembly.choices()[0].message_body) == {"role": "assistant", "content": "a"}


def test_the_frame_that_finishes_is_named() -> None:
    assembly = Assembly()
    assert assembly.feed(chunk({"role": "assistant", "content": "a"})) == ORDINARY
    assert not assembly.is_finished
    assert assembly.feed(chunk({}, "stop")) == Verdict(finishes=True)
    assert assembly.is_finished
    assert assembly.feed(chunk({}, "stop")) == ORDINARY
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}
    assert assembly.feed(json.dumps({"choices": [], "usage": usage}).encode()) == Verdict(usage=True)
    assert assembly.feed(b"[DONE]") == Verdict(done=True)
    assert assembly.usage == Usage(prompt_tokens=3, completion_tokens=1, cached_tokens=2)
    assert assembly.choices() == (AnsweredChoice(0, b'{"role":"assistant","content":"a"}', "stop"),)


@pytest.mark.parametrize(
    "data",
    [
        b'{"error":{"message":"overloaded","code":503}}',
        b'{"error":"overloaded"}',
        b'{"object":"error","message":"too long","code":400}',
        b'[{"error":{"code":400,"status":"INVALID_ARGUMENT"}}]',
        b'{"choices":[{"delta":{},"finish_reason":"error"}],"error":{"code":502}}',
    ],
)
def test_an_error_is_no_answer(data: bytes) -> None:
    assembly = Assembly()
    assert assembly.feed(data) == Verdict(error=True)
    assert assembly.error == data
    assert not assembly.is_finished


PIECES = st.lists(st.text(max_size=4), min_size=1, max_size=5)


@given(PIECES, PIECES, PIECES, st.randoms(use_true_random=False))
def test_what_is_streamed_in_pieces_is_what_was_said(
    text: list[str], first: list[str], second: list[str], random: Any
) -> None:
    streams = [
        [{"content": piece} for piece in text],
        [call(0, id="a", function={"name": "f"}), *(call(0, function={"arguments": p}) for p in first)],
        [call(1, id="b", custom={"name": "g"}), *(call(1, custom={"input": p}) for p in second)],
    ]
    deltas: list[dict[str, Any]] = []
    while open_streams := [stream for stream in streams if stream]:
        deltas.append(random.choice(open_streams).pop(0))
    message = message_of(*deltas)
    assert message["content"] == "".join(text)
    assert [c["id"] for c in message["tool_calls"]] == ["a", "b"]
    assert message["tool_calls"][0]["function"]["arguments"] == "".join(first)
    assert message["tool_calls"][1]["custom"]["input"] == "".join(second)


@given(st.lists(st.integers(0, 700), max_size=20))
def test_the_answer_is_the_same_under_every_chunking(places: list[int]) -> None:
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        json.dumps({"choices": [{"delta": {"content": "漢😀é"}}]}, ensure_ascii=False).encode(),
        chunk(call(0, id="a", function={"name": "f", "arguments": '{"a":"é'})),
        chunk(call(0, function={"arguments": '"}'})),
        chunk({}, "tool_calls"),
        b"[DONE]",
    ]
    stream = b": hello\r\n\r\n" + b"".join(b"data: " + data + b"\n\n" for data in chunks)
    edges = sorted({0, len(stream), *(min(place, len(stream)) for place in places)})
    splitter, assembly = FrameSplitter(100_000), Assembly()
    for start, end in pairwise(edges):
        for frame in splitter.feed(stream[start:end]):
            data = data_of(frame)
            if data is not None:
                assembly.feed(data)
    assert splitter.rest == b""
    assert assembly.choices() == assembled(chunks).choices()
    assert assembly.is_finished
    assert assembly.unreadable == 0
