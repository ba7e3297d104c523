"""A conversation's own budget: what it shows of itself goes into the rule, and the marks stay in bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.budget import Budget, Window, budget_of
from palimpsest.core.budget.economy import (
    Costs,
    Prices,
    SummaryCall,
    SummarySizes,
    TurnGrowth,
    derived,
    growth_of,
    is_worth_asking,
    marks,
    room_of,
)
from palimpsest.core.history.message import Conversation
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS

from tests.core.histories import assistant, conversation, prose, user

COSTS = Costs(Prices(), asks_model=True)
BY_CODE = Costs(Prices(), asks_model=False)
COST = Policy(objective="cost")


def talk(turns: int, size: int) -> Conversation:
    fields: list[dict[str, Any]] = [user("the task")]
    for turn in range(turns):
        fields += [assistant(prose(size // 2, f"a{turn}")), user(prose(size // 2, f"u{turn}"))]
    return conversation(fields)


def plain(window: int, policy: Policy, fixed: int = 300) -> Budget:
    return budget_of(
        Window(window, "configured"), fixed_tokens=fixed, max_output_tokens=None, ratio=1.0, policy=policy
    )


def marks_of(window: int, costs: Costs = COSTS, *, size: int = 400, block: int = 0, idle: int = 0) -> Budget:
    return derived(plain(window, COST), talk(30, size), (20, block), COST, costs, idle)


def test_growth_is_what_the_newest_turns_added() -> None:
    assert growth_of([]).turns == 0
    small, large = growth_of(talk(30, 100).messages), growth_of(talk(30, 1_000).messages)
    assert small.turn_tokens < 250
    assert large.turn_tokens > 900
    mixed = (*talk(30, 1_000).messages, *talk(14, 100).messages)
    assert growth_of(mixed).turn_tokens < 400


@pytest.mark.parametrize("name", PRESETS)
def test_fidelity_keeps_the_marks_of_the_policy(name: str) -> None:
    budget = plain(100_000, PRESETS[name])
    assert PRESETS[name].objective == "fidelity"
    assert derived(budget, talk(5, 100), (20, 0), PRESETS[name], COSTS) is budget


@given(
    st.integers(2_000, 1_000_000),
    st.booleans(),
    st.integers(10, 3_000),
    st.integers(0, 4_000),
    st.integers(0, 1_500),
    st.sampled_from([0, 400]),
)
def test_no_mark_leaves_its_bounds(
    window: int, asks: bool, size: int, block: int, fixed: int, idle: int
) -> None:
    budget = plain(window, COST, fixed)
    found = derived(budget, talk(12, size), (20, block), COST, Costs(Prices(), asks_model=asks), idle)
    assert 1 <= found.target_tokens < found.precompute_tokens <= found.trigger_tokens <= budget.trigger_tokens
    assert 0 <= found.gain_tokens <= found.trigger_tokens - found.target_tokens
    assert found.ceiling_tokens == budget.ceiling_tokens


def test_cost_never_begins_below_half_of_the_highest_trigger() -> None:
    for window in (16_000, 128_000, 1_000_000):
        top = plain(window, COST).trigger_tokens
        found = marks_of(window, BY_CODE, size=100)
        assert found.trigger_tokens >= top // 2
        assert found.target_tokens > found.fixed_tokens


@pytest.mark.parametrize("window", [16_000, 128_000, 1_000_000])
def test_a_cold_cache_is_folded_sooner_and_never_for_little(window: int) -> None:
    plain_budget = plain(window, COST)
    warm, cold = marks_of(window, BY_CODE), marks_of(window, BY_CODE, idle=400)
    assert cold.trigger_tokens < warm.trigger_tokens
    assert cold.trigger_tokens - cold.target_tokens >= plain_budget.gain_tokens
    assert (cold.idle_seconds, warm.idle_seconds) == (400, 0)


def test_fast_growth_and_large_blocks_make_longer_steps() -> None:
    slow, fast = (marks_of(64_000, size=size) for size in (100, 2_000))
    assert fast.trigger_tokens - fast.target_tokens > slow.trigger_tokens - slow.target_tokens
    small, large = (marks_of(64_000, block=block, idle=400) for block in (300, 12_000))
    assert large.trigger_tokens > small.trigger_tokens


def test_the_share_of_wording_does_not_shrink_with_the_target() -> None:
    budget = plain(12_000, COST)
    found = derived(budget, talk(30, 400), (20, 0), COST, COSTS)
    assert found.target_tokens < budget.target_tokens
    assert found.base_target_tokens == budget.base_target_tokens


def test_a_question_is_put_while_it_fits_behind_the_prompt() -> None:
    found = marks_of(12_000, size=600)
    assert found.precompute_tokens <= found.append_limit_tokens - 500


@pytest.mark.parametrize(("folded", "worth"), [(4_000, True), (2_000, False)])
def test_a_model_is_asked_where_it_is_worth_its_price(folded: int, worth: bool) -> None:
    call = SummaryCall(Prices(), reuses_cache=True, question_tokens=250)
    # 250 for the question, 500 for a prompt of 5,000 from the cache, 4 x 500 for the answer.
    assert is_worth_asking(call, 5_000, folded, 500) is worth


def test_a_tight_window_is_compacted_as_if_nobody_were_asked() -> None:
    budget = plain(4_000, COST, fixed=2_000)
    assert derived(budget, talk(8, 200), (20, 0), COST, COSTS) == derived(
        budget, talk(8, 200), (20, 0), COST, BY_CODE
    )


def test_the_floor_lifts_trigger_and_target_together() -> None:
    found = marks_of(100_000, BY_CODE, size=300)
    free = replace(room_of(20, 500, 90_000), floor_tokens=0)
    low = marks(Prices(), TurnGrowth(300), SummarySizes(500, 500), free, None)
    assert found.trigger_tokens == 45_000 > low.trigger_tokens
    assert found.target_tokens > low.target_tokens


def test_what_decides_the_trigger_is_said() -> None:
    window = Window(128_000, "configured")

    def said(policy: Policy, output: int | None = None) -> str:
        return budget_of(window, fixed_tokens=0, max_output_tokens=output, ratio=1.0, policy=policy).asked

    assert said(Policy()) == "0.90 asked"
    assert said(Policy(), 32_000) == "32,000 kept free for the answer"
    assert said(Policy(trigger_tokens=20_000)) == "20,000 asked"
    assert said(PRESETS["rolling"]) == "0.70 asked, 40,000 kept free"
    assert marks_of(128_000).asked.startswith("objective cost: from ")
