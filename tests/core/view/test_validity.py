import json
from typing import Any

import pytest
from palimpsest.core.view.validity import added_faults, faults_of

from tests.core.histories import assistant, calls, result, system, user


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
