"""Messages told on the other wire: the same message for whoever decides, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.history.read import read_message
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.request import RESPONSES

pytestmark = pytest.mark.spec("W52")

Json = dict[str, Any]

CALL = {"id": "c", "type": "function", "function": {"name": "go", "arguments": '{"a":1}'}}
CALL_ITEM = {"type": "function_call", "call_id": "c", "name": "go", "arguments": '{"a":1}'}
WORDS = {"type": "message", "role": "assistant", "content": "Hi."}
PICTURE = {"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}}
SHOWN = {"type": "input_image", "image_url": "http://x/y.png", "detail": "low"}

# The same message on chat completions and on the Responses API.
PAIRS: list[tuple[Json, Json | list[Json]]] = [
    (
        {"role": "user", "content": [{"type": "text", "text": "See."}, PICTURE]},
        {"role": "user", "content": [{"type": "input_text", "text": "See."}, SHOWN]},
    ),
    ({"role": "assistant", "content": "Hi."}, [WORDS]),
    ({"role": "assistant", "content": "Hi.", "tool_calls": [CALL]}, [WORDS, CALL_ITEM]),
    ({"role": "assistant", "content": None, "tool_calls": [CALL]}, [CALL_ITEM]),
    (
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ),
    (
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "done"}]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "done"}]},
    ),
]


def raw_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def told(value: Any, wire: Wire) -> Any:
    raw = wire.translated(raw_of(value))
    return None if raw is None else json.loads(raw)


@pytest.mark.parametrize(("message", "item"), PAIRS)
def test_each_has_its_counterpart(message: Json, item: Json | list[Json]) -> None:
    assert told(message, RESPONSES) == item
    assert told(item, CHAT) == message
    read = [read_message(raw_of(value), lambda _: 1) for value in (message, item)]
    assert read[0].canonical == read[1].canonical


def test_an_answer_as_servers_give_it_is_told_by_what_it_says() -> None:
    relayed: Json = {"role": "assistant", "content": "Hi.", "refusal": None, "annotations": [], "audio": None}
    assert told(relayed | {"reasoning_content": "Hm."}, RESPONSES) == [WORDS]
    answer = [
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"},
        {
            "id": "msg",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}],
        },
        CALL_ITEM | {"id": "fc", "status": "completed"},
    ]
    assert told(answer, CHAT) == {"role": "assistant", "content": "Hi.", "tool_calls": [CALL]}


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ({"role": "user", "content": "Hi.", "name": "ann"}, RESPONSES),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]}, RESPONSES),
        ({"role": "assistant", "content": None, "audio": {"id": "a"}}, RESPONSES),
        ({"role": "assistant", "content": None, "refusal": "No."}, RESPONSES),
        ({"role": "assistant", "content": None, "function_call": {"name": "go"}}, RESPONSES),
        ({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}, RESPONSES),
        ({"role": "function", "name": "go", "content": "x"}, RESPONSES),
        ([{"type": "web_search_call", "id": "w"}], CHAT),
        ([WORDS, {"type": "shell_call", "call_id": "c", "action": {}}], CHAT),
        ([{"type": "item_reference", "id": "x"}], CHAT),
        ([{"id": "x"}], CHAT),
        ({"type": "shell_call_output", "call_id": "c", "output": []}, CHAT),
        ({"type": "compaction", "encrypted_content": "x"}, CHAT),
        ({"type": "additional_tools", "role": "developer", "tools": []}, CHAT),
    ],
)
def test_what_has_no_counterpart_is_not_told(value: Any, wire: Wire) -> None:
    assert told(value, wire) is None
