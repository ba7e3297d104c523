"""Requests of the Responses API: whose items are whose, and that none of their bytes changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.history.read import read_message
from palimpsest.core.wire.json_spans import raw_elements
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import ChatRequest, RequestLimits
from palimpsest.core.wire.responses.request import parse_responses_request
from palimpsest.errors import InvalidJson, NotUnderstood

from tests.core.wire.json_texts import BLANKS, EXTRAS, STRINGS

pytestmark = pytest.mark.spec("W47")

Json = dict[str, Any]

# Kinds of items with the fields that tell whose they are; "client" stand alone, "model" run together.
MODELS: list[Json] = [
    {"type": "message", "role": "assistant"},
    {"role": "assistant"},
    {"type": "reasoning"},
    {"type": "function_call", "call_id": "c"},
    {"type": "custom_tool_call", "call_id": "c"},
    {"type": "computer_call", "call_id": "c"},
    {"type": "local_shell_call", "call_id": "c"},
    {"type": "shell_call", "call_id": "c"},
    {"type": "apply_patch_call", "call_id": "c"},
    {"type": "mcp_call"},
    {"type": "mcp_list_tools"},
    {"type": "mcp_approval_request"},
    {"type": "web_search_call"},
    {"type": "file_search_call"},
    {"type": "code_interpreter_call"},
    {"type": "image_generation_call"},
    {"type": "tool_search_call"},
    {"type": "tool_search_output", "execution": "server", "call_id": None},
    {"type": "program", "call_id": "p"},
    {"type": "program_output", "call_id": "p"},
    {"type": "item_reference", "id": "i"},
    {"id": "i"},
    {"type": "never_heard_of"},
]
CLIENTS: list[Json] = [
    {"role": "user"},
    {"type": "message", "role": "user"},
    {"role": "system"},
    {"type": "message", "role": "developer"},
    {"type": "additional_tools", "role": "developer"},
    {"type": "function_call_output", "call_id": "c"},
    {"type": "function_call_output", "call_id": None},
    {"type": "custom_tool_call_output", "call_id": "c"},
    {"type": "computer_call_output", "call_id": "c"},
    {"type": "local_shell_call_output", "id": "c"},
    {"type": "shell_call_output", "call_id": "c"},
    {"type": "apply_patch_call_output", "call_id": "c"},
    {"type": "tool_search_output", "execution": "client", "call_id": "c"},
    {"type": "mcp_approval_response", "approval_request_id": "a"},
    {"type": "compaction"},
]


def read(body: bytes, limits: RequestLimits | None = None) -> ChatRequest:
    request = parse_responses_request(body, limits or RequestLimits())
    assert request is not None
    return request


def parsed(*items: Any, **fields: Any) -> ChatRequest:
    return read(json.dumps({"model": "m", "input": list(items), **fields}).encode())


@st.composite
def item_texts(draw: st.DrawFn) -> tuple[str, bool]:
    """An item as odd as the grammar allows, and whether the model said it."""
    known = draw(st.sampled_from(MODELS + CLIENTS))
    said = [f'"{key}":{draw(BLANKS)}{json.dumps(value)}' for key, value in known.items()]
    if "role" in known:
        said.append(f'"content":{draw(STRINGS)}')
    more = [f"{key}{blank}:{value}" for key, value, blank, _ in draw(EXTRAS)]
    pieces = draw(st.permutations([*said, *more]))
    blank = draw(BLANKS)
    return "{" + f"{blank},{blank}".join(pieces) + "}", known in MODELS


@st.composite
def inputs(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, bool]]]:
    """A request and its items."""
    items = draw(st.lists(item_texts(), min_size=1, max_size=7))
    blank = draw(BLANKS)
    listed = f"{blank},{blank}".join(text for text, _ in items)
    head, tail = draw(st.permutations(['"model":"m"', f'"input":{blank}[{blank}{listed}{blank}]']))
    return f"{{{blank}{head},{tail}{blank}}}".encode(), items


@given(inputs())
@settings(max_examples=50)
def test_every_item_keeps_its_bytes_and_the_models_neighbours_are_one(
    given_: tuple[bytes, list[tuple[str, bool]]],
) -> None:
    body, items = given_
    request = read(body)
    runs: list[tuple[bool, list[bytes]]] = []
    for text, is_models in items:
        if runs and runs[-1][0] and is_models:
            runs[-1][1].append(text.encode())
        else:
            runs.append((is_models, [text.encode()]))
    spans = request.message_spans
    assert [span.startswith(b"[") for span in spans] == [is_models for is_models, _ in runs]
    assert [raw_elements(span) if span.startswith(b"[") else [span] for span in spans] == [
        texts for _, texts in runs
    ]
    again = request.spliced(spans)
    start, end = request.messages_at
    assert again.startswith(body[:start])
    assert again.endswith(body[end:])
    assert raw_elements(again[start : len(again) - len(body) + end]) == [text.encode() for text, _ in items]
    assert read(again).message_spans == spans


def test_results_of_the_upstreams_own_calls_stay_in_the_answer() -> None:
    there = {"type": "container_reference", "container_id": "x"}
    mine = {"type": "shell_call", "call_id": "a", "action": {}, "environment": {"type": "local"}}
    theirs = {"type": "shell_call", "call_id": "b", "action": {}, "environment": there}
    found = [{"type": "shell_call_output", "call_id": name, "output": []} for name in "ab"]
    assert len(parsed(theirs, found[1], mine).message_spans) == 1
    assert len(parsed(theirs, mine, found[1], found[0]).message_spans) == 2
    assert len(parsed({"role": "user", "content": "x"}, found[1]).message_spans) == 2
    message = read_message(parsed(theirs, found[1], mine).message_spans[0], lambda _: 1)
    assert message.calls == ("a",)


@pytest.mark.parametrize("first", [True, False])
def test_all_said_takes_the_answer_gone_on_from_away(first: bool) -> None:
    said = '"previous_response_id" : "resp_1"'
    body = f'{{ {said}, "input": "x", "n": 1 }}' if first else f'{{ "input": "x" , {said} }}'
    request = read(body.encode())
    assert request.previous == "resp_1"
    told = decoded(request.spliced([b'{"role":"user","content":"y"}']))
    assert told == {"input": [{"role": "user", "content": "y"}]} | ({"n": 1} if first else {})


def error_of(body: bytes, limits: RequestLimits | None = None) -> tuple[str, str | None]:
    with pytest.raises(InvalidJson) as caught:
        read(body, limits)
    return caught.value.code, caught.value.param


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ('{"role":"user","role":"system","content":"x"}', "input[1]"),
        ('{"type":"reasoning","summary":[],"summary":[{}]}', "input[1]"),
        ('{"type":"function_call","call_id":"c","call_id":"d"}', "input[1]"),
        ('{"role":"user","content":[{"type":"input_text","text":"a","text":"b"}]}', "input[1]"),
    ],
)
def test_a_repeated_key_is_refused(item: str, param: str) -> None:
    assert error_of(f'{{"input":[{{"type":"reasoning"}},{item}]}}'.encode()) == ("invalid_json", param)


@pytest.mark.parametrize("levels", [200, 100_000])
@pytest.mark.parametrize("kind", ["reasoning", "function_call_output"])
def test_what_is_nested_too_deeply_is_refused(kind: str, levels: int) -> None:
    deep = "[" * levels + "]" * levels
    code, _ = error_of(f'{{"input":[{{"type":"{kind}","call_id":"c","output":{deep}}}]}}'.encode())
    assert code == "nested_too_deep"


@pytest.mark.spec("H08")
@pytest.mark.parametrize("item", [{"type": "message", "content": "x"}, {"role": 5, "content": "x"}, {}])
def test_an_item_without_a_role_has_none(item: Json) -> None:
    (raw,) = parsed(item).message_spans
    assert read_message(raw, lambda _: 1).role == ""


@pytest.mark.spec("H08")
@pytest.mark.parametrize(
    "body",
    [
        b'{"input":7}',
        b'{"input":{"role":"user"}}',
        b'{"input":["hi"]}',
        b'{"input":"hi","previous_response_id":7}',
    ],
)
def test_what_holds_no_items_is_not_understood(body: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parse_responses_request(body, RequestLimits())
