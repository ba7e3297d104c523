"""What a client of the Responses API is shown of answers with calls to our tools, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.recall.rounds.calls import Called
from palimpsest.core.recall.rounds.frames import FrameForm
from palimpsest.core.recall.rounds.hidden import HiddenRounds, client_answer
from palimpsest.core.recall.rounds.offer import may_offer, offering
from palimpsest.core.recall.rounds.responses import (
    ResponseFrames,
    ResponsesClientAnswer,
    answer_for_prompt,
    visible_items,
    visible_object,
    without_repeated_items,
)
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.request import RESPONSES, parse_responses_request
from palimpsest.core.wire.streams import data_of

from tests.kit.items_recall import OURS, TOOLS, grep, is_whole, reads
from tests.kit.responses import call_item, events_of, text_item, thought_item

Json = dict[str, Any]
FORM = FrameForm(data_of, lambda data: b"data: " + data + b"\n\n")
OUR_TOOLS = [*TOOLS, {"type": "function", "name": OURS[0]}, {"type": "function", "name": OURS[1]}]


def stream(items: list[Json], ident: str = "resp_1", **fields: Any) -> list[bytes]:
    """A round as OpenAI streams it."""
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    head: Json = {"id": ident, "tools": OUR_TOOLS, "tool_choice": "auto"}
    begun = head | {"status": "in_progress", "output": [], "usage": None}
    told: list[Json] = [
        {"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")
    ]
    for place, item in enumerate(items):
        at = {"output_index": place}
        told.append({"type": "response.output_item.added", **at, "item": item})
        if item["type"] == "reasoning":
            told.append({"type": "response.reasoning_summary_text.delta", **at, "delta": "Hm."})
        if item["type"] == "function_call":
            told.append({"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]})
        if item["type"] == "message":
            told.append({"type": "response.output_text.delta", **at, "delta": "words"})
        told.append({"type": "response.output_item.done", **at, "item": item})
    ending = head | {"status": "completed", "output": items, "usage": usage} | fields
    told.append({"type": f"response.{ending['status']}", "response": ending})
    return [framed(event | {"sequence_number": number}) for number, event in enumerate(told)]


def framed(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def shown(
    frames: list[bytes], so_far: ResponsesClientAnswer | None = None, *, may_hide: bool = True
) -> tuple[list[Json], ResponseFrames]:
    made = ResponseFrames(FORM, ResponsesClientAnswer() if so_far is None else so_far, may_hide=may_hide)
    return events_of(b"".join([made.shown(each) for each in frames]).decode()), made


def test_an_answer_without_a_call_of_ours_passes_but_for_the_tools() -> None:
    frames = stream([thought_item("rs"), text_item("So."), reads("c1")])
    made = ResponseFrames(FORM, ResponsesClientAnswer(), may_hide=True)
    out = b"".join([made.shown(each) for each in [b": a comment\n\n", *frames, b"data: [DONE]\n\n"]])
    ours = b", ".join(json.dumps(tool).encode() for tool in OUR_TOOLS)
    theirs = json.dumps(TOOLS[0]).encode()
    assert out == b": a comment\n\n" + b"".join(frames).replace(ours, theirs) + b"data: [DONE]\n\n"
    assert (made.is_over, made.is_hidden, made.called.others) == (True, False, 1)


def test_several_rounds_are_one_answer() -> None:
    so_far = ResponsesClientAnswer()
    words = [thought_item("rs_a"), text_item("Wait.", "msg_a")]
    first, made = shown(stream([*words, thought_item("rs_b"), grep("g1")]), so_far)
    assert made.is_hidden
    so_far.hidden_tokens = made.usage.completion_tokens or 0
    second, made = shown(stream([grep("g2")], "resp_2"), so_far)
    assert (made.is_hidden, second) == (True, [])
    so_far.hidden_tokens += made.usage.completion_tokens or 0
    last = [thought_item("rs_c"), text_item("So.", "msg_c")]
    third, made = shown(stream(last, "resp_3"), so_far)
    assert not made.is_hidden
    is_whole([*first, *third])
    answer = third[-1]["response"]
    assert (answer["id"], answer["output"]) == ("resp_1", [*words, *last])
    assert answer["usage"] == {"input_tokens": 7, "output_tokens": 9, "total_tokens": 16}
    assert "context_" not in str([*first, *third])


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_calls_that_are_not_carried_out_are_left_out_with_their_thoughts(status: str) -> None:
    items = [text_item("Hm."), thought_item("rs"), grep("g1")]
    more: Json = {"status": status, "incomplete_details": {"reason": "max_output_tokens"}}
    events, made = shown(stream(items, **more), may_hide=status == "incomplete")
    assert not made.is_hidden
    is_whole(events)
    assert events[-1]["response"]["output"] == items[:1]


def test_a_mixed_round_shows_the_clients_calls_with_what_led_to_them() -> None:
    items = [thought_item("rs_a"), grep("g1"), thought_item("rs_b"), grep("g2"), reads("c1"), grep("g3")]
    events, made = shown(stream(items))
    assert (made.is_hidden, made.called.is_mixed, len(made.called.ours)) == (False, True, 3)
    is_whole(events)
    assert events[-1]["response"]["output"] == [items[2], items[4]]


@pytest.mark.parametrize("call", [grep("g1"), reads("c1")])
def test_a_call_that_is_announced_without_its_name_waits_for_it(call: Json) -> None:
    frames = stream([call])
    added = json.loads(data_of(frames[2]) or b"")
    frames[2] = framed(added | {"item": {**added["item"], "name": ""}})
    events, made = shown(frames)
    assert made.is_hidden is (call["name"] in OURS)
    kinds = [event["type"] for event in events]
    assert kinds.count("response.output_item.added") == (0 if made.is_hidden else 1)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_servers_that_announce_no_items_are_understood() -> None:
    frames = [each for each in stream([text_item("So."), grep("g1")]) if b"item.added" not in each]
    events, made = shown(frames)
    assert made.is_hidden
    assert "context_" not in str(events)
    assert [e["delta"] for e in events if "delta" in e] == ["words"]
    so_far = ResponsesClientAnswer()
    ended = [each for each in stream([grep("g1")]) if b"output_index" not in each]
    first, made = shown(ended, so_far)
    second, _ = shown(stream([text_item("So.")], "resp_2"), so_far)
    assert made.is_hidden
    is_whole([*first, *second])


def test_a_sign_of_life_passes_thoughts_that_wait() -> None:
    frames = stream([thought_item("rs"), text_item("So.")])
    alive = framed({"type": "keepalive", "sequence_number": 4})
    later = [
        framed(event | {"sequence_number": event["sequence_number"] + 1})
        for event in events_of(b"".join(frames[4:]).decode())
    ]
    made = ResponseFrames(FORM, ResponsesClientAnswer(), may_hide=True)
    heard = [made.shown(each) for each in [*frames[:4], alive, *later]]
    assert heard[2:4] == [b"", b""]
    assert b"keepalive" in heard[4]
    numbers = [event["sequence_number"] for event in events_of(b"".join(heard).decode())]
    assert numbers == list(range(len(numbers)))


def test_a_failure_in_a_later_round_is_one_of_the_same_answer() -> None:
    so_far = ResponsesClientAnswer()
    first, _ = shown(stream([text_item("Wait.", "msg_a"), grep("g1")]), so_far)
    failed = {"id": "resp_2", "status": "failed", "output": [], "error": {"code": "server_error"}}
    frames = [
        *stream([], "resp_2")[:2],
        framed({"type": "response.failed", "response": failed, "sequence_number": 2}),
    ]
    second, made = shown(frames, so_far)
    assert [event["type"] for event in second] == ["response.failed"]
    assert second[0]["response"]["id"] == "resp_1"
    assert second[0]["sequence_number"] == first[-1]["sequence_number"] + 1
    assert not made.is_hidden


def test_whole_answers_add_up_too() -> None:
    def body(ident: str, *items: Json) -> bytes:
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        return json.dumps(
            {"id": ident, "output": items, "usage": usage, "tools": OUR_TOOLS, "tool_choice": "none"}
        ).encode()

    words = text_item("Wait.", "msg_a")
    first = body("resp_1", thought_item("rs_a"), words, thought_item("rs_b"), grep("g1"))
    so_far = ResponsesClientAnswer()
    so_far.hidden(3, first)
    told = json.loads(visible_object(body("resp_2", text_item("So.", "msg_b")), so_far))
    assert told["id"] == "resp_2"
    assert [item["id"] for item in told["output"]] == ["rs_a", "msg_a", "msg_b"]
    assert told["usage"] == {"input_tokens": 7, "output_tokens": 6, "total_tokens": 13}
    assert (told["tools"], told["tool_choice"]) == (TOOLS, "auto")
    plain = b'{"id" : "r", "output":[ {"type":"message"} ], "tools": [], "usage":null}'
    assert visible_object(plain, ResponsesClientAnswer()) == plain


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"output": {}, "tools": 5, "usage": [], "id": null}',
        b'{"output":[null,5,{"name":[]}]}',
    ],
)
def test_what_is_no_answer_passes(body: bytes) -> None:
    told = client_answer(RESPONSES)
    told.hidden(3, None)
    assert told.whole(body, Called((), 0, is_hidden=False)) == body


def test_events_of_strange_shapes_pass() -> None:
    strange: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": 5},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "name": []},
        },
        {"type": ["x"], "response": []},
    ]
    frames = [framed(event) if isinstance(event["type"], str) else b"data: 5\n\n" for event in strange]
    events, made = shown(frames)
    assert [event["type"] for event in events if isinstance(event, dict)] == [
        "response.output_item.added", "response.output_item.done",
    ]  # fmt: skip
    assert not made.is_hidden


def test_what_was_said_before_is_not_told_twice() -> None:
    before = [json.dumps([thought_item("rs_a"), text_item("Wait.", "msg_a"), grep("g1")]).encode()]
    last = json.dumps(text_item("So.", "msg_b")).encode()
    again = text_item("Wait.", "msg_a") | {"status": "incomplete"}
    answer = (
        b"[" + json.dumps(thought_item("rs_a")).encode() + b"," + json.dumps(again).encode() + b"," + last
    )
    assert without_repeated_items(answer + b"]", before) == b"[" + last + b"]"
    assert without_repeated_items(answer[: answer.rindex(b"," + last)] + b"]", before) is None
    # A server that gives every item the same id.
    other = json.dumps([text_item("Other words.", "msg_a")]).encode()
    assert without_repeated_items(other, before) == other
    assert without_repeated_items(b'{"role":"assistant"}', before) == b'{"role":"assistant"}'


def test_thoughts_without_words_are_not_named_where_nothing_is_kept() -> None:
    bare, call = thought_item("rs", sealed=""), grep("g1")
    message = json.dumps([bare, call]).encode()
    assert answer_for_prompt(message, is_kept=True) == message
    assert json.loads(answer_for_prompt(message, is_kept=False)) == [call]
    sealed = json.dumps([thought_item("rs"), call]).encode()
    assert answer_for_prompt(sealed, is_kept=False) == sealed


def test_trailing_thoughts_of_a_cut_answer_stay() -> None:
    raws = [json.dumps(item).encode() for item in (text_item("a"), thought_item("rs"))]
    assert visible_items(raws) == raws


def body_of(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "Hello.", "tools": TOOLS} | fields).encode()


def test_the_body_has_our_tools_behind_the_clients() -> None:
    request = parse_responses_request(body_of(previous_response_id="resp_1", store=True), RequestLimits())
    assert request is not None
    said = [b'{"role":"user","content":"a"}', b'[{"type":"reasoning"},{"type":"message"}]']
    sent = json.loads(offering(request, said, may_call=False))
    assert [tool["name"] for tool in sent["tools"]] == ["read_file", *OURS]
    assert [len(sent["input"]), sent["tool_choice"], sent["store"]] == [3, "none", True]
    assert "previous_response_id" not in sent


@pytest.mark.parametrize(
    ("fields", "is_offered"),
    [
        ({}, True),
        ({"tool_choice": "auto"}, True),
        ({"tool_choice": "none"}, False),
        ({"tools": [{"type": "web_search"}]}, True),
        ({"tools": None}, False),
        ({"tools": [{"type": "function", "name": "context_describe"}]}, False),
        ({"input": [{"role": "user", "content": "a"}, {"type": "compaction_trigger"}]}, False),
    ],
)
def test_nobody_is_offered_what_they_could_notice(fields: Json, is_offered: bool) -> None:
    request = parse_responses_request(body_of(**fields), RequestLimits())
    assert request is not None
    assert may_offer(request) is is_offered


def test_rounds_are_told_on_the_other_wire_or_not_at_all() -> None:
    items = json.dumps([thought_item("rs"), call_item("g1", OURS[0], {"query": "x"})]).encode()
    result = b'{"type":"function_call_output","call_id":"g1","output":"{}"}'
    rounds = HiddenRounds((items, result), 9)
    assert rounds.translated(RESPONSES) == rounds
    told = rounds.translated(CHAT)
    assert told is not None
    call, found = (json.loads(raw) for raw in told.before)
    assert (call["tool_calls"][0]["id"], found["tool_call_id"]) == ("g1", "g1")
    back = told.translated(RESPONSES)
    assert back is not None
    assert json.loads(back.before[0])[0]["call_id"] == "g1"
    searched = json.dumps([{"type": "web_search_call", "id": "ws"}, json.loads(items)[1]]).encode()
    assert HiddenRounds((searched, result), 9).translated(CHAT) is None
