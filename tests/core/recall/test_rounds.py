"""What a client is shown of an answer with calls to our tools: its own calls and bytes, honest counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.recall.rounds.calls import Called, called_by, newest_words
from palimpsest.core.recall.rounds.calls import RecallCall as OurCall
from palimpsest.core.recall.rounds.frames import ChatClientAnswer, FrameForm, RoundFrames, replaced
from palimpsest.core.recall.rounds.offer import may_offer, offering
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.chat_answers import AnsweredChoice
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.streams import data_of

Json = dict[str, Any]
FORM = FrameForm(data_of, lambda data: b"data: " + data + b"\n\n")
DONE = b"data: [DONE]\n\n"


def frame(delta: Json, finish: str | None = None, **fields: Any) -> bytes:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def piece(index: int, name: str | None = None, arguments: str = "") -> Json:
    opened = {"id": f"call{index}", "type": "function"} if name is not None else {}
    function = ({"name": name} if name is not None else {}) | {"arguments": arguments}
    return {"index": index, **opened, "function": function}


def calls(*pieces: Json) -> Json:
    return {"tool_calls": list(pieces)}


def shown(
    frames: list[bytes], so_far: ChatClientAnswer | None = None, *, may_hide: bool = True
) -> tuple[bytes, RoundFrames]:
    made = RoundFrames(FORM, so_far or ChatClientAnswer(), may_hide=may_hide)
    return b"".join([made.shown(each) for each in frames]), made


def deltas(out: bytes) -> list[Json]:
    data = [data_of(each + b"\n\n") for each in out.split(b"\n\n") if each]
    chunks = [json.loads(each) for each in data if each and each != b"[DONE]"]
    return [choice for chunk in chunks for choice in chunk["choices"]]


def test_without_a_call_of_ours_every_byte_passes() -> None:
    frames = [
        b": comment\n\n",
        frame({"role": "assistant", "content": ""}),
        frame({"content": "a \u2028 b"}, usage=None),
        frame(calls(piece(0, "read", ""))),
        frame(calls(piece(0, None, '{"a":1}'))),
        frame({}, "tool_calls"),
        b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n',
        DONE,
    ]
    out, made = shown(frames)
    assert out == b"".join(frames)
    assert (made.is_hidden, made.called.others) == (False, 1)


def test_a_hidden_round_leaves_its_words_only() -> None:
    frames = [
        frame({"role": "assistant", "content": "Wait"}),
        frame(calls(piece(0, "context_grep"))),
        frame(calls(piece(0, None, '{"query":'))),
        frame({"content": "."} | calls(piece(0, None, '"x"}')), "tool_calls", usage={"completion_tokens": 4}),
        b'data: {"choices":[],"usage":{"completion_tokens":5}}\n\n',
        DONE,
    ]
    out, made = shown(frames)
    assert [choice["delta"] for choice in deltas(out)] == [
        {"role": "assistant", "content": "Wait"},
        {"content": "."},
    ]
    assert {choice["finish_reason"] for choice in deltas(out)} == {None}
    assert b"usage" not in out
    assert (made.is_hidden, made.usage.completion_tokens) == (True, 5)
    assert made.called.ours == (OurCall("call0", "context_grep", '{"query":"x"}'),)


def test_the_clients_calls_move_up_and_keep_their_bytes() -> None:
    call = b'{ "index" :1,"function":{"arguments":"1e2 \\u00e9"}}'
    odd = b'data: {"choices":[{"delta":{"tool_calls":[' + call + b"]}}]}\n\n"
    frames = [
        frame(calls(piece(0, "context_describe"), piece(1, "read"))),
        odd,
        frame(calls(piece(2, "write", "{}"))),
        frame({}, "tool_calls"),
        DONE,
    ]
    out, made = shown(frames)
    assert odd.replace(b":1,", b":0,") in out
    seen = [each for choice in deltas(out) for each in choice["delta"].get("tool_calls", [])]
    assert [(each["index"], each.get("id")) for each in seen] == [(0, "call1"), (0, None), (1, "call2")]
    assert out.endswith(frames[-2] + DONE)
    assert not made.is_hidden


@pytest.mark.parametrize("name", ["context_grep", "context_list", "con", "contexture"])
def test_a_name_in_pieces_is_held_until_it_is_known(name: str) -> None:
    frames = [frame(calls(piece(0, name[:3])))]
    frames += [frame(calls({"index": 0, "function": {"name": name[3:]}}))] if name[3:] else []
    frames += [frame(calls(piece(0, None, "{}"))), frame({}, "tool_calls")]
    out, made = shown(frames)
    pieces = [each for choice in deltas(out) for each in choice["delta"].get("tool_calls", [])]
    told = "".join(each["function"].get("name", "") for each in pieces)
    assert told == ("" if name == "context_grep" else name)
    assert made.is_hidden == (name == "context_grep")


def test_a_later_round_goes_on_with_the_message() -> None:
    so_far = ChatClientAnswer(has_role=True, hidden_tokens=10)
    frames = [
        frame({"role": "assistant", "content": ""}),
        frame({"role": "assistant", "content": "So"}),
        frame({"content": " it is."}),
        frame({}, "stop"),
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}\n\n',
    ]
    out, _ = shown(frames, so_far)
    assert b"role" not in out
    assert [choice["delta"] for choice in deltas(out)] == [{"content": "So"}, {"content": " it is."}, {}]
    assert b'{"prompt_tokens":7,"completion_tokens":13,"total_tokens":20}' in out


@pytest.mark.parametrize(("finish", "told"), [("tool_calls", "stop"), ("length", "length")])
def test_calls_that_are_not_carried_out_end_the_answer(finish: str, told: str) -> None:
    out, made = shown([frame(calls(piece(0, "context_grep", "{}"))), frame({}, finish)], may_hide=False)
    assert [choice["finish_reason"] for choice in deltas(out)] == [told]
    assert b"context" not in out
    assert not made.is_hidden


def test_a_cut_call_is_not_carried_out() -> None:
    _, made = shown([frame(calls(piece(0, "context_grep", '{"que'))), frame({}, "length"), DONE])
    assert not made.is_hidden


def test_an_error_in_the_stream_passes() -> None:
    error = b'data: {"error":{"message":"context_grep failed"}}\n\n'
    assert shown([error])[0] == error


def whole(*names: str, finish: str = "tool_calls") -> bytes:
    made = [{"id": f"i{at}", "function": {"name": name, "arguments": "{}"}} for at, name in enumerate(names)]
    message = {"content": None, "tool_calls": made}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": 2, "x": 1e2}}).encode()


def called(body: bytes) -> Called:
    choice = json.loads(body)["choices"][0]
    return called_by(AnsweredChoice(0, json.dumps(choice["message"]).encode(), choice["finish_reason"]))


def test_a_whole_answer_is_changed_where_it_must_be() -> None:
    mine = whole("read")
    assert ChatClientAnswer().whole(mine, called(mine)) == mine
    assert ChatClientAnswer(hidden_tokens=5).whole(mine, called(mine)) == mine.replace(
        b'"completion_tokens": 2', b'"completion_tokens": 7'
    )
    mixed = whole("context_grep", "read")
    message = json.loads(ChatClientAnswer().whole(mixed, called(mixed)))["choices"][0]
    assert [call["id"] for call in message["message"]["tool_calls"]] == ["i1"]
    assert message["finish_reason"] == "tool_calls"
    ours = whole("context_grep")
    message = json.loads(ChatClientAnswer().whole(ours, called(ours)))["choices"][0]
    assert (message["message"], message["finish_reason"]) == ({"content": None}, "stop")


def test_the_newest_words_are_the_users() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url"}]
    said = [
        {"role": "user", "content": "old"},
        {"role": "user", "content": parts},
        {"role": "tool", "content": "x"},
    ]
    assert newest_words(said) == "look"
    assert newest_words([{"role": "assistant", "content": "x"}]) == ""


TOOLS = b'{ "tools" :[{"type":"function","function":{"name":"a"}} ]'
BODY = TOOLS + b',"messages":[{"role":"user","content":"x"}],"z":1e2 }'


@pytest.mark.parametrize("choice", [b"", b',"tool_choice":"auto"'])
def test_tools_are_added_and_no_other_byte_changes(choice: bytes) -> None:
    request = parse_chat_request(BODY.replace(b',"z"', choice + b',"z"'), RequestLimits())
    assert may_offer(request)
    body = offering(request, [b'{"role":"user","content":"y"}'])
    names = [tool["function"]["name"] for tool in json.loads(body)["tools"]]
    assert names == ["a", "context_grep", "context_describe"]
    assert body.startswith(TOOLS[:-1] + b",{")
    assert body.endswith(b'"messages":[{"role":"user","content":"y"}]' + choice + b',"z":1e2 }')
    last = json.loads(offering(request, [], may_call=False))
    assert (last["tool_choice"], last["messages"], last["z"]) == ("none", [], 100.0)


@pytest.mark.parametrize("written", [b"", b',"tools":[]', b',"tools":null,"tool_choice":"auto"'])
def test_a_request_without_tools_has_ours_alone_where_that_is_asked_for(written: bytes) -> None:
    request = parse_chat_request(
        b'{"messages":[{"role":"user","content":"x"}]' + written + b"}", RequestLimits()
    )
    assert not may_offer(request)
    assert may_offer(request, without_tools=True)
    body = json.loads(offering(request, [], may_call=False))
    names = [tool["function"]["name"] for tool in body["tools"]]
    assert names == ["context_grep", "context_describe"]
    assert (body["tool_choice"], body["messages"]) == ("none", [])


VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES), st.text(), VALUES)
def test_an_edit_is_the_edit_of_the_value(fields: dict[str, Any], key: str, value: Any) -> None:
    text = json.dumps({**fields, key: [{"old": 1}, value]}).encode()
    edited = replaced(text, (key, 0, "old"), b"[2]")
    assert json.loads(edited) == {**fields, key: [{"old": [2]}, value]}
    assert json.loads(replaced(text, (key, 0, "old"), None)) == {**fields, key: [{}, value]}
    assert replaced(text, (key, 5), b"1") == text
