"""The newest two or three exchanges stay in every view that has room for them (rule 38)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.view.outcomes import Fold
from palimpsest.core.view.plan import plan_of, plan_overflow

from tests.core.histories import assistant, prose, user
from tests.core.view.planning import Planner, Talk, chat


def kept_questions(talk: Talk, fold: Fold) -> int:
    """How many of the newest user messages, the question apart, stand in the tail."""
    asked = [i for i, message in enumerate(talk.conversation.messages) if message.role == "user"]
    return sum(index >= fold.cut for index in asked) - 1


@pytest.mark.spec("H16")
def test_after_an_overflow_the_newest_exchanges_stay() -> None:
    """8,267 tokens of 8,000 became 1,017: task, summary, newest question."""
    talk = chat(turns=5, tokens=750, window=8_000)
    assert talk.tokens > 8_000
    fold = talk.plan_overflow()
    assert isinstance(fold, Fold)
    assert kept_questions(talk, fold) == 1
    talk.carry_out(fold)
    assert talk.tokens < 0.75 * 8_267


@pytest.mark.spec("H16")
def test_where_the_window_is_a_guess_the_true_one_may_be_far_smaller() -> None:
    talk = chat(turns=5, tokens=750, window=8_000)
    talk.window = type(talk.window)(8_000, "default")
    fold = talk.plan_overflow()
    assert isinstance(fold, Fold)
    assert kept_questions(talk, fold) == 0


@pytest.mark.spec("H16")
@pytest.mark.parametrize("planner", [plan_of, plan_overflow])
@given(sizes=st.lists(st.integers(20, 900), min_size=8, max_size=24), window=st.integers(4_000, 12_000))
def test_a_view_with_room_for_the_newest_exchanges_has_them(
    planner: Planner, sizes: list[int], window: int
) -> None:
    talk = Talk(user(prose(100, "task")), window=window)
    for n, size in enumerate(sizes):
        talk.says(assistant(prose(size, f"a{n}")), user(prose(size, f"u{n}")))
    before = talk.tokens
    fold = talk.plan(planner)
    if not isinstance(fold, Fold):
        return
    budget, messages = talk.budget, talk.conversation.messages
    asked = [i for i, message in enumerate(messages) if message.role == "user"]
    start = asked[-2]
    tail = sum(message.tokens for message in messages[start:])
    task = messages[0].tokens
    # A quarter of what lies below the trigger is there to grow into.
    room = int(0.75 * budget.trigger_tokens)
    if planner is plan_overflow:
        room = min(room, int(0.75 * before))
    # Room is what a summary leaves: a record, and as much again of what code knows exactly.
    if task + tail + 2 * budget.summary_tokens <= room and before - room >= budget.gain_tokens:
        assert fold.cut <= start
