"""The marks that follow from prices: examples that read as the rule."""

from dataclasses import replace

import pytest
from palimpsest.core.budget.economy import (
    MarkBounds,
    Marks,
    Prices,
    SummaryCall,
    SummarySizes,
    TurnGrowth,
    grown,
    marks,
    prices_of,
    summarised,
)

# An agent with 4,000 tokens of tools and instructions in a window of 12,000.
AGENT = MarkBounds(kept_tokens=4_000, tail_tokens=0, ceiling_tokens=10_800)
ROOMY = MarkBounds(kept_tokens=4_000, tail_tokens=0, ceiling_tokens=180_000)
BLOCK = SummarySizes(block_tokens=1_000, answer_tokens=1_000)


def agent(
    *,
    room: MarkBounds = AGENT,
    prices: Prices | None = None,
    growth: float = 250,
    call: SummaryCall | None = None,
    is_cold: bool = False,
) -> Marks:
    return marks(prices or Prices(), TurnGrowth(growth), BLOCK, room, call, is_cold=is_cold)


def test_without_a_call_it_compacts_often_and_small() -> None:
    found = agent()
    assert found.target_tokens == 4_000 + 1_000 + 250
    # D = g (sqrt(1/4 + 2 K / c g) - 1/2) with K = 0.9 x 1,000, c = 0.1, g = 250.
    assert found.trigger_tokens == 5_250 + 2_000
    assert found.gain_tokens == 2_000


def test_a_call_makes_it_compact_rarely() -> None:
    free, asked = agent(), agent(call=SummaryCall())
    assert asked.target_tokens == free.target_tokens
    assert asked.trigger_tokens - asked.target_tokens > 2 * (free.trigger_tokens - free.target_tokens)


def test_a_call_that_does_not_ride_pays_for_what_it_reads() -> None:
    append_limit = agent(room=ROOMY, call=SummaryCall())
    apart = agent(room=ROOMY, call=SummaryCall(reuses_cache=False))
    assert apart.trigger_tokens > append_limit.trigger_tokens


def test_a_cheap_summarizer_makes_steps_smaller() -> None:
    cheap = SummaryCall(Prices(input=0.1, cached=0.01, written=0.1, output=0.4))
    assert agent(call=cheap).trigger_tokens < agent(call=SummaryCall()).trigger_tokens


def test_summaries_decide_more_than_growth() -> None:
    doubled = marks(Prices(), TurnGrowth(250), SummarySizes(2_000, 2_000), ROOMY, None)
    assert doubled.trigger_tokens - agent(room=ROOMY).trigger_tokens > 1_000
    assert agent(room=ROOMY, growth=500).trigger_tokens - agent(room=ROOMY).trigger_tokens < 1_250


def test_a_free_cache_leaves_the_window_as_the_only_reason() -> None:
    found = agent(prices=Prices(cached=0.0))
    assert found.trigger_tokens == AGENT.ceiling_tokens


def test_without_a_cache_a_step_still_frees_a_quarter() -> None:
    found = agent(prices=Prices(cached=1.0))
    assert found.trigger_tokens - found.target_tokens >= (found.trigger_tokens - 4_000) // 4 - 1


def test_a_dearer_write_makes_steps_larger() -> None:
    assert agent(prices=Prices(written=1.25)).trigger_tokens > agent().trigger_tokens


def test_an_allowance_keeps_more_than_the_lowest_target() -> None:
    least, more = agent(), agent(room=replace(AGENT, allowance=0.03))
    assert least.target_tokens < more.target_tokens < more.trigger_tokens < AGENT.ceiling_tokens


def test_a_floor_lifts_trigger_and_target() -> None:
    found = agent(room=replace(ROOMY, floor_tokens=90_000))
    assert found.trigger_tokens == 90_000
    assert found.target_tokens > 0.6 * 90_000


def test_a_lost_cache_makes_a_fold_by_code_free() -> None:
    warm, cold = agent(), agent(is_cold=True)
    assert cold.target_tokens == warm.target_tokens
    # The least step there is: a quarter of what lies above what is kept.
    assert cold.trigger_tokens == cold.target_tokens + (cold.target_tokens - 4_000) // 3
    assert cold.trigger_tokens < warm.trigger_tokens


def test_a_lost_cache_leaves_the_price_of_the_answer() -> None:
    apart = SummaryCall(reuses_cache=False)
    free, asked = agent(room=ROOMY, is_cold=True), agent(room=ROOMY, call=apart, is_cold=True)
    assert free.trigger_tokens < asked.trigger_tokens < agent(room=ROOMY, call=apart).trigger_tokens


def test_the_tail_is_at_least_what_is_asked_for() -> None:
    room = MarkBounds(kept_tokens=4_000, tail_tokens=2_000, ceiling_tokens=50_000)
    assert agent(room=room).target_tokens == 4_000 + 1_000 + 2_000


def test_a_background_summary_begins_at_the_trigger_unless_the_ceiling_is_near() -> None:
    far = agent(room=ROOMY, call=SummaryCall())
    assert far.precompute_tokens == far.trigger_tokens
    near = agent(room=replace(AGENT, floor_tokens=AGENT.ceiling_tokens), call=SummaryCall())
    assert near.precompute_tokens == AGENT.ceiling_tokens - 250


def test_instructions_that_leave_no_room_still_give_marks() -> None:
    found = agent(
        room=MarkBounds(kept_tokens=20_000, tail_tokens=0, ceiling_tokens=10_800), call=SummaryCall()
    )
    assert found.target_tokens < found.trigger_tokens == 10_800


def test_unknown_prices_are_a_tenth_and_the_input_price() -> None:
    assert prices_of(4.0, 15.0) == Prices(input=4.0, cached=0.4, written=4.0, output=15.0)
    assert prices_of(3.0, 15.0, cached=0.75, written=3.75) == Prices(3.0, 0.75, 3.75, 15.0)
    assert prices_of(3.0, 15.0, cached=0.0).cached == 0.0


def test_a_model_that_costs_nothing_is_measured_by_its_work() -> None:
    assert prices_of(0.0, 0.0) == Prices()


@pytest.mark.parametrize("price", [-1.0, float("inf"), float("nan")])
def test_what_is_no_price_is_refused(price: float) -> None:
    with pytest.raises(ValueError, match="price"):
        prices_of(1.0, price)
    with pytest.raises(ValueError, match="price"):
        prices_of(1.0, 4.0, cached=price)


def test_growth_follows_the_newest_turns() -> None:
    growth = TurnGrowth(300)
    for _ in range(60):
        growth = grown(growth, 1_000)
    assert growth.turns == 60
    assert growth.turn_tokens == pytest.approx(1_000, rel=0.01)
    assert grown(growth, 2_000).turn_tokens == pytest.approx(1_100, rel=0.01)


def test_the_prior_weighs_as_much_as_one_turn() -> None:
    assert grown(TurnGrowth(300), 100).turn_tokens == 200


@pytest.mark.parametrize("tokens", [0, -500])
def test_a_retry_is_no_growth(tokens: int) -> None:
    assert grown(TurnGrowth(300, 4), tokens) == TurnGrowth(300, 4)


def test_the_first_summary_replaces_the_prior() -> None:
    assert summarised(SummarySizes(), 1_800, 700) == SummarySizes(1_800, 700, 1)


def test_a_summary_by_code_says_nothing_of_what_a_model_writes() -> None:
    assert summarised(SummarySizes(500, 400), 900, None) == SummarySizes(900, 400, 1)


def test_sizes_of_summaries_follow_the_newest_three() -> None:
    summaries = SummarySizes()
    for tokens in (900, 900, 900, 1_200):
        summaries = summarised(summaries, tokens, tokens)
    assert summaries.block_tokens == pytest.approx(1_000)
    assert summaries.count == 4
