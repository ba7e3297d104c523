"""When to compact and how far, from what tokens cost: an (s, S) rule with a lower bound on the trigger.

Every figure is in the program's own token count. The derivation, a plot and figures: docs/cost-policy.md.

First the rule, then the budget with the marks that follow for one conversation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from palimpsest.core.budget.budget import Budget, block_tokens_for
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.policy import Policy

# Prompt tokens served from a cache cost this share of uncached ones with most services (2026).
CACHED_SHARE = 0.1
# Output tokens cost four to five times as much as prompt tokens.
OUTPUT_SHARE = 4.0
# The bounds hold where prices are read from a document.
_Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


@dataclass(frozen=True, slots=True)
class Prices:
    """What one token costs, in any unit: only the ratios matter. All finite and at least 0.

    `input` is a prompt token not in a cache, `cached` one served from the cache, `written` one that is read
    and put into the cache (the price of `input` where that costs no more), `output` one that the model
    writes.
    """

    input: _Price = 1.0
    cached: _Price = CACHED_SHARE
    written: _Price = 1.0
    output: _Price = OUTPUT_SHARE


@dataclass(frozen=True, slots=True)
class TurnGrowth:
    """How many tokens one turn adds to the prompt, learned from `turns` of them.

    The prior is the average of tool agents and chats, 200 to 600 tokens in recorded conversations; it weighs
    as much as one turn. An error affects the marks by its square root only: priors of 50 and of 3,000 cost
    the same within half a percent of the bill.
    """

    turn_tokens: float = 300.0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class SummarySizes:
    """How large summaries are, learned from `count` of them.

    `block_tokens` is the whole summary block in a view, `answer_tokens` the part that the model wrote. The
    priors count until the first compaction. Too small an estimate is the cheaper error: a tenth of the truth
    costs nothing, four times the truth 7 % of the bill.
    """

    block_tokens: float = 500.0
    answer_tokens: float = 500.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class MarkBounds:
    """The bounds of the marks, in tokens of the whole prompt.

    `kept_tokens` (fixed part, task, pins) are at the start of every view, before the summary, so that they
    stay cached when it changes. `tail_tokens` is the shortest tail that a compaction may leave.
    `ceiling_tokens` is the highest trigger: min(0.9 x window, window - output); `floor_tokens` the lowest,
    even where a lower one would cost less. `allowance`: the share by which turns may cost more where that
    keeps more of the newest turns.
    """

    kept_tokens: int
    tail_tokens: int
    ceiling_tokens: int
    floor_tokens: int = 0
    allowance: float = 0.0


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """A call to the model that writes a summary.

    With `reuses_cache` it is appended to the last prompt, which is cached, as `question_tokens`. Otherwise it
    reads `read_tokens` of the conversation uncached, in `calls` one after the other. `is_checked`: the model
    checks its answer in another call. `prices` are those of the model asked.
    """

    prices: Prices = Prices()
    reuses_cache: bool = True
    question_tokens: int = 0
    read_tokens: int = 0
    calls: int = 1
    is_checked: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """Tokens of the whole prompt: a prompt at `trigger_tokens` is compacted down to `target_tokens`.

    `precompute_tokens` starts a background summary. It is the trigger itself unless the ceiling is near,
    because one more turn above the trigger costs next to nothing and nobody waits. `gain_tokens` is the least
    that a compaction should free: where the newest group is large and cannot be folded yet, waiting one turn
    is cheaper.
    """

    trigger_tokens: int
    target_tokens: int
    precompute_tokens: int
    gain_tokens: int


# A compaction frees at least this share of what may be freed, whatever the prices, so that none ends where
# the next one starts (F04).
_STEP_SHARE = 0.25
# A summary may cost, in all its calls, this share of reading what it folds once, uncached. Above it code
# writes the summary: the conversation would cost more than if nothing were ever folded.
_ASK_SHARE = 1.0
# About the last ten turns, and the last three summaries, count. Turns differ far more from each other than
# one part of a conversation from the next.
_TURN_MEMORY = 10
_SUMMARY_MEMORY = 3
# A background summary starts when the ceiling is one average turn away. One turn earlier would cost 1 % of
# the bill, and save one turn in seven from waiting.
_AHEAD_TURNS = 1
_PRECOMPUTE_FLOOR = 0.5
# The first prompt above a mark is half a turn above it when turns are of equal size. They are not, but no
# value between 0 and 2 turns changes the bill by 0.3 %.
_OVERSHOOT_TURNS = 0.5
# A cached token that costs no more than this share of an uncached one counts as free.
_FREE_SHARE = 1e-6
# A mark computed through its inverse may be a little below a whole number.
_ROUNDING = 1e-6


def prices_of(
    input_price: float, output_price: float, cached: float | None = None, written: float | None = None
) -> Prices:
    """Prices of a model from what is known of it.

    Unknown is None: a tenth of the input price for `cached`, the input price for `written`. A model without a
    price (a local one) gets the default ratios: its work is its cost. Raises ValueError for a negative or
    infinite price.
    """
    every = (input_price, output_price, cached or 0.0, written or 0.0)
    if not all(math.isfinite(price) and price >= 0 for price in every):
        raise ValueError("a price is a finite number of at least 0")
    if input_price == 0:
        return Prices()
    return Prices(
        input=input_price,
        cached=CACHED_SHARE * input_price if cached is None else cached,
        written=input_price if written is None else written,
        output=output_price,
    )


def prompt_cost(prompt: int, cached: int, written: int, prices: Prices) -> float:
    """What a prompt costs, of which an upstream says that so much came from its cache, or was put into it.

    No more of either counts than the prompt has.
    """
    cached = min(cached, prompt)
    written = min(written, prompt - cached)
    plain = prompt - cached - written
    return plain * prices.input + cached * prices.cached + written * prices.written


def dollars_of(prompt: int, cached: int, written: int, completion: int, prices: Prices) -> float:
    """What so many tokens cost in dollars; of a prompt's as `prompt_cost` counts them."""
    return (prompt_cost(prompt, cached, written, prices) + completion * prices.output) / 1e6


def grown(growth: TurnGrowth, tokens: int) -> TurnGrowth:
    """The growth after a turn that added `tokens`; unchanged when it added none (a retry, a rewind)."""
    if tokens <= 0:
        return growth
    weight = 1 / min(growth.turns + 2, _TURN_MEMORY)
    return TurnGrowth(growth.turn_tokens + weight * (tokens - growth.turn_tokens), growth.turns + 1)


def summarised(summaries: SummarySizes, block_tokens: int, answer_tokens: int | None) -> SummarySizes:
    """The sizes after one more summary; `answer_tokens` is None when no model wrote it.

    The first one replaces the prior: sizes of summaries hardly vary within a conversation.
    """
    weight = 1 / min(summaries.count + 1, _SUMMARY_MEMORY)
    block = summaries.block_tokens + weight * (max(0, block_tokens) - summaries.block_tokens)
    answer = summaries.answer_tokens
    if answer_tokens is not None:
        answer += weight * (max(0, answer_tokens) - answer)
    return SummarySizes(block, answer, summaries.count + 1)


def marks(
    prices: Prices,
    growth: TurnGrowth,
    summaries: SummarySizes,
    room: MarkBounds,
    call: SummaryCall | None,
    *,
    is_cold: bool = False,
) -> Marks:
    """The marks that cost least per turn, within `room`.

    `call` None: no model is asked. With a target s, the cheapest trigger is S = s + D(s): there, carrying
    what could be folded has cost as much as folding it. A turn then costs a constant + cached x S
    (docs/cost-policy.md). The lowest s is what is kept, a summary block and the shortest tail, at least one
    turn; the target is the highest s that makes turns dearer by no more than the allowance. `is_cold`: the
    next prompt is read uncached in any case, so that folding loses no cache.

    Below the floor of `room` the trigger is the floor, and the target the highest that goes with it.

    Bounds: 1 <= target < trigger <= max(2, ceiling). The step from target to trigger is at least a quarter of
    what lies between what is kept and the trigger; the lowest s and S yield to that and to the ceiling.
    Precompute lies between half way up and the trigger, gain between 1 and the step.
    """
    cycle = _cycle_of(prices, growth, summaries, room, call)
    if is_cold:
        cycle = _when_cold(cycle, summaries, call)
    top = max(2, room.ceiling_tokens)
    highest = _below(room, top)
    lowest = min(cycle.least, highest)
    target, trigger = lowest, min(cycle.trigger(lowest), top)
    if room.allowance and trigger < top:
        allowed = trigger + room.allowance * cycle.turn_cost(trigger) / cycle.cached
        trigger = min(top, allowed)
        target = max(lowest, cycle.target(trigger))
        trigger = min(trigger, cycle.trigger(target))
    if trigger < (floor := min(room.floor_tokens, top)):
        trigger, target = floor, max(lowest, cycle.target(floor))
    latest = top if call is None else top - _AHEAD_TURNS * cycle.growth
    return _rounded(target, trigger, top, latest)


def is_worth_asking(call: SummaryCall, shown_tokens: int, folded_tokens: int, answer_tokens: int) -> bool:
    """True when a model's summary is worth its price.

    `shown_tokens` is the prompt that the call is appended to, `folded_tokens` what the summary replaces,
    `answer_tokens` what the model writes at each call. All calls are counted: each further call of a separate
    question reads the answer before it, and a check reads and writes all of it again.
    """
    prices, answer = call.prices, answer_tokens
    if call.reuses_cache:
        first = prices.cached * shown_tokens + prices.input * call.question_tokens
        written, prompt = answer, shown_tokens + call.question_tokens
    else:
        prompt = call.read_tokens + call.calls * call.question_tokens + (call.calls - 1) * answer
        first, written = prices.input * prompt, call.calls * answer
    spent = first + prices.output * written
    if call.is_checked:
        spent += prices.cached * prompt + prices.input * answer + prices.output * answer
    return spent <= _ASK_SHARE * prices.input * folded_tokens


@dataclass(frozen=True, slots=True)
class _Cycle:
    """One cycle from a compaction to the next; every price is of one token.

    Growing from a target s costs `cached` x (tokens above s) a turn; compacting costs `setup` + `slope` x (s
    - `least`) once. `least` is the lowest target.
    """

    growth: float
    cached: float
    setup: float
    slope: float
    least: float
    kept: float
    turn_base: float

    def step(self, target: float) -> float:
        """Tokens from a target to its cheapest trigger."""
        setup = max(0.0, self.setup + self.slope * (target - self.least))
        shortest = max(0.0, target - self.kept) * _STEP_SHARE / (1 - _STEP_SHARE)
        return max(1.0, shortest, self._root(_OVERSHOOT_TURNS, setup))

    def trigger(self, target: float) -> float:
        return target + self.step(target)

    def target(self, trigger: float) -> float:
        """The highest target whose cheapest trigger is `trigger`; the inverse of `trigger`."""
        setup = max(0.0, self.setup + self.slope * (trigger - self.least))
        turns = _OVERSHOOT_TURNS + self.slope / self.cached if self.cached else 0.0
        step = max(1.0, (trigger - self.kept) * _STEP_SHARE, self._root(turns, setup))
        return trigger - step

    def turn_cost(self, trigger: float) -> float:
        """What an average turn costs with `trigger` and its target."""
        return self.turn_base + self.cached * trigger

    def _root(self, turns: float, setup: float) -> float:
        """The D with cached x (D^2 / (2 growth) + turns x D) = setup; infinite when the cache is free."""
        if not self.cached:
            return math.inf
        ratio = 2 * setup / self.cached
        # Not growth x (root - turns): with an almost free cache the two differ by rounding errors only.
        return ratio / (math.sqrt(turns * turns + ratio / self.growth) + turns)


def _cycle_of(
    prices: Prices, growth: TurnGrowth, summaries: SummarySizes, room: MarkBounds, call: SummaryCall | None
) -> _Cycle:
    turn = max(1.0, growth.turn_tokens)
    read = max(prices.written, prices.cached)
    cached = prices.cached if prices.cached > _FREE_SHARE * read else 0.0
    block = max(1.0, summaries.block_tokens)
    tail = max(turn, room.tail_tokens)
    least = room.kept_tokens + block + tail
    # Block and tail are read uncached instead of from the cache, but the newest turn is new anyway.
    setup = read * (block + tail - turn) - cached * (block + tail)
    asked, again = _call_cost(call, summaries, least)
    # Tokens added since are read once more by a call (`again`); the last prompt is never read again.
    extra = again - cached
    return _Cycle(
        growth=turn,
        cached=cached,
        setup=setup + asked - 2 * _OVERSHOOT_TURNS * extra * turn,
        slope=read - cached + (again if call is not None and call.reuses_cache else 0.0),
        least=least,
        kept=room.kept_tokens,
        turn_base=(read + extra) * turn,
    )


def _when_cold(cycle: _Cycle, summaries: SummarySizes, call: SummaryCall | None) -> _Cycle:
    """The cycle with the price of a fold when the prompt is read uncached either way.

    Code folds for nothing. A call finds no cached prompt; it reads what the turn need not, and the block.
    """
    if call is None:
        return replace(cycle, setup=0.0, slope=0.0)
    prices = call.prices
    read = prices.input * (call.question_tokens + summaries.block_tokens)
    return replace(cycle, setup=prices.output * summaries.answer_tokens + read, slope=0.0)


def _call_cost(call: SummaryCall | None, summaries: SummarySizes, least: float) -> tuple[float, float]:
    """The cost of a call at the lowest target, and of each further token in its prompt."""
    if call is None:
        return 0.0, 0.0
    prices = call.prices
    asked = prices.output * summaries.answer_tokens + prices.input * call.question_tokens
    if call.reuses_cache:
        return asked + prices.cached * least, prices.cached
    return asked + prices.input * summaries.block_tokens, prices.input


def _below(room: MarkBounds, trigger: float) -> float:
    """The highest target that leaves a trigger its smallest step."""
    kept = min(room.kept_tokens, trigger - 1)
    return max(1.0, min(trigger - 1, kept + (1 - _STEP_SHARE) * (trigger - kept)))


def _rounded(target: float, trigger: float, ceiling: int, latest: float) -> Marks:
    """Whole tokens; a background summary starts at `latest` at the latest."""
    high = math.floor(trigger + _ROUNDING)
    low = max(1, min(math.floor(target + _ROUNDING), high - 1))
    step = high - low
    halfway = low + math.ceil(_PRECOMPUTE_FLOOR * step)
    # At the ceiling waiting for a better moment is not possible.
    gain = step if high < ceiling else max(1, math.floor(_STEP_SHARE * step))
    return Marks(high, low, max(halfway, min(high, math.floor(latest))), gain)


# Turns considered; older ones have hardly any weight (see `grown`).
_TURNS = 12
# A conversation is not compacted below this share of the highest trigger, whatever that would save: what the
# model sees is worth more than its price. Exception: a pause longer than the cache lives.
_LEAST_TRIGGER = 0.5
# The newest turns get at least this share of the room besides the kept messages and the summary: one or two
# turns at 12k, about five of a coding agent's at 200k.
_TAIL_SHARE = 0.05
# The target rises as long as turns cost at most this much more than with the lowest target.
_ALLOWANCE = 0.03
# Cuts fall between messages, so that a fold seldom reaches the target exactly.
_GAIN_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Costs:
    """What a conversation's tokens cost, and whether a model is asked for its summaries.

    `cache_seconds`: how long the upstream's cache keeps an unused prompt; 0: for ever.
    """

    prices: Prices
    asks_model: bool
    cache_seconds: int = 0


def growth_of(messages: Sequence[Message]) -> TurnGrowth:
    """How much each of the newest turns added; a turn ends with an answer of the assistant."""
    added, turns = 0, []
    for message in reversed(messages):
        if message.role == "assistant" and added:
            turns.append(added)
            added = 0
            if len(turns) == _TURNS:
                break
        added += message.tokens
    growth = TurnGrowth()
    for tokens in reversed(turns):
        growth = grown(growth, tokens)
    return growth


def room_of(
    kept_tokens: int, block_tokens: float, ceiling_tokens: int, *, is_cold: bool = False
) -> MarkBounds:
    """The bounds of the marks under the objective `cost`; tokens of the whole prompt."""
    free = max(0.0, ceiling_tokens - kept_tokens - max(1.0, block_tokens))
    return MarkBounds(
        kept_tokens,
        int(_TAIL_SHARE * free),
        ceiling_tokens,
        0 if is_cold else int(_LEAST_TRIGGER * ceiling_tokens),
        _ALLOWANCE,
    )


def derived(
    budget: Budget,
    talk: Conversation,
    sizes: tuple[int, int],
    policy: Policy,
    costs: Costs,
    idle_seconds: int = 0,
) -> Budget:
    """`budget` with trigger, target, precompute mark and least gain for the policy's objective.

    `sizes` are the tokens of the messages that stay wherever the cut falls, and of the summary block in
    force, 0 without one. No mark is above the budget's own. `idle_seconds`: the pause since the last request,
    if longer than the upstream's cache lives; 0: the cache is warm.
    """
    if policy.objective == "fidelity":
        return budget
    is_cold, top = idle_seconds > 0, budget.trigger_tokens
    # A fold reserves this much for its block; with less expected, it could not reach the target.
    wanted = block_tokens_for(budget, sum(message.tokens for message in talk.messages))
    summaries = SummarySizes(wanted, budget.summary_tokens)
    if sizes[1]:
        summaries = summarised(summaries, max(wanted, sizes[1]), None)
    growth, reuses_cache = growth_of(talk.messages), policy.reuse_prompt_cache and not is_cold
    room = room_of(budget.fixed_tokens + sizes[0], summaries.block_tokens, top, is_cold=is_cold)
    call = SummaryCall(costs.prices, reuses_cache) if costs.asks_model else None
    found = marks(costs.prices, growth, summaries, room, call, is_cold=is_cold)
    if call is not None and not _is_worth(call, found, budget):
        call = None
        found = marks(costs.prices, growth, summaries, room, None, is_cold=is_cold)
    trigger, precompute = min(top, found.trigger_tokens), found.precompute_tokens
    if is_cold:
        # Freeing less is not worth a summary, even a free one (F12).
        trigger = min(top, max(trigger, found.target_tokens + budget.gain_tokens))
    if call is not None and reuses_cache:
        # A summary request that cannot be appended to the prompt costs as much as reading all of it uncached.
        precompute = min(precompute, budget.append_limit_tokens - int(growth.turn_tokens))
    return replace(
        budget,
        trigger_tokens=trigger,
        target_tokens=min(top, found.target_tokens),
        precompute_tokens=min(trigger, max(found.target_tokens + 1, precompute)),
        is_derived=True,
        gain_tokens=int(_GAIN_SHARE * min(found.gain_tokens, trigger - found.target_tokens)),
        asked=budget.asked if trigger == top else f"objective cost: from {budget.for_model(trigger):,} on",
        idle_seconds=idle_seconds,
    )


def _is_worth(call: SummaryCall, found: Marks, budget: Budget) -> bool:
    folded = found.trigger_tokens - found.target_tokens
    call = replace(call, read_tokens=folded)
    return is_worth_asking(call, found.trigger_tokens, folded, budget.summary_tokens)
