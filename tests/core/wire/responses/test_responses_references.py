"""Items that a request only names: which they are, what they stand for, how they go out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.wire.compaction_items import item_of
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import ChatRequest, RequestLimits
from palimpsest.core.wire.responses.items import LONGEST_ID, ids_in, referenced_id, unique_item
from palimpsest.core.wire.responses.request import parse_responses_request, with_items

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "x"}
WORDS: Json = {"id": "msg_1", "type": "message", "role": "assistant", "content": "Well."}
THOUGHT: Json = {"id": "rs_1", "type": "reasoning", "summary": []}
CALL: Json = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT: Json = {"type": "function_call_output", "call_id": "c1", "output": "1"}
THERE: Json = {"id": "sh_1", "type": "shell_call", "call_id": "c2", "action": {}}
THERE |= {"environment": {"type": "container_reference", "container_id": "x"}}
FOUND: Json = {"id": "sho_1", "type": "shell_call_output", "call_id": "c2", "output": []}
SEALED: Json = {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAA"}
ANSWERED = (WORDS, THOUGHT, CALL, THERE, FOUND, SEALED)
KNOWN = {item["id"]: json.dumps(item).encode() for item in ANSWERED}


def named(item: Json) -> Json:
    return {"type": "item_reference", "id": item["id"]}


def parsed(*items: Json) -> ChatRequest:
    request = parse_responses_request(json.dumps({"model": "m", "input": items}).encode(), RequestLimits())
    assert request is not None
    return request


def resolved(*items: Json) -> ChatRequest:
    request = parsed(*items)
    found = {at: KNOWN[ident] for at, ident in request.references.items() if ident in KNOWN}
    return with_items(request, found)


@pytest.mark.parametrize(
    ("item", "ident"),
    [
        ({"type": "item_reference", "id": "i"}, "i"),
        ({"type": None, "id": "i"}, "i"),
        ({"id": "i"}, "i"),
        ({"type": "item_reference", "id": 5}, None),
        ({"type": "item_reference"}, None),
        ({"id": "i", "role": "assistant", "content": "x"}, None),
        ({"id": "i", "summary": []}, None),
        ({"type": "reasoning", "id": "i"}, None),
        ("i", None),
    ],
)
def test_a_name_is_nothing_but_an_id(item: Any, ident: str | None) -> None:
    assert referenced_id(item) == ident
    request = parsed(USER, item) if isinstance(item, dict) else parsed(USER)
    assert dict(request.references) == ({} if ident is None else {1: ident})


def test_the_ids_of_an_answer() -> None:
    items = [WORDS, {"type": "reasoning"}, {**THOUGHT, "id": 5}, WORDS, {**CALL, "id": ""}, THERE]
    assert ids_in(json.dumps(items).encode()) == ("msg_1", "sh_1")
    assert ids_in(json.dumps([{**WORDS, "id": "i" * LONGEST_ID}, {**CALL, "id": "i" * 201}]).encode()) == (
        "i" * LONGEST_ID,
    )
    assert ids_in(b'{"role":"assistant","content":"x","id":"chat"}') == ()


def test_an_item_is_what_all_answers_say_it_is() -> None:
    first = b'[{"id":"a","x": 1e2},{"id":"b"}]'
    assert unique_item([first], "a") == b'{"id":"a","x": 1e2}'
    assert unique_item([first, b'[{"id":"a","x": 1e2}]'], "a") == b'{"id":"a","x": 1e2}'
    assert unique_item([first, b'[{"id":"a","x":1e2}]'], "a") is None
    assert unique_item([b'[{"id":"a","x":1},{"id":"a","x":2}]'], "a") is None
    assert unique_item([first], "c") is None
    assert unique_item([], "a") is None
    # Only a name in an answer has no words.
    assert unique_item([first], "b") is None


@pytest.mark.parametrize(
    "item",
    [
        '{"id":"a","type":"message","role":"assistant","content":["x"]}',
        '{"id":"a","type":"message","role":"assistant","content":5}',
        '{"id":"a","type":"message","role":"assistant","content":"x","content":"y"}',
        '{"id":"a","type":"x","deep":' + "[" * 99 + "]" * 99 + "}",
        '{"id":"a","type":"item_reference"}',
    ],
)
def test_what_no_client_might_send_is_no_item(item: str) -> None:
    assert unique_item([f"[{item}]".encode()], "a") is None


def test_names_are_told_and_go_out_as_names() -> None:
    request = resolved(USER, named(THOUGHT), named(CALL), RESULT, named(WORDS), USER)
    told = [decoded(raw) for raw in request.message_spans]
    assert told == [USER, [THOUGHT, CALL], RESULT, [WORDS], USER]
    sent = decoded(request.body)
    assert decoded(request.spliced(request.message_spans)) == sent
    assert decoded(request.whole.spliced(request.message_spans))["input"] == [
        *(USER, THOUGHT, CALL, RESULT, WORDS, USER)
    ]
    # Of what is left of them each is named as it was.
    assert decoded(request.spliced(request.message_spans[3:]))["input"] == sent["input"][4:]


def test_a_compaction_of_ours_is_never_sent_as_a_name() -> None:
    ours = item_of("Folded.", "7")
    request = parsed({"type": "item_reference", "id": ours["id"]}, named(WORDS), USER)
    request = with_items(request, {0: json.dumps(ours).encode(), 1: KNOWN["msg_1"]})
    assert request.holds_own_compaction
    assert decoded(request.spliced(request.message_spans))["input"] == [
        *({"type": "message", "role": "user", "content": "Folded."}, named(WORDS), USER)
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*ANSWERED, USER, RESULT]), max_size=12), st.data())
def test_named_or_told_it_is_the_same_conversation(items: list[Json], data: st.DataObject) -> None:
    once = [item for at, item in enumerate(items) if item in (USER, RESULT) or item not in items[:at]]
    sent = [named(item) if "id" in item and data.draw(st.booleans()) else item for item in [USER, *once]]
    request, whole = resolved(*sent), parsed(USER, *once)
    assert [decoded(raw) for raw in request.message_spans] == [decoded(raw) for raw in whole.message_spans]
    assert decoded(request.spliced(request.message_spans)) == decoded(request.body)
    assert decoded(request.whole.spliced(request.message_spans)) == decoded(whole.body)
