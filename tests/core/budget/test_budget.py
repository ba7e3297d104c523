"""The arithmetic of room: marks of every window, fixed part, `max_tokens`, price step and preset."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.budget.budget import (
    Budget,
    Window,
    answer_target,
    asking_ahead,
    block_tokens_for,
    budget_of,
    overflow_target,
)
from palimpsest.core.budget.measured import Paces
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS

AUTO, HANDOFF, ROLLING = PRESETS["auto"], PRESETS["handoff"], PRESETS["rolling"]
MILLION = 1_000_000


def budget(
    window: int,
    fixed: int = 0,
    output: int | None = None,
    *,
    ratio: float = 1.0,
    policy: Policy = AUTO,
    step: int = 0,
    lookups: int = 0,
    unsent: int = 0,
    lead: int | None = None,
) -> Budget:
    made = budget_of(
        Window(window, "configured"),
        fixed_tokens=fixed,
        max_output_tokens=output,
        ratio=ratio,
        policy=policy,
        steps=[(step, None), (4 * step, None)] if step else (),
        lookup_tokens=lookups,
        unsent_tokens=unsent,
    )
    return made if lead is None else asking_ahead(made, policy, lead)


@pytest.mark.spec("A03")
@pytest.mark.parametrize(("window", "trigger"), [(200_000, 180_000), (128_000, 115_200), (16_000, 14_400)])
def test_the_trigger_is_nine_tenths_of_the_window(window: int, trigger: int) -> None:
    assert budget(window).trigger_tokens == trigger
    assert budget(window, policy=HANDOFF).trigger_tokens == trigger


@pytest.mark.spec("A05")
def test_max_tokens_holds_back_at_most_a_quarter_of_what_fixed_parts_leave() -> None:
    assert budget(128_000, output=16_000).output_tokens == 16_000
    assert budget(32_000, output=32_000).output_tokens == 8_000
    assert budget(24_000, 14_000, 65_536).output_tokens == 2_500
    # Without it an answer of usual length.
    assert budget(MILLION).output_tokens == 8_000
    assert budget(16_000).output_tokens == 800


@pytest.mark.spec("A05")
@pytest.mark.parametrize(
    ("output", "trigger"),
    [(None, 14_400), (1_000, 14_400), (1_601, 14_399), (8_000, 12_125), (200_000, 12_125)],
)
def test_max_tokens_lowers_the_trigger_by_no_more_than_it_holds_back(
    output: int | None, trigger: int
) -> None:
    large = budget(16_000, 500, output)
    assert large.trigger_tokens == trigger
    assert large.ceiling_tokens == max(trigger, min(15_225, 16_000 - large.output_tokens))


@pytest.mark.spec("A06")
def test_the_target_is_half_of_the_trigger_and_of_what_is_available() -> None:
    assert budget(200_000, fixed=2_000).target_tokens == 2_000 + 89_100
    assert budget(16_000, fixed=2_000).target_tokens == 2_000 + 6_300
    assert budget(200_000, policy=HANDOFF).target_tokens == 96_000
    assert budget(24_000, fixed=2_000, policy=HANDOFF).target_tokens == 2_000 + 7_000


@pytest.mark.spec("A12")
@pytest.mark.parametrize(("window", "tokens"), [(200_000, 4_096), (128_000, 4_096), (16_000, 640)])
def test_a_summary_takes_eight_percent_of_what_is_available(window: int, tokens: int) -> None:
    assert budget(window, policy=HANDOFF).summary_tokens == tokens


@pytest.mark.spec("A13")
def test_a_summary_has_at_least_five_hundred_tokens() -> None:
    assert budget(4_000, policy=HANDOFF).summary_tokens == 500
    assert budget(6_000, fixed=1_000, policy=HANDOFF).summary_tokens == 500


@pytest.mark.parametrize(
    ("window", "tokens"),
    [
        (4_000, 1_200),
        (9_000, 2_100),
        (24_000, 4_000),
        (128_000, 10_500),
        (152_000, 12_000),
        (MILLION, 12_000),
    ],
)
def test_a_block_has_a_sixth_of_the_window_less_of_what_is_large(window: int, tokens: int) -> None:
    taken = block_tokens_for(budget(window), MILLION)
    assert 0.9 * tokens <= taken <= 1.1 * tokens
    # And no more than it saves: a block that is as long as what it replaces is useless.
    assert block_tokens_for(budget(window), 1_000) <= 600


@pytest.mark.spec("B02")
@pytest.mark.parametrize(
    ("window", "trigger"),
    [
        (200_000, 140_000),
        (128_000, 88_000),
        (64_000, 24_000),
        (40_000, 24_000),
        (32_000, 22_400),
        (1_000, 700),
    ],
)
def test_rolling_keeps_its_own_reserve_free_where_there_is_room_for_it(window: int, trigger: int) -> None:
    assert budget(window, policy=ROLLING).trigger_tokens == trigger


def test_a_mark_in_tokens_lowers_the_trigger_and_the_target_with_it() -> None:
    assert budget(MILLION).trigger_tokens == 250_000
    assert budget(MILLION).target_tokens == 125_000
    assert budget(MILLION, policy=replace(AUTO, trigger_tokens=0)).trigger_tokens == 900_000
    asked = budget(MILLION, 2_000, policy=replace(AUTO, trigger_tokens=20_000))
    assert (asked.trigger_tokens, asked.target_tokens) == (20_000, 11_000)
    assert asked.gain_tokens == 1_000
    assert asked.asked == "20,000 asked"
    # Instructions and tools that nearly reach it leave messages a quarter of it all the same.
    assert budget(MILLION, 260_000).trigger_tokens == 260_000 + 62_500


def test_prompts_stay_below_a_step_of_the_price() -> None:
    assert budget(MILLION, step=272_000, policy=replace(AUTO, trigger_tokens=0)).trigger_tokens == 264_000
    assert budget(MILLION, step=272_000).trigger_tokens == 250_000
    stepped = budget(MILLION, 3_000, 20_000, step=200_000)
    assert stepped.trigger_tokens == 180_000
    assert stepped.asked == "prompts above 200,000 cost more"
    # A smaller window holds; a step that instructions and tools nearly reach is paid anyway.
    assert budget(64_000, step=200_000).trigger_tokens == 57_600
    assert budget(MILLION, 190_000, step=200_000).trigger_tokens == 252_500
    # And then the next one counts, four times as large here.
    beyond = budget(MILLION, 190_000, step=200_000, policy=replace(AUTO, trigger_tokens=0))
    assert beyond.trigger_tokens == 792_000


@given(st.integers(2_000, 400_000), st.integers(0, 4_000))
def test_a_prompt_below_the_trigger_leaves_room_for_look_ups(window: int, wanted: int) -> None:
    plain, lowered = budget(window, 300), budget(window, 300, lookups=wanted)
    assert lowered.ceiling_tokens == plain.ceiling_tokens
    assert lowered.trigger_tokens <= plain.trigger_tokens
    assert lowered.ceiling_tokens - lowered.trigger_tokens >= min(wanted, int(0.15 * (window - 300))) - 1
    # The reason that people read says so: "0.90 asked" alone would contradict its own numbers.
    assert (lowered.trigger_tokens < plain.trigger_tokens) == lowered.asked.endswith("kept free for look-ups")


@pytest.mark.spec("B03")
def test_a_summary_is_asked_for_as_far_ahead_as_its_time_needs() -> None:
    room = budget(128_000)
    assert budget(128_000, lead=20_000).precompute_tokens == room.trigger_tokens - 20_000
    # Not so early that the next fold would have nothing new, nor so late that the question has no room.
    half = (room.target_tokens + room.trigger_tokens) // 2
    assert budget(128_000, lead=100_000).precompute_tokens == pytest.approx(half, abs=2)
    assert budget(16_000, lead=1).precompute_tokens < budget(16_000).trigger_tokens - 500
    # `rolling` asks at its trigger, after the answer.
    assert budget(128_000, policy=ROLLING, lead=20_000) == budget(128_000, policy=ROLLING)


@pytest.mark.spec("A29")
def test_after_a_refusal_messages_keep_a_third_of_what_is_available_and_at_most_half_of_what_was_sent() -> (
    None
):
    room = budget(100_000, 10_000)
    assert overflow_target(room, 90_000, AUTO) == 10_000 + 28_700
    assert overflow_target(room, 50_000, AUTO) == 10_000 + 20_000


def test_for_an_answer_messages_give_up_half_of_their_room_or_nothing() -> None:
    room = budget(24_000, 14_000, 65_536)
    assert answer_target(room, 20_000) == 19_000
    assert answer_target(room, 18_999) is None


@given(
    window=st.integers(1, 2_000_000),
    share=st.floats(0, 0.95),
    output=st.none() | st.integers(0, 200_000),
    ratio=st.floats(0.4, 3.0),
    policy=st.sampled_from([*PRESETS.values(), replace(AUTO, trigger_tokens=3_000)]),
    step=st.sampled_from([0, 32_000, 100_000, 272_000]),
    lookups=st.integers(0, 4_000),
)
def test_the_marks_are_in_order_and_above_fixed_parts_in_every_window(
    window: int, share: float, output: int | None, ratio: float, policy: Policy, step: int, lookups: int
) -> None:
    fixed = int(share * window / ratio)
    b = budget(window, fixed, output, ratio=ratio, policy=policy, step=step, lookups=lookups)
    assert 0 < b.precompute_tokens <= b.trigger_tokens <= b.ceiling_tokens <= b.window_tokens
    assert b.summary_tokens > 0
    assert b.output_tokens <= b.room_tokens / 4
    if b.window_tokens - fixed < 32:
        return
    assert fixed < b.target_tokens < b.precompute_tokens
    assert b.trigger_tokens - fixed >= min(0.5 * b.room_tokens, 750 / ratio) - 1
    assert b.target_tokens <= fixed + 0.6 * (b.trigger_tokens - fixed) + 1
    assert b.summary_tokens <= max(1, 0.72 * (b.target_tokens - fixed))


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def grown(paces: Paces, clock: Clock, *, step: int, seconds: float, turns: int = 8) -> int:
    for turn in range(turns):
        clock.seconds = turn * seconds
        lead = paces.lead("n", "s", "m", step * (turn + 1))
    return lead


def test_nothing_is_known_before_a_summary_and_a_second_turn() -> None:
    clock = Clock()
    assert grown(Paces(clock), clock, step=500, seconds=2) == 0
    paces = Paces(clock)
    paces.summary_took("n", "m", 3)
    assert grown(paces, clock, step=500, seconds=2, turns=1) == 0


def test_a_slow_summary_is_asked_for_earlier_and_a_quick_one_a_turn_ahead() -> None:
    clock = Clock()
    slow, quick = Paces(clock), Paces(clock)
    slow.summary_took("n", "m", 24)
    quick.summary_took("n", "m", 0.5)
    # 250 tokens a second, for half as long again as the summary takes.
    assert grown(slow, clock, step=500, seconds=2) == 24 * 250 * 1.5
    assert grown(quick, clock, step=500, seconds=2) == 500


def test_another_model_and_an_edited_conversation_are_measured_anew() -> None:
    clock = Clock()
    paces = Paces(clock)
    paces.summary_took("n", "m", 24)
    assert paces.lead("n", "s", "other", 9_000) == 0
    grown(paces, clock, step=500, seconds=2)
    assert paces.lead("n", "s", "m", 100) == 0
