"""When to compact and how far, from what tokens cost: an (s, S) rule with a floor on fidelity.

Pure. Knows nothing of messages, windows' sources or price lists: numbers in, marks out. Every
figure is in the program's own token count. The derivation, a plot and figures: docs/cost-policy.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# Prompt tokens served from a cache cost this share of the others with most services (2026).
CACHED_SHARE = 0.1
# Written tokens cost four to five times as much as read ones.
OUTPUT_SHARE = 4.0


@dataclass(frozen=True, slots=True)
class Prices:
    """What one token costs, in any unit: only the ratios matter. All finite and at least 0.

    `input` is a prompt token that no cache knows, `cached` one served from the cache, `written` one
    that is read and put into the cache (where that is not dearer: the price of `input`), `output`
    one the model writes.
    """

    input: float = 1.0
    cached: float = CACHED_SHARE
    written: float = 1.0
    output: float = OUTPUT_SHARE


@dataclass(frozen=True, slots=True)
class Growth:
    """How many tokens one turn adds to the prompt, learned from `turns` of them.

    The prior is what turns of tool agents and of chats add on average, 200 to 600 tokens in recorded
    conversations; it weighs as much as one turn. An error enters the marks by its square root only:
    priors of 50 and of 3,000 cost the same within half a percent of the bill.
    """

    turn_tokens: float = 300.0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Summaries:
    """How large summaries get, learned from `count` of them.

    `block_tokens` is the whole summary block as it stands in a view, `answer_tokens` what the model
    wrote of it. The priors count until the first compaction; too small is the cheap side to err on
    (a tenth of the truth costs nothing, four times the truth 7 % of the bill).
    """

    block_tokens: float = 500.0
    answer_tokens: float = 500.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """What the marks must lie between, tokens of the whole prompt.

    `kept_tokens` (fixed part, task, pins) stand at the start of every view, before the summary, so
    they stay cached when it changes. `tail_tokens` is the shortest tail a compaction may leave.
    `ceiling_tokens` is the highest trigger: min(0.9 x window, window - output); `floor_tokens` the
    lowest, whatever a lower one would save. `allowance`: turns may become dearer by this share where
    that keeps more of the newest turns.
    """

    kept_tokens: int
    tail_tokens: int
    ceiling_tokens: int
    floor_tokens: int = 0
    allowance: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call to the model that writes a summary.

    When it rides, its prompt is the last prompt, cached, and `question_tokens` behind it; else it reads
    `read_tokens` of the conversation anew, in `calls` one after the other. `is_checked`: the model looks at
    its answer once more. `prices` are those of the model asked.
    """

    prices: Prices = Prices()
    rides: bool = True
    question_tokens: int = 0
    read_tokens: int = 0
    calls: int = 1
    is_checked: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """Tokens of the whole prompt: a prompt at `trigger_tokens` is compacted down to `target_tokens`.

    `precompute_tokens` begins a background summary; it is the trigger itself unless the ceiling is
    near, because a turn more above the trigger costs next to nothing and waits for nobody.
    `gain_tokens` is the least a compaction should free: with a large newest group, which cannot be
    folded yet, it is cheaper to wait for a turn.
    """

    trigger_tokens: int
    target_tokens: int
    precompute_tokens: int
    gain_tokens: int


# A step frees at least this share of what may be freed, whatever the prices: no compaction lands
# where the next one starts (F04).
_STEP_SHARE = 0.25
# A summary may cost, in all its calls, this share of reading once, uncached, what it folds. Beyond it the
# summary is made by code: a conversation would cost more with it than if nothing were ever folded.
_ASK_SHARE = 1.0
# How much of the newest is learned: the last ten turns or so count. Turns differ far more from
# each other than one part of a conversation from the next.
_TURN_MEMORY = 10
_SUMMARY_MEMORY = 3
# A background summary is begun when the ceiling is one average turn away: one more would cost 1 %
# of the bill, for one turn in seven that need not wait.
_AHEAD_TURNS = 1
_PRECOMPUTE_FLOOR = 0.5
# The first prompt above a mark lies half a turn above it when turns are alike. They are not, but
# nothing between 0 and 2 turns changes the bill by 0.3 %.
_OVERSHOOT_TURNS = 0.5
# A cached token that costs no more than this share of a new one is free.
_FREE_SHARE = 1e-6
# A mark found through its inverse may come out a little below a whole number.
_ROUNDING = 1e-6


def prices_of(
    input_price: float, output_price: float, cached: float | None = None, written: float | None = None
) -> Prices:
    """Prices of a model from what is known of it; None is unknown: a tenth, and the input price.

    A model without a price (a local one) is given the default ratios: its work is what it costs.
    Raises ValueError for a negative or infinite price.
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


def grown(growth: Growth, tokens: int) -> Growth:
    """The growth after a turn that added `tokens`; the same when it added none (a retry, a rewind)."""
    if tokens <= 0:
        return growth
    weight = 1 / min(growth.turns + 2, _TURN_MEMORY)
    return Growth(growth.turn_tokens + weight * (tokens - growth.turn_tokens), growth.turns + 1)


def summarised(summaries: Summaries, block_tokens: int, answer_tokens: int | None) -> Summaries:
    """The sizes after one more summary; `answer_tokens` is None when no model wrote it.

    The first one replaces the prior: sizes of summaries hardly vary within a conversation.
    """
    weight = 1 / min(summaries.count + 1, _SUMMARY_MEMORY)
    block = summaries.block_tokens + weight * (max(0, block_tokens) - summaries.block_tokens)
    answer = summaries.answer_tokens
    if answer_tokens is not None:
        answer += weight * (max(0, answer_tokens) - answer)
    return Summaries(block, answer, summaries.count + 1)


def marks(
    prices: Prices,
    growth: Growth,
    summaries: Summaries,
    room: Room,
    call: Call | None,
    *,
    is_cold: bool = False,
) -> Marks:
    """The marks that cost least per turn, with as much kept as the room's tail and allowance say.

    `call` None asks no model. With a target s, the cheapest trigger is S = s + D(s): there, carrying
    what could be folded has cost as much as folding it. A turn then costs a constant + cached x S
    (docs/cost-policy.md). The lowest s is what is kept, a summary block and the shortest tail, at least
    one turn; the target is the highest s that makes turns dearer by no more than the allowance.
    `is_cold`: the next prompt is read anew whatever is done, so that no cache is lost by folding.

    Below the room's floor the trigger is the floor, and the target the highest that goes with it.

    Bounds: 1 <= target < trigger <= max(2, ceiling). The step from target to trigger is at least a
    quarter of what lies between what is kept and the trigger; the lowest s and S give way to that
    and to the ceiling. Precompute lies between half way up and the trigger, gain between 1 and the
    step.
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


def is_worth_asking(call: Call, shown_tokens: int, folded_tokens: int, answer_tokens: int) -> bool:
    """True when a model's summary is worth its price.

    `shown_tokens` are the prompt the call rides on, `folded_tokens` what the summary will stand for,
    `answer_tokens` what the model will write at each call. Everything that is asked is counted: each call of
    a question of its own reads the answer before, and a second look reads and writes all of it again.
    """
    prices, answer = call.prices, answer_tokens
    if call.rides:
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

    Growing from a target s costs `cached` x (tokens above s) a turn; compacting costs
    `setup` + `slope` x (s - `least`) once. `least` is the lowest target.
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
        """The highest target whose cheapest trigger is `trigger`, the inverse of `trigger`."""
        setup = max(0.0, self.setup + self.slope * (trigger - self.least))
        turns = _OVERSHOOT_TURNS + self.slope / self.cached if self.cached else 0.0
        step = max(1.0, (trigger - self.kept) * _STEP_SHARE, self._root(turns, setup))
        return trigger - step

    def turn_cost(self, trigger: float) -> float:
        """What an average turn costs with `trigger` and its target."""
        return self.turn_base + self.cached * trigger

    def _root(self, turns: float, setup: float) -> float:
        """The D with cached x (D^2 / (2 growth) + turns x D) = setup; no D will do when the cache is free."""
        if not self.cached:
            return math.inf
        ratio = 2 * setup / self.cached
        # Not growth x (root - turns): with an almost free cache the two are equal but for noise.
        return ratio / (math.sqrt(turns * turns + ratio / self.growth) + turns)


def _cycle_of(prices: Prices, growth: Growth, summaries: Summaries, room: Room, call: Call | None) -> _Cycle:
    turn = max(1.0, growth.turn_tokens)
    read = max(prices.written, prices.cached)
    cached = prices.cached if prices.cached > _FREE_SHARE * read else 0.0
    block = max(1.0, summaries.block_tokens)
    tail = max(turn, room.tail_tokens)
    least = room.kept_tokens + block + tail
    # Block and tail are read anew instead of from the cache, but the newest turn is new anyway.
    setup = read * (block + tail - turn) - cached * (block + tail)
    asked, again = _call_cost(call, summaries, least)
    # Tokens that grew are read once more by a call (`again`); the last prompt is never read again.
    extra = again - cached
    return _Cycle(
        growth=turn,
        cached=cached,
        setup=setup + asked - 2 * _OVERSHOOT_TURNS * extra * turn,
        slope=read - cached + (again if call is not None and call.rides else 0.0),
        least=least,
        kept=room.kept_tokens,
        turn_base=(read + extra) * turn,
    )


def _when_cold(cycle: _Cycle, summaries: Summaries, call: Call | None) -> _Cycle:
    """The cycle with the price of a fold at a moment at which the prompt is read anew either way.

    By code it costs nothing. A call has nothing to ride on; it reads what the turn need not, and the block.
    """
    if call is None:
        return replace(cycle, setup=0.0, slope=0.0)
    prices = call.prices
    read = prices.input * (call.question_tokens + summaries.block_tokens)
    return replace(cycle, setup=prices.output * summaries.answer_tokens + read, slope=0.0)


def _call_cost(call: Call | None, summaries: Summaries, least: float) -> tuple[float, float]:
    """What a call costs at the lowest target, and what each token more in its prompt costs."""
    if call is None:
        return 0.0, 0.0
    prices = call.prices
    asked = prices.output * summaries.answer_tokens + prices.input * call.question_tokens
    if call.rides:
        return asked + prices.cached * least, prices.cached
    return asked + prices.input * summaries.block_tokens, prices.input


def _below(room: Room, trigger: float) -> float:
    """The highest target that leaves a trigger its least step."""
    kept = min(room.kept_tokens, trigger - 1)
    return max(1.0, min(trigger - 1, kept + (1 - _STEP_SHARE) * (trigger - kept)))


def _rounded(target: float, trigger: float, ceiling: int, latest: float) -> Marks:
    """Whole tokens; a background summary is begun no later than at `latest`."""
    high = math.floor(trigger + _ROUNDING)
    low = max(1, min(math.floor(target + _ROUNDING), high - 1))
    step = high - low
    halfway = low + math.ceil(_PRECOMPUTE_FLOOR * step)
    # At the ceiling there is no waiting for a better moment.
    gain = step if high < ceiling else max(1, math.floor(_STEP_SHARE * step))
    return Marks(high, low, max(halfway, min(high, math.floor(latest))), gain)
