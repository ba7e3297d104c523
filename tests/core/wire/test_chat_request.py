from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.request import ChatRequest, RequestLimits
from palimpsest.errors import InvalidJson, NestedTooDeep, NotUnderstood

from tests.core.wire.json_texts import messages, requests

HELLO = {"role": "user", "content": "hello"}


def parsed(**fields: Any) -> ChatRequest:
    return parse_chat_request(
        json.dumps({"model": "m", "messages": [HELLO]} | fields).encode(), RequestLimits()
    )


def error_of(body: bytes) -> tuple[str, str | None]:
    with pytest.raises(InvalidJson) as caught:
        parse_chat_request(body, RequestLimits())
    return caught.value.code, caught.value.param


@given(requests())
@settings(max_examples=50)
def test_messages_are_the_bytes_that_came(request: tuple[bytes, tuple[bytes, ...]]) -> None:
    body, spoken = request
    read = parse_chat_request(body, RequestLimits())
    assert read.body == body
    assert read.message_spans == spoken


@given(requests(), st.lists(messages().map(str.encode), max_size=3))
@settings(max_examples=50)
def test_a_splice_changes_nothing_but_the_messages(
    request: tuple[bytes, tuple[bytes, ...]], others: list[bytes]
) -> None:
    body, spoken = request
    read = parse_chat_request(body, RequestLimits())
    forwarded = read.spliced(others)
    start, end = read.messages_at
    assert forwarded.startswith(body[:start])
    assert forwarded.endswith(body[end:])
    assert forwarded[start : len(forwarded) - len(body) + end] == b"[" + b",".join(others) + b"]"
    assert all(message in body[start:end] for message in spoken)


def test_numbers_escapes_and_unknown_fields_keep_their_spelling() -> None:
    odd = rb'{"role":"user","content":"\ud83d \/ \u0041","n":1e2,"big":1234567890123456789012345}'
    body = b'{"seed": 1E+2 ,"messages":[' + odd + rb'],"x":"\ud83d","model":"m"}'
    read = parse_chat_request(body, RequestLimits())
    assert read.message_spans == (odd,)
    assert read.spliced([odd]) == body


def test_the_fields_the_program_decides_by() -> None:
    read = parsed(
        stream=True,
        stream_options={"include_usage": True},
        n=3,
        max_tokens=10,
        max_completion_tokens=20,
        tools=[{"type": "function"}],
        tool_choice="auto",
        response_format={"type": "json_object"},
    )
    assert (read.model, read.stream, read.n) == ("m", True, 3)
    assert read.max_output_tokens == 20
    assert read.tools == b'[{"type": "function"}]'
    assert read.tool_choice == b'"auto"'
    assert read.response_format == b'{"type": "json_object"}'


@pytest.mark.spec("H08")
@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"model": 1}, {"model": ""}),
        ({"model": ["m"]}, {"model": ""}),
        ({"stream": "true"}, {"stream": True}),
        ({"stream": " YES "}, {"stream": True}),
        ({"stream": 1}, {"stream": True}),
        ({"stream": 1.0}, {"stream": True}),
        ({"stream": "false"}, {"stream": False}),
        ({"stream": 0}, {"stream": False}),
        ({"stream": 2}, {"stream": False}),
        ({"stream": {"a": 1}}, {"stream": False}),
        ({"n": "2"}, {"n": 2}),
        ({"n": 0}, {"n": 1}),
        ({"n": -3}, {"n": 1}),
        ({"n": True}, {"n": 1}),
        ({"n": 1.5}, {"n": 1}),
        ({"n": "9" * 5_000}, {"n": 1}),
        ({"max_tokens": "10"}, {"max_output_tokens": 10}),
        ({"max_tokens": "many"}, {"max_output_tokens": None}),
        ({"max_completion_tokens": [10]}, {"max_output_tokens": None}),
        ({"max_completion_tokens": {}, "max_tokens": 9}, {"max_output_tokens": 9}),
    ],
)
def test_a_field_of_another_type_is_read_as_lenient_servers_do(
    fields: dict[str, Any], read: dict[str, Any]
) -> None:
    request = parsed(**fields)
    assert {key: getattr(request, key) for key in read} == read


@pytest.mark.spec("H08")
@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ({}, "messages"),
        ("hello", "messages"),
        ([], "messages"),
        ([HELLO, "hello"], "messages[1]"),
        ([HELLO, HELLO, None], "messages[2]"),
        ([[HELLO]], "messages[0]"),
    ],
)
def test_what_holds_no_messages_is_not_understood(messages: Any, param: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        parsed(messages=messages)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"x":' + b"[" * 200 + b"]" * 200 + b"}]}",
        b'{"messages":[{}],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_nested_too_deeply_says_so(body: bytes) -> None:
    with pytest.raises(NestedTooDeep):
        parse_chat_request(body, RequestLimits())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"\xef\xbb\xbf" + b'{"messages":[{}]}', None),
        (b'{"messages":[{}],"seed":NaN}', None),
        (b'{"messages":[{"x":Infinity}]}', None),
        (b'{"messages":[{}],"messages":[{}]}', "messages"),
        (rb'{"model":"a","messages":[{}],"mode\u006c":"b"}', "model"),
        (b'{"messages":[{"role":"user"},{"role":"user","role":"system"}]}', "messages[1]"),
        (b'{"messages":[{"role":"user","content":[{"type":"text","type":"x"}]}]}', "messages[0]"),
    ],
)
def test_json_that_two_readers_would_read_differently_is_refused(body: bytes, param: str | None) -> None:
    assert error_of(body) == ("invalid_json", param)
