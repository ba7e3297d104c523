from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.view.validity import added_faults, faults_of, groups_of

from tests.core.histories import assistant, calls, conversation, result, system, user


def raw(*fields: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in fields]


LEGACY = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    "fields",
    [
        [user("hi")],
        [system("s"), user("hi"), calls("a", "b"), result("b", "2"), result("a", "1"), assistant("ok")],
        [user("hi"), calls("a"), result("a", "1"), calls("a"), result("a", "2")],
        [user("hi"), LEGACY, {"role": "function", "name": "f", "content": "1"}, assistant("ok")],
        [system("only")],
    ],
)
def test_a_valid_list_has_no_fault(fields: list[dict[str, Any]]) -> None:
    assert faults_of(raw(*fields)) == ()


@pytest.mark.spec("F01")
@pytest.mark.parametrize(
    ("fields", "faults"),
    [
        ([user("hi"), result("a", "1")], ("orphan_result",)),
        ([user("hi"), calls("a"), result("a", "1"), result("a", "2")], ("orphan_result",)),
        ([user("hi"), calls("a", "b"), result("a", "1"), user("go")], ("unanswered_call",)),
        ([user("hi"), calls("a")], ("unanswered_call_at_end",)),
        ([user("hi"), calls("a"), user("wait"), result("a", "1")], ("orphan_result", "unanswered_call")),
        ([user("hi"), system("late")], ("instruction_not_first",)),
        ([assistant("hi"), user("hi")], ("not_started_by_user",)),
        ([{"role": "narrator", "content": "x"}, user("hi")], ("bad_role", "not_started_by_user")),
        ([user("hi"), {"role": "assistant", "content": None}], ("empty_assistant",)),
        ([{"role": "user", "content": None}], ("bad_content",)),
        ([], ("empty",)),
    ],
)
def test_each_fault_has_its_name(fields: list[dict[str, Any]], faults: tuple[str, ...]) -> None:
    assert faults_of(raw(*fields)) == faults


def test_what_is_no_object_is_a_fault() -> None:
    assert faults_of([b"[]", b'{"role":"user","content":"hi"}', b"{"]) == ("not_an_object",)


def test_a_fault_of_the_client_is_not_added_by_us() -> None:
    client = raw(user("hi"), result("a", "1"))
    assert added_faults(client, client) == ()
    assert added_faults(raw(user("hi"), calls("a")), client) == ("unanswered_call_at_end",)


def cuts(*fields: dict[str, Any]) -> tuple[int, ...]:
    """Every legal cut: where a group begins, the first one's beginning apart."""
    return tuple(group.start for group in groups_of(conversation(fields).messages) if group.start)


@pytest.mark.spec("A10", "W04")
def test_calls_and_all_their_results_are_never_parted() -> None:
    assert cuts(user("go"), calls("a", "b"), result("b", "2"), result("a", "1"), assistant("done")) == (1, 4)


@pytest.mark.spec("F02")
def test_an_id_used_again_belongs_to_the_newest_call() -> None:
    assert cuts(user("go"), calls("a"), result("a", "1"), user("again"), calls("a"), result("a", "2")) == (
        1,
        3,
        4,
    )


@pytest.mark.spec("F02")
def test_an_aborted_call_does_not_catch_a_later_result_of_its_id() -> None:
    assert cuts(user("go"), calls("a"), user("stop"), calls("a"), result("a", "2"), user("ok")) == (
        1,
        2,
        3,
        5,
    )


def test_a_late_result_holds_together_all_that_stands_between() -> None:
    assert cuts(
        user("go"), calls("a", "b"), result("a", "1"), user("wait"), result("b", "2"), user("ok")
    ) == (1, 5)


def test_a_result_nobody_called_for_never_starts_a_tail() -> None:
    assert cuts(user("go"), result("x", "?"), user("ok")) == (2,)


def test_the_legacy_call_and_its_function_message_are_one() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert cuts(user("go"), call, {"role": "function", "name": "f", "content": "1"}, user("ok")) == (1, 3)
