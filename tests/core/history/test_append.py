from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from palimpsest.core.history.append import (
    Appended,
    Mode,
    ModeFacts,
    NeedsTranscript,
    Repeat,
    appended_of,
    mode_of,
    open_calls,
)
from palimpsest.core.history.message import Conversation, conversation_of, seed_of
from palimpsest.core.history.read import read_message
from palimpsest.errors import InvalidField, OpenToolGroup

Json = dict[str, Any]


def talk(*messages: Json | bytes) -> Conversation:
    raw = [m if isinstance(m, bytes) else msgspec.json.encode(m) for m in messages]
    return conversation_of(tuple(read_message(body, len) for body in raw), seed_of("here"))


def says(role: str, text: str) -> Json:
    return {"role": role, "content": text}


def result(call: str) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": f"result of {call}"}


def calls(*ids: str) -> Json:
    listed = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": listed}


SYSTEM = says("system", "Be brief.")
STORED = (SYSTEM, says("user", "one"), says("assistant", "1"), says("user", "two"), says("assistant", "2"))
OPEN = (says("user", "one"), calls("a", "b"))
CURL = ModeFacts(header=None, may_append=True, exists=True, appends=True)


def mode(
    *messages: Json, facts: ModeFacts = CURL, stored: Conversation | None = None
) -> Mode | NeedsTranscript:
    return mode_of(talk(*messages), facts, talk(*STORED[1:]) if stored is None else stored)


def test_a_lone_user_message_under_a_name_is_a_delta() -> None:
    assert mode(says("user", "three")) == "append"


@pytest.mark.parametrize("appends", [True, False])
def test_results_of_open_calls_are_a_delta(*, appends: bool) -> None:
    facts = replace(CURL, appends=appends)
    assert mode(result("b"), result("a"), stored=talk(*OPEN), facts=facts) == "append"


@pytest.mark.parametrize(
    "messages",
    [
        (SYSTEM, says("user", "three")),
        (says("developer", "Be brief."), says("user", "three")),
        (says("user", "three"), says("system", "late"), says("user", "four")),
        (says("user", "three"), says("assistant", "3"), says("user", "four")),
        (says("user", "one"), says("user", "three")),
        (result("c"),),
        (),
    ],
)
def test_what_is_not_certainly_a_delta_is_full(messages: tuple[Json, ...]) -> None:
    assert mode(*messages) == "full"


@pytest.mark.parametrize(
    "facts",
    [
        ModeFacts(header=None, may_append=False, exists=True),
        ModeFacts(header=None, may_append=True, exists=False),
        ModeFacts(header=None, may_append=True, exists=True, appends=False),
        ModeFacts(header=None, may_append=True, exists=True, full_history=True),
        ModeFacts(header="full", may_append=True, exists=True),
        ModeFacts(header=None, default="full", may_append=True, exists=True),
        ModeFacts(header=None, default="append", may_append=False, exists=True),
    ],
)
def test_every_condition_counts(facts: ModeFacts) -> None:
    assert mode(says("user", "three"), facts=facts) == "full"


def test_the_header_says_what_is_done() -> None:
    used = ModeFacts(header=None, may_append=True, exists=True, full_history=True)
    assert mode(SYSTEM, says("user", "one"), facts=replace(used, header="append")) == "append"
    assert mode(says("user", "one"), facts=replace(used, header="new")) == "new"
    assert mode(says("user", "three"), facts=replace(used, header=" Detect ")) == "full"
    with pytest.raises(InvalidField):
        mode(says("user", "three"), facts=replace(used, header="delta"))


def test_an_append_needs_a_name_of_ours() -> None:
    with pytest.raises(InvalidField):
        mode(says("user", "three"), facts=ModeFacts(header="append", may_append=False))


def append(*messages: Json, to: tuple[Json, ...] = STORED, repeat: Repeat = Repeat()) -> Appended:  # noqa: B008
    return appended_of(talk(*to), talk(*messages), repeat)


def test_a_second_yes_is_a_second_message() -> None:
    assert append(says("user", "two")).conversation == talk(*STORED, says("user", "two"))


def test_repeated_instructions_replace_the_stored_ones() -> None:
    new = says("system", "Be thorough.")
    assert append(new, says("user", "three")).conversation == talk(new, *STORED[1:], says("user", "three"))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_an_overlap_is_not_stored_twice(size: int) -> None:
    sent = (*STORED[-size:], says("user", "three"))
    assert append(*sent).conversation == talk(*STORED, says("user", "three"))


def test_an_overlap_may_be_spelled_otherwise() -> None:
    sent = (says("assistant", " 2\n"), says("user", "three"))
    assert append(*sent).conversation == talk(*STORED, says("user", "three"))


def test_an_unanswered_head_with_equal_bytes_is_a_retry() -> None:
    assert append(says("user", "two"), to=STORED[:4]) == Appended(talk(*STORED[:4]), True)


def test_a_retry_of_an_answered_message_leaves_the_answer_out() -> None:
    assert append(says("user", "two"), repeat=Repeat(retry=True)) == Appended(talk(*STORED[:4]), True)


def test_a_retry_that_never_arrived_is_appended() -> None:
    done = append(says("user", "three"), repeat=Repeat(retry=True))
    assert done == Appended(talk(*STORED, says("user", "three")), False)


def test_a_repeated_key_goes_back_to_its_own_exchange() -> None:
    first = talk(*STORED[:2]).head
    assert append(says("user", "one"), repeat=Repeat(head=first)) == Appended(talk(*STORED[:2]), True)


def test_results_complete_the_open_group_in_any_order() -> None:
    sent = (result("b"), result("a"), says("user", "and?"))
    assert append(*sent, to=OPEN).conversation == talk(*OPEN, *sent)


@pytest.mark.parametrize(
    "sent",
    [
        (result("a"),),
        (says("user", "and?"),),
        (result("a"), says("user", "and?"), result("b")),
        (result("a"), result("a")),
        (result("a"), result("b"), result("c")),
    ],
)
def test_an_incomplete_group_is_refused(sent: tuple[Json, ...]) -> None:
    with pytest.raises(OpenToolGroup) as refusal:
        append(*sent, to=OPEN)
    assert refusal.value.status == 422


def test_a_result_without_an_open_call_is_refused() -> None:
    with pytest.raises(OpenToolGroup):
        append(result("a"))


@pytest.mark.spec("F02")
def test_only_the_newest_call_of_an_id_is_open() -> None:
    twice = (*OPEN, result("a"), result("b"), says("assistant", "ok"), says("user", "again"), calls("a"))
    assert open_calls(talk(*twice).messages) == ("a",)
    assert open_calls(talk(*twice, result("a")).messages) == ()
    assert append(result("a"), to=twice).conversation == talk(*twice, result("a"))
