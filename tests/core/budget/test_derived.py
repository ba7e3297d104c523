"""A conversation's own budget: what it shows of itself goes into the rule, and the marks stay in bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.budget.budget import Budget, Window, budget_of
from app.core.budget.derived import Costs, derived, growth_of
from app.core.budget.economy import Call, Prices, Room, is_worth_asking
from app.core.history.conversation import Conversation
from app.core.view.policy import Policy
from app.core.view.presets import PRESETS
from tests.core.histories import assistant, conversation, prose, user

COSTS = Costs(Prices(), asks_model=True)
BY_CODE = Costs(Prices(), asks_model=False)
OBJECTIVES = ["fidelity", "balanced", "cost"]


def talk(turns: int, size: int) -> Conversation:
    fields: list[dict[str, Any]] = [user("the task")]
    for turn in range(turns):
        fields += [assistant(prose(size // 2, f"a{turn}")), user(prose(size // 2, f"u{turn}"))]
    return conversation(fields)


def plain(window: int, policy: Policy, fixed: int = 300) -> Budget:
    return budget_of(
        Window(window, "configured"), fixed_tokens=fixed, max_output_tokens=None, ratio=1.0, policy=policy
    )


def marks_of(window: int, objective: Any, costs: Costs = COSTS, *, size: int = 400, block: int = 0) -> Budget:
    policy = replace(Policy(), objective=objective)
    return derived(plain(window, policy), talk(30, size), 20, block, policy, costs)


def test_growth_is_what_the_newest_turns_added() -> None:
    assert growth_of([]).turns == 0
    small, large = growth_of(talk(30, 100).messages), growth_of(talk(30, 1_000).messages)
    assert small.turn_tokens < 250
    assert large.turn_tokens > 900
    mixed = (*talk(30, 1_000).messages, *talk(14, 100).messages)
    assert growth_of(mixed).turn_tokens < 400


def test_a_policy_that_derives_nothing_keeps_its_marks() -> None:
    budget = plain(100_000, PRESETS["handoff"])
    assert derived(budget, talk(5, 100), 20, 0, PRESETS["handoff"], COSTS) is budget


@given(
    st.integers(2_000, 1_000_000),
    st.sampled_from(OBJECTIVES),
    st.booleans(),
    st.integers(10, 3_000),
    st.integers(0, 4_000),
    st.integers(0, 1_500),
)
def test_no_mark_leaves_its_bounds(
    window: int, objective: Any, asks: bool, size: int, block: int, fixed: int
) -> None:
    policy = replace(Policy(), objective=objective)
    budget = plain(window, policy, fixed)
    found = derived(budget, talk(12, size), 20, block, policy, Costs(Prices(), asks_model=asks))
    assert 1 <= found.target_tokens < found.precompute_tokens <= found.trigger_tokens <= budget.trigger_tokens
    assert 0 <= found.gain_tokens <= found.trigger_tokens - found.target_tokens
    assert found.ceiling_tokens == budget.ceiling_tokens


def test_whoever_wants_more_kept_compacts_later() -> None:
    triggers = [marks_of(200_000, objective).trigger_tokens for objective in OBJECTIVES]
    assert triggers[0] == 180_000
    assert triggers == sorted(triggers, reverse=True)


def test_balanced_never_begins_below_half_of_the_highest_trigger() -> None:
    for window in (16_000, 128_000, 1_000_000):
        top = plain(window, Policy()).trigger_tokens
        found = marks_of(window, "balanced", BY_CODE, size=100)
        assert found.trigger_tokens >= top // 2
        assert found.target_tokens > found.fixed_tokens


def test_fast_growth_and_large_blocks_make_longer_steps() -> None:
    slow, fast = (marks_of(64_000, "cost", size=size) for size in (100, 2_000))
    assert fast.trigger_tokens - fast.target_tokens > slow.trigger_tokens - slow.target_tokens
    small, large = (marks_of(64_000, "cost", block=block) for block in (300, 3_000))
    assert large.target_tokens > small.target_tokens


def test_the_share_of_wording_does_not_shrink_with_the_target() -> None:
    policy = Policy()
    budget = plain(12_000, policy)
    found = derived(budget, talk(30, 400), 20, 0, policy, COSTS)
    assert found.target_tokens < budget.target_tokens
    assert found.carry_tokens == budget.carry_tokens


def test_a_question_is_put_while_it_fits_behind_the_prompt() -> None:
    found = marks_of(6_000, "balanced", size=600)
    assert found.precompute_tokens <= found.riding_tokens - 500


@pytest.mark.parametrize(
    ("objective", "folded", "worth"),
    [
        ("balanced", 4_000, True),
        ("balanced", 2_000, False),
        ("fidelity", 1, True),
        ("cost", 4_000, False),
        ("cost", 12_000, True),
    ],
)
def test_a_model_is_asked_where_it_is_worth_its_price(objective: Any, folded: int, worth: bool) -> None:
    call = Call(Prices(), rides=True, question_tokens=250)
    # 250 for the question, 500 for a prompt of 5,000 from the cache, 4 x 500 for the answer.
    assert is_worth_asking(call, objective, 5_000, folded, 500) is worth


def test_a_tight_window_is_compacted_as_if_nobody_were_asked() -> None:
    policy = Policy()
    budget = plain(4_000, policy, fixed=2_000)
    assert derived(budget, talk(8, 200), 20, 0, policy, COSTS) == derived(
        budget, talk(8, 200), 20, 0, policy, BY_CODE
    )


def test_the_floor_lifts_trigger_and_target_together() -> None:
    room = Room(500, 0, 90_000, 45_000)
    policy = replace(Policy(), objective="balanced")
    found = derived(plain(100_000, policy, 480), talk(30, 300), 20, 0, policy, BY_CODE)
    low = marks_of(100_000, "cost", BY_CODE, size=300)
    assert found.trigger_tokens == room.floor_tokens
    assert 2 * found.target_tokens > 3 * low.target_tokens
