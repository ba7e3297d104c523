"""Hidden rounds in a view: where they happened, counted with their answer, and never with half of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.history.message import Conversation
from palimpsest.core.history.read import read_message
from palimpsest.core.recall.rounds.calls import fitted
from palimpsest.core.recall.rounds.hidden import HiddenRounds, replayed, weighed
from palimpsest.core.text.message_text import ToolCall
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.view import view_of

BEFORE = (b'{"role": "assistant","tool_calls":[]}', rb'{"role":"tool","content":"\ud800"}')
OURS = {"id": "g1", "type": "function", "function": {"name": "context_grep", "arguments": "{}"}}
THEIRS = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
RESULT = b'{"role":"tool","tool_call_id":"g1","content":"found"}'


def count(fields: Any) -> int:
    return len(json.dumps(fields)) // 4


def talk_of(*messages: dict[str, Any]) -> Conversation:
    read = tuple(read_message(json.dumps(message).encode(), count) for message in messages)
    return Conversation((), read, tuple(bytes([at]) * 32 for at in range(len(read))))


TALK = talk_of(
    {"role": "user", "content": "Which port?"},
    {"role": "assistant", "content": "Hm.", "tool_calls": [THEIRS]},
    {"role": "tool", "tool_call_id": "c1", "content": "x"},
)
WRITTEN = json.dumps({"role": "assistant", "content": "Hm.", "tool_calls": [OURS, THEIRS]}).encode()


def told(hidden: HiddenRounds) -> list[bytes]:
    view: View = view_of(TALK, None, len)
    return list(replayed(view, TALK, {1: hidden}))


def test_rounds_stand_before_their_answer_byte_for_byte() -> None:
    user, answer, result = (message.raw for message in TALK.messages)
    assert told(HiddenRounds(BEFORE, 7)) == [user, *BEFORE, answer, result]


@pytest.mark.spec("F21")
def test_a_mixed_answer_is_told_as_it_was_written_with_our_results_right_behind() -> None:
    user, answer, result = (message.raw for message in TALK.messages)
    mixed = HiddenRounds(BEFORE, 7, WRITTEN, (RESULT,), 90)
    assert told(mixed) == [user, *BEFORE, WRITTEN, RESULT, result]
    assert told(HiddenRounds(BEFORE, 7, WRITTEN, None, 60)) == [user, *BEFORE, answer, result]
    other = WRITTEN.replace(b'"c1"', b'"c2"')
    assert told(HiddenRounds(BEFORE, 7, other, (RESULT,), 90)) == [user, *BEFORE, answer, result]


@pytest.mark.spec("F13")
def test_rounds_count_with_their_answer() -> None:
    whole = HiddenRounds(BEFORE, 7, WRITTEN, (RESULT,), 90)
    half = HiddenRounds(BEFORE, 7, WRITTEN, None, 60)
    tokens = [message.tokens for message in TALK.messages]
    assert [m.tokens for m in weighed(TALK, {1: whole}).messages] == [tokens[0], 97, tokens[2]]
    assert [m.tokens for m in weighed(TALK, {1: half}).messages] == [tokens[0], tokens[1] + 7, tokens[2]]
    assert weighed(TALK, {}) is TALK
    assert weighed(TALK, {1: whole}).chains == TALK.chains


@pytest.mark.parametrize("room", [10_000, 500, 100, 60, 0, -5])
def test_a_result_is_cut_to_the_room_there_is(room: int) -> None:
    """As long as there is room for a message at all; without any it is as short as it can be."""
    call = ToolCall("g1", "context_grep", "{}")
    result = json.dumps({"entries": ["a quote of what was said"] * 100})
    message, tokens = fitted(call, result, 5_000, room, count)
    fields = json.loads(message)
    assert (fields["role"], fields["tool_call_id"]) == ("tool", "g1")
    assert tokens == count(fields)
    if room == 10_000:
        assert fields["content"] == result
        return
    inner = json.loads(fields["content"])
    assert inner["truncated"] is True
    assert result.startswith(inner["beginning"])
    assert tokens <= room or not inner["beginning"]
    if room >= 100:
        assert len(inner["beginning"]) > room
