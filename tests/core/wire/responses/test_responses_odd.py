"""Shapes that nobody should send: reading them never raises, whatever stands where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.answers import ResponseAssembly, parse_response
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.core.wire.responses.request import RESPONSES, parse_responses_request

KEYS = st.sampled_from(
    [
        *(
            "type",
            "role",
            "content",
            "output",
            "call_id",
            "id",
            "text",
            "arguments",
            "name",
            "input",
            "summary",
        ),
        *("tool_calls", "function", "image_url", "file", "environment", "encrypted_content", "action"),
    ]
)
WORDS = st.sampled_from(
    [
        *(
            "message",
            "user",
            "assistant",
            "tool",
            "reasoning",
            "function_call",
            "function_call_output",
            "text",
        ),
        *("custom_tool_call", "program_output", "shell_call_output", "input_text", "image_url", "compaction"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=6)


@given(OBJECTS | st.lists(OBJECTS, min_size=1, max_size=3))
def test_any_body_is_read_and_told_on_either_wire(body: Any) -> None:
    read = as_chat(body)
    assert isinstance(read, dict | list)
    raw = json.dumps(body).encode()
    for wire in (CHAT, RESPONSES):
        told = wire.translated(raw)
        assert told is None or json.loads(told)


@given(st.lists(OBJECTS, max_size=3))
def test_any_answer_is_read(items: Any) -> None:
    parse_response(json.dumps({"status": "completed", "output": items}).encode())
    assembly = ResponseAssembly()
    for place, item in enumerate(items):
        done = {"type": "response.output_item.done", "output_index": place, "item": item}
        assembly.feed(json.dumps(done).encode())
    assembly.feed(json.dumps({"type": "response.completed", "response": {"output": items}}).encode())
    assembly.choices()


def test_what_lacks_a_call_takes_no_neighbour_along() -> None:
    lone = {"type": "shell_call_output", "environment": {"type": "container_reference"}}
    body = {"model": "m", "input": [lone, {"role": "user", "content": "Hello."}]}
    request = parse_responses_request(json.dumps(body).encode(), RequestLimits())
    assert request is not None
    assert json.loads(request.message_spans[-1]) == {"role": "user", "content": "Hello."}


@pytest.mark.parametrize("part", [{"type": ["x"]}, True, None, {"type": {}}, 5])
def test_a_part_of_no_kind_is_left_as_it_is(part: Any) -> None:
    assert as_chat({"role": "user", "content": [part, {"type": "input_text", "text": "x"}]})["role"] == "user"
