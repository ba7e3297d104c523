"""Marks for any prices and sizes: bounds, order, and that no other trigger would have been cheaper."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from palimpsest.core.budget.economy import (
    MarkBounds,
    Marks,
    Prices,
    SummaryCall,
    SummarySizes,
    TurnGrowth,
    marks,
)

prices = st.builds(
    Prices,
    input=st.floats(0.01, 50),
    cached=st.floats(0, 50),
    written=st.floats(0, 80),
    output=st.floats(0, 200),
)
growths = st.builds(TurnGrowth, turn_tokens=st.floats(0, 200_000))
summaries = st.builds(SummarySizes, block_tokens=st.floats(0, 50_000), answer_tokens=st.floats(0, 50_000))
rooms = st.builds(
    MarkBounds,
    kept_tokens=st.integers(0, 300_000),
    tail_tokens=st.integers(0, 100_000),
    ceiling_tokens=st.integers(1, 1_000_000),
    floor_tokens=st.integers(0, 1_000_000),
    allowance=st.just(0.0) | st.floats(0, 0.5),
)
calls = st.none() | st.builds(
    SummaryCall, prices=prices, reuses_cache=st.booleans(), question_tokens=st.integers(0, 2_000)
)
situations = st.tuples(prices, growths, summaries, rooms, calls)

Situation = tuple[Prices, TurnGrowth, SummarySizes, MarkBounds, SummaryCall | None]


@given(situations)
def test_marks_stand_in_order_between_nothing_and_the_ceiling(situation: Situation) -> None:
    found = marks(*situation)
    top = max(2, situation[3].ceiling_tokens)
    assert 1 <= found.target_tokens <= found.precompute_tokens <= found.trigger_tokens <= top
    assert found.target_tokens < found.trigger_tokens
    assert 1 <= found.gain_tokens <= found.trigger_tokens - found.target_tokens


@given(situations)
def test_a_target_is_never_below_the_floor_while_the_ceiling_leaves_a_step(situation: Situation) -> None:
    _, growth, sizes, room, _ = situation
    assume(room.kept_tokens < room.ceiling_tokens)
    found = marks(*situation)
    floor = room.kept_tokens + sizes.block_tokens + max(room.tail_tokens, growth.turn_tokens)
    highest = room.kept_tokens + 0.75 * (room.ceiling_tokens - room.kept_tokens)
    assert found.target_tokens >= min(floor, highest) - 2


@given(situations)
def test_a_step_frees_a_quarter_of_what_can_be_freed(situation: Situation) -> None:
    found, kept = marks(*situation), situation[3].kept_tokens
    step = found.trigger_tokens - found.target_tokens
    assert step >= 0.25 * (found.trigger_tokens - kept) - 2


@given(situations, st.floats(0, 0.5))
def test_a_larger_allowance_never_keeps_less(situation: Situation, more: float) -> None:
    price, growth, sizes, room, call = situation
    room = replace(room, floor_tokens=0)
    found = marks(price, growth, sizes, room, call)
    larger = marks(price, growth, sizes, replace(room, allowance=room.allowance + more), call)
    assert larger.target_tokens >= found.target_tokens
    assert larger.trigger_tokens >= found.trigger_tokens


@given(situations)
def test_a_lost_cache_never_makes_a_fold_by_code_later(situation: Situation) -> None:
    price, growth, sizes, room, _ = situation
    # With an allowance more may be kept: what is saved is spent on it.
    room = replace(room, allowance=0.0)
    cold = marks(price, growth, sizes, room, None, is_cold=True)
    assert cold.trigger_tokens <= marks(price, growth, sizes, room, None).trigger_tokens


@given(situations, st.sampled_from([0.25, 2.0, 1024.0]))
def test_only_ratios_of_prices_matter(situation: Situation, factor: float) -> None:
    price, growth, sizes, room, call = situation
    dearer = call and replace(call, prices=_times(call.prices, factor))
    assert marks(*situation) == marks(_times(price, factor), growth, sizes, room, dearer)


@given(situations, st.floats(1, 100))
def test_a_dearer_answer_never_makes_compactions_more_frequent(situation: Situation, factor: float) -> None:
    price, growth, sizes, room, call = situation
    call = call or SummaryCall()
    dear = replace(call, prices=replace(call.prices, output=call.prices.output * factor))
    assert _step(marks(price, growth, sizes, room, dear)) >= _step(marks(price, growth, sizes, room, call))


@given(situations)
def test_a_riding_call_never_makes_compactions_more_frequent(situation: Situation) -> None:
    price, growth, sizes, room, _ = situation
    asked = marks(price, growth, sizes, room, SummaryCall(price))
    free = marks(price, growth, sizes, room, None)
    assert asked.trigger_tokens >= free.trigger_tokens


@given(situations, st.integers(0, 200_000))
def test_a_larger_window_never_brings_a_mark_down(situation: Situation, more: int) -> None:
    room = situation[3]
    large = replace(room, ceiling_tokens=room.ceiling_tokens + more)
    small_marks = marks(*situation)
    large_marks = marks(*situation[:3], large, *situation[4:])
    assert large_marks.trigger_tokens >= small_marks.trigger_tokens
    assert large_marks.target_tokens >= small_marks.target_tokens


@given(
    growth=st.floats(50, 2_000),
    block=st.integers(200, 4_000),
    kept=st.integers(0, 20_000),
    cached=st.floats(0.02, 0.6),
    call=st.sampled_from([None, SummaryCall(), SummaryCall(reuses_cache=False)]),
    tail=st.integers(0, 20_000),
    allowance=st.sampled_from([0.0, 0.03, 0.3]),
)
def test_every_room_takes_the_cheapest_trigger_for_its_target(
    growth: float, block: int, kept: int, cached: float, call: SummaryCall | None, tail: int, allowance: float
) -> None:
    """Asked again with the tail that was found as the shortest one, the rule says the same trigger."""
    price, grows, sizes = Prices(cached=cached), TurnGrowth(growth), SummarySizes(block, block)
    room = MarkBounds(kept_tokens=kept, tail_tokens=tail, ceiling_tokens=200_000, allowance=allowance)
    found = marks(price, grows, sizes, room, call)
    tail = found.target_tokens - kept - block
    again = marks(price, grows, sizes, replace(room, tail_tokens=tail, allowance=0.0), call)
    # Of the target at most one token was cut off; the trigger follows it a few times as fast.
    assert abs(again.trigger_tokens - found.trigger_tokens) <= 10


@given(
    growth=st.integers(50, 2_000),
    block=st.integers(200, 4_000),
    kept=st.integers(0, 20_000),
    cached=st.floats(0.02, 0.6),
    asks=st.booleans(),
)
def test_on_steady_growth_no_trigger_is_much_cheaper(
    growth: int, block: int, kept: int, cached: float, asks: bool
) -> None:
    """The control of the formula: costs added up turn by turn, for every number of turns in a cycle."""
    price = Prices(cached=cached)
    room = MarkBounds(kept_tokens=kept, tail_tokens=0, ceiling_tokens=10_000_000)
    found = marks(
        price, TurnGrowth(growth), SummarySizes(block, block), room, SummaryCall(price) if asks else None
    )
    start = kept + block + growth
    # The quarter that every step frees is not chosen for its price.
    shortest = -(-(start - kept) // (3 * growth))

    def turn_cost(turns: int) -> float:
        levels = [start + growth * index for index in range(turns)]
        carried = sum(cached * level + growth for level in levels[:-1])
        called = cached * levels[-1] + price.output * block if asks else 0.0
        return (called + cached * kept + block + growth + carried) / turns

    taken = -(-(found.trigger_tokens - start) // growth)
    cheapest = min(turn_cost(turns) for turns in range(max(1, shortest), 3 * taken + 3))
    assert turn_cost(taken) <= 1.01 * cheapest


def _times(price: Prices, factor: float) -> Prices:
    return Prices(price.input * factor, price.cached * factor, price.written * factor, price.output * factor)


def _step(found: Marks) -> int:
    return found.trigger_tokens - found.target_tokens
