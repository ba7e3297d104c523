from typing import Any

import pytest
from palimpsest.core.view.validity import groups_of

from tests.core.histories import assistant, calls, conversation, result, user


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
