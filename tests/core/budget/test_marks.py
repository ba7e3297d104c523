"""Room that is left for what a model may look up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.budget import Budget, Window, budget_of, with_room
from palimpsest.core.policy import Policy


def plain(window: int, fixed: int = 300) -> Budget:
    return budget_of(
        Window(window, "configured"), fixed_tokens=fixed, max_output_tokens=None, ratio=1.0, policy=Policy()
    )


@given(st.integers(2_000, 400_000), st.integers(0, 4_000))
def test_a_prompt_below_the_trigger_leaves_the_room_and_the_marks_stay_in_order(
    window: int, wanted: int
) -> None:
    budget = plain(window)
    lowered = with_room(budget, wanted)
    assert lowered.ceiling_tokens == budget.ceiling_tokens
    assert lowered.trigger_tokens <= budget.trigger_tokens
    assert lowered.ceiling_tokens - lowered.trigger_tokens >= min(wanted, int(0.15 * (window - 300))) - 1
    assert lowered.fixed_tokens < lowered.target_tokens < lowered.trigger_tokens
    assert lowered.precompute_tokens <= lowered.trigger_tokens


@pytest.mark.parametrize("window", [6_000, 8_000, 16_000])
def test_a_small_window_gives_more_than_it_had(window: int) -> None:
    budget = plain(window)
    assert budget.ceiling_tokens - budget.trigger_tokens < 0.15 * window
    lowered = with_room(budget, 2_000)
    assert lowered != budget
    # The reason that people read says so: "0.90 asked" alone would contradict its own numbers.
    assert lowered.asked.startswith(budget.asked)
    assert lowered.asked.endswith("kept free for look-ups")


def test_where_there_is_room_already_nothing_changes() -> None:
    budget = plain(200_000)
    assert with_room(budget, 2_000) is budget
