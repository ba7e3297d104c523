"""What an answer is recognised by when a client sends it back, and what is no longer the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.responses import Response
from palimpsest.core.history.message import Message
from palimpsest.core.history.read import read_answer, read_message
from palimpsest.core.recall.searchable_text import message_text
from palimpsest.core.view.masking import masked
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.request import parse_responses_request

pytestmark = pytest.mark.spec("W46")

Json = dict[str, Any]

THOUGHT: Json = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Look first."}],
    "encrypted_content": "gAAA",
}
NOTE = {"type": "url_citation", "url": "http://x", "title": "x", "start_index": 0, "end_index": 2}
WORDS: Json = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "phase": "commentary",
    "content": [
        {"type": "output_text", "text": "Let me look.", "annotations": [NOTE], "logprobs": []},
    ],
}
CALL: Json = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "name": "read",
    "arguments": '{"path":"a","lines":[1,2]}',
    "call_id": "call_1",
}
CUSTOM: Json = {
    "id": "ct_1",
    "type": "custom_tool_call",
    "status": "completed",
    "name": "patch",
    "input": "*** Begin",
    "call_id": "call_2",
}
SEARCH: Json = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
SHELL: Json = {
    "id": "sh_1",
    "type": "shell_call",
    "status": "completed",
    "call_id": "call_3",
    "action": {"commands": ["ls"], "timeout_ms": 1000},
}
PICTURE: Json = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBO" * 99}
ANSWER = [THOUGHT, WORDS, CALL, SEARCH, CUSTOM, SHELL, PICTURE]


def response(output: list[Json]) -> Response:
    told = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "tools": [],
        "tool_choice": "auto",
    }
    return Response.model_validate({**told, "parallel_tool_calls": True, "output": output})


def said(items: list[Json]) -> Message:
    """What stands in a request of these items."""
    request = parse_responses_request(json.dumps({"input": items}).encode(), RequestLimits())
    assert request is not None
    (raw,) = request.message_spans
    return read_message(raw, lambda _: 1)


def relayed(items: list[Json]) -> Message:
    return read_answer(json.dumps(items).encode(), lambda _: 1)


def without(*keys: str) -> Callable[[list[Json]], list[Json]]:
    def made(items: list[Json]) -> list[Json]:
        return [{key: value for key, value in item.items() if key not in keys} for item in items]

    return made


def respelled(items: list[Json]) -> list[Json]:
    spelled = '{ "lines": [1, 2.0],\n "path": "\\u0061" }'
    return [item | ({"arguments": spelled} if "arguments" in item else {}) for item in items]


def easy(items: list[Json]) -> list[Json]:
    plain = {"role": "assistant", "content": "Let me look."}
    return [plain if item["type"] == "message" else item for item in items]


HABITS: dict[str, Callable[[list[Json]], list[Json]]] = {
    "as it came": lambda items: items,
    "dumped by the SDK": lambda items: [item.model_dump(mode="json") for item in response(items).output],
    "what was set": lambda items: [
        item.model_dump(mode="json", exclude_unset=True) for item in response(items).output
    ],
    "without states": without("status"),
    "without thoughts": lambda items: [item for item in items if item["type"] != "reasoning"],
    "without sealed thoughts": without("encrypted_content"),
    "without notes": lambda items: [
        item | {"content": [{"type": "output_text", "text": "Let me look."}]} if "content" in item else item
        for item in items
    ],
    "arguments respelled": respelled,
    "the text alone": easy,
    "a picture by its id": lambda items: [
        {"type": item["type"], "id": item["id"]} if item["type"] == "image_generation_call" else item
        for item in items
    ],
}


@pytest.mark.parametrize("habit", HABITS)
def test_an_answer_is_recognised_however_it_comes_back(habit: str) -> None:
    assert said(HABITS[habit](ANSWER)).canonical == relayed(ANSWER).canonical


CHANGED: dict[str, list[Json]] = {
    "words": [WORDS | {"content": [{"type": "output_text", "text": "Let me see."}]}],
    "a refusal": [WORDS | {"content": [{"type": "refusal", "refusal": "Let me look."}]}],
    "arguments": [CALL | {"arguments": '{"path":"b","lines":[1,2]}'}],
    "their order": [CALL | {"arguments": '{"path":"a","lines":[2,1]}'}],
    "a name": [CALL | {"name": "write"}],
    "a call's id": [CALL | {"call_id": "call_9"}],
    "a tool's input": [CUSTOM | {"input": "*** End"}],
    "a query": [SEARCH | {"action": {"type": "search", "query": "other"}}],
    "a command": [SHELL | {"action": {"commands": ["rm"], "timeout_ms": 1000}}],
    "a picture": [PICTURE | {"id": "ig_2"}],
    "a call more": [CALL, CALL | {"call_id": "call_5"}],
    "another kind": [CALL | {"type": "custom_tool_call"}],
}


@pytest.mark.parametrize("what", CHANGED)
def test_other_content_is_another_answer(what: str) -> None:
    (changed, *more) = CHANGED[what]
    unlike = [*CHANGED.values(), [WORDS], [CALL], [CUSTOM], [SEARCH], [SHELL], [PICTURE], [THOUGHT]]
    mine = said([changed, *more]).canonical
    assert sum(said(items).canonical == mine for items in unlike) == 1


def test_references_are_told_apart_by_their_ids() -> None:
    names = [[{"type": "item_reference", "id": "msg_1"}], [{"type": "item_reference", "id": "msg_2"}]]
    names += [[{"id": "msg_3"}], [{"id": "msg_4"}]]
    assert len({said(items).canonical for items in names}) == 4


RESULTS: list[tuple[Json, str, str]] = [
    ({"type": "function_call_output", "call_id": "c", "output": "found it"}, "c", "found it"),
    ({"type": "custom_tool_call_output", "call_id": "c", "output": "found it"}, "c", "found it"),
    ({"type": "local_shell_call_output", "id": "c", "output": "found it"}, "c", "found it"),
    ({"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "bad"}, "c", "bad"),
    ({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}, "c", "completed"),
    ({"type": "mcp_approval_response", "approval_request_id": "c", "approve": False}, "c", "false"),
    (
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [
                {"type": "input_text", "text": "found it"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
                {"type": "input_file", "file_id": "file_1"},
            ],
        },
        "c",
        "found it",
    ),
    (
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "found it", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}],
        },
        "c",
        '"exit_code":3',
    ),
    (
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="},
        },
        "c",
        "",
    ),
    ({"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": []}, "c", ""),
]


@pytest.mark.parametrize(("item", "call", "text"), RESULTS)
def test_results_are_results_of_their_calls(item: Json, call: str, text: str) -> None:
    raw = json.dumps(item).encode()
    message = read_message(raw, lambda _: 1)
    assert (message.role, message.answers) == ("tool", call)
    assert text in message_text(raw)


def test_results_of_other_content_differ() -> None:
    failed: Json = {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}
    denied: Json = {"type": "mcp_approval_response", "approval_request_id": "c", "approve": False}
    both = [failed, failed | {"status": "completed"}, denied, denied | {"approve": True}]
    assert len({said_alone(item) for item in both}) == 4


def said_alone(item: Json) -> bytes:
    return read_message(json.dumps(item).encode(), lambda _: 1).canonical


def test_a_question_and_its_consent_are_a_call_and_its_result() -> None:
    question = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "go", "arguments": "{}"}
    consent = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True, "id": "x"}
    assert said([question]).calls == ("mcpr_1",)
    assert read_message(json.dumps(consent).encode(), lambda _: 1).answers == "mcpr_1"


@pytest.mark.parametrize("item", [item for item, *_ in RESULTS if "status" in item or "output" in item])
def test_long_results_are_shown_shortened_in_their_own_form(item: Json) -> None:
    text = json.dumps(item).replace("found it", "FIRST " + "line\\n" * 2_000 + " LAST")
    if "FIRST" not in text:
        return
    made = masked(read_message(text.encode(), lambda _: 1), 800, "")
    assert made is not None
    shown = made.raw
    told = json.loads(shown)
    assert told.keys() == item.keys()
    assert len(shown) < 2_000
    assert "FIRST" in shown.decode()
    assert "LAST" in shown.decode()
    assert read_message(shown, lambda _: 1).answers == "c"
