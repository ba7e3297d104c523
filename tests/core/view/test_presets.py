"""What each preset decides by: its marks, and the tail that it counts instead of weighing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.budget import Window, budget_of
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS
from palimpsest.core.view.outcomes import Fold, Send
from palimpsest.core.view.validity import groups_of, is_cut

from tests.core.histories import assistant, calls, prose, result, system, user
from tests.core.view.planning import Talk

COUNTED = ["rolling", "working_state", "batch", "by_content", "worker"]


def trigger(policy: Policy, window: int) -> int:
    return budget_of(
        Window(window, "configured"), fixed_tokens=0, max_output_tokens=None, ratio=1.0, policy=policy
    ).trigger_tokens


def talk_of(turns: int, *, preset: str, window: int = 10_000, size: int = 100, **numbers: object) -> Talk:
    policy = replace(PRESETS[preset], **numbers)  # type: ignore[arg-type]
    talk = Talk(system("rules"), user("the task"), window=window, policy=policy)
    for turn in range(turns):
        talk.says(assistant(prose(size, f"a{turn}")), user(prose(size, f"u{turn}")))
    return talk


@pytest.mark.spec("D13")
@pytest.mark.spec("E02")
@pytest.mark.parametrize(
    ("preset", "share"), [("working_state", 0.7), ("batch", 0.7), ("by_content", 0.7), ("worker", 0.8)]
)
def test_where_the_others_begin(preset: str, share: float) -> None:
    assert trigger(PRESETS[preset], 100_000) == share * 100_000


@pytest.mark.spec("D13")
def test_five_messages_are_not_compacted_before_they_must_be() -> None:
    talk = talk_of(2, preset="working_state", size=1_900)
    assert talk.tokens > 7_000
    assert isinstance(talk.plan(), Send)
    six = talk.says(assistant(prose(20)))
    assert isinstance(six.plan(), Fold)


@pytest.mark.spec("B05")
@pytest.mark.parametrize(("preset", "tail"), [("rolling", 6), ("worker", 30)])
def test_the_newest_messages_stay_byte_for_byte(preset: str, tail: int) -> None:
    talk = talk_of(50, preset=preset, trigger_reserve_tokens=0)
    talk.carry_out(talk.plan(), "summary")
    kept = [part for part in talk.view.parts if part.kind == "tail"]
    sent = talk.conversation.messages[-tail:]
    assert [part.raw for part in kept] == [message.raw for message in sent]


@pytest.mark.spec("E03")
def test_the_recent_part_may_be_a_share_of_the_window() -> None:
    talk = talk_of(50, preset="worker", tail_messages=0, tail_ratio=0.2)
    talk.carry_out(talk.plan(), "summary")
    kept = sum(part.tokens for part in talk.view.parts if part.kind == "tail")
    assert 1_800 <= kept <= 2_000


@pytest.mark.spec("E04")
def test_the_task_stays_under_worker_and_is_summed_up_under_rolling() -> None:
    kinds = {}
    for preset in ("worker", "rolling"):
        talk = talk_of(50, preset=preset, trigger_reserve_tokens=0)
        talk.carry_out(talk.plan(), "summary")
        kinds[preset] = [part.kind for part in talk.view.parts]
    assert kinds["worker"][:3] == ["preamble", "task", "summary"]
    assert kinds["rolling"][:3] == ["preamble", "summary", "tail"]


@pytest.mark.spec("D15")
@given(st.lists(st.sampled_from(["say", "call", "two calls"]), min_size=8, max_size=60), st.integers(0, 3))
def test_the_recent_part_begins_with_a_user_turn(steps: list[str], after: int) -> None:
    talk = talk_of(0, preset="working_state", window=2_000)
    for number, step in enumerate(steps):
        ids = [f"c{number}_{n}" for n in range(2 if step == "two calls" else 1)]
        if step != "say":
            talk.says(calls(*ids), *(result(i, prose(40)) for i in ids))
        talk.says(assistant(prose(40)), user(prose(40)))
    talk.says(*(assistant(prose(40)) for _ in range(after)))
    plan = talk.plan()
    if not isinstance(plan, Fold):
        return
    messages = talk.conversation.messages
    assert is_cut(groups_of(messages), plan.cut)
    if len(messages) - plan.cut >= 4:
        assert messages[plan.cut].role == "user"


@pytest.mark.parametrize("preset", COUNTED)
def test_a_counted_tail_that_does_not_fit_gives_way(preset: str) -> None:
    talk = talk_of(12, preset=preset, window=8_000, size=900, trigger_reserve_tokens=0)
    plan = talk.plan()
    assert isinstance(plan, Fold)
    talk.carry_out(plan, "summary")
    assert talk.tokens <= talk.budget.ceiling_tokens


@pytest.mark.spec("D14")
@pytest.mark.spec("F06")
@pytest.mark.parametrize("preset", COUNTED)
def test_around_its_mark_it_compacts_once(preset: str) -> None:
    talk = talk_of(34, preset=preset, size=100, trigger_reserve_tokens=0)
    done = 0
    for turn in range(12):
        plan = talk.plan()
        if not isinstance(plan, Send):
            talk.carry_out(plan, "summary")
            done += 1
        talk.says(assistant(prose(20, f"x{turn}")), user("go on"))
    assert done <= 1 + (preset == "worker")


@pytest.mark.spec("A14")
def test_a_chat_is_folded_by_its_messages_and_nothing_falls_between() -> None:
    policy = replace(PRESETS["auto"], trigger_messages=24, tail_messages=16)
    talk = Talk(system("rules"), user("hello"), window=128_000, policy=policy)
    folds = []
    for turn in range(40):
        talk.says(assistant(prose(80, f"a{turn}")), user(prose(60, f"q{turn}")))
        plan = talk.plan()
        if isinstance(plan, Fold):
            folds.append(turn)
            talk.carry_out(plan)
        shown = {part.index for part in talk.view.parts if part.kind == "tail"}
        folded = set(range(talk.current.messages_folded + len(talk.current.kept))) if talk.current else set()
        assert shown | folded >= set(range(len(talk.conversation.messages)))
    assert len(folds) > 3
    assert min(later - earlier for earlier, later in pairwise(folds)) >= 3
