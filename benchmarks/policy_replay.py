"""What a conversation costs under marks, and what it costs one who knows its future.

Tokens only: a view is the preamble, the task, a summary of fixed size and a tail. Counts what
`marks` is told, one turn at a time; knows nothing of tables and plots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from palimpsest.core.budget.economy import (
    MarkBounds,
    Marks,
    Prices,
    SummaryCall,
    SummarySizes,
    TurnGrowth,
    grown,
    marks,
    room_of,
    summarised,
)

from benchmarks.policy_traces import Trace

PRICES = Prices()
# The highest trigger, and the most a prompt may hold before it is compacted at any gain.
CEILING_SHARE, GUARD_SHARE = 0.9, 0.95
_ENDLESS = 1 << 40


@dataclass(frozen=True)
class Setting:
    """A window and what a summary is: tokens of its block, and whether a model writes it, and when."""

    window: int
    summary: int
    asks_model: bool
    in_background: bool = False


@dataclass(frozen=True)
class Seen:
    """What a policy may know at a turn."""

    trace: Trace
    setting: Setting
    growth: TurnGrowth
    summaries: SummarySizes


Policy = Callable[[Seen], Marks]


@dataclass
class Bill:
    """What was paid, in the price of an uncached token, how often it was compacted, and at which marks."""

    paid: float = 0.0
    compactions: int = 0
    triggers: int = 0


def view(trace: Trace, start: int, turn: int, summary: int) -> int:
    """Tokens of the prompt of a turn whose tail begins at `start`; 0 folds nothing."""
    if start == 0:
        return trace.preamble + trace.before[turn]
    return trace.kept + summary + trace.before[turn] - trace.before[start]


def lowest(seen: Seen) -> Marks:
    """The rule with nothing kept beyond one turn."""
    return _marks(seen, MarkBounds(seen.trace.kept, 0, int(CEILING_SHARE * seen.setting.window)))


def derived(seen: Seen) -> Marks:
    """The rule with what the objective `cost` keeps, its floor under the trigger apart."""
    top = int(CEILING_SHARE * seen.setting.window)
    return _marks(seen, replace(room_of(seen.trace.kept, seen.summaries.block_tokens, top), floor_tokens=0))


def _marks(seen: Seen, room: MarkBounds) -> Marks:
    call = SummaryCall(PRICES) if seen.setting.asks_model else None
    return marks(PRICES, seen.growth, seen.summaries, room, call)


def fixed(seen: Seen) -> Marks:
    """Nine tenths of the window down to half of what is available, as the program does without prices."""
    window, preamble = seen.setting.window, seen.trace.preamble
    high = int(CEILING_SHARE * window)
    available = window - min(8_000, window // 2) - preamble
    room = max(0.5 * max(0, available), 0.45 * (window - preamble))
    low = preamble + int(min(room, 0.75 * (high - preamble)))
    early = max(int(0.85 * window), (low + high) // 2)
    return Marks(high, low, early, window // 20)


def at(trigger: int) -> Policy:
    """One trigger whatever happens, down to the lowest target: for the curve."""

    def policy(seen: Seen) -> Marks:
        least = seen.trace.kept + seen.setting.summary + round(seen.growth.turn_tokens)
        low = min(least, trigger - 1)
        return Marks(trigger, low, trigger, trigger - low)

    return policy


def full(trace: Trace) -> float:
    """The bill of the whole history at every turn, every window large enough."""
    return _Replay(trace, Setting(_ENDLESS, 0, False)).bill(at(_ENDLESS)).paid


def replay(trace: Trace, setting: Setting, policy: Policy) -> Bill:
    """The bill under a policy that learns as it goes."""
    return _Replay(trace, setting).bill(policy)


class _Replay:
    def __init__(self, trace: Trace, setting: Setting) -> None:
        self._trace = trace
        self._setting = setting
        self._growth = TurnGrowth()
        self._summaries = SummarySizes()
        self._start = 0
        self._ready: int | None = None
        self._bill = Bill()

    def bill(self, policy: Policy) -> Bill:
        was = before = 0
        for turn in self._trace.turns:
            if was:
                self._growth = grown(self._growth, self._trace.before[turn] - before)
            before = self._trace.before[turn]
            now = self._view(self._start, turn)
            found = policy(Seen(self._trace, self._setting, self._growth, self._summaries))
            self._bill.triggers += found.trigger_tokens
            start = self._compacted(found, turn, was, now)
            if start is None:
                self._bill.paid += PRICES.written * (now - was) + PRICES.cached * was
            else:
                now = self._fold(start, turn)
            if self._setting.in_background:
                self._prepare(found, turn, now)
            was = now
        return self._bill

    def _compacted(self, found: Marks, turn: int, was: int, now: int) -> int | None:
        """Where the tail begins from this turn on, None when nothing is folded; pays for a call."""
        ready, self._ready = self._ready, None
        if ready is not None:
            return ready
        limit = self._setting.window * (CEILING_SHARE if self._setting.in_background else 0)
        if now < max(found.trigger_tokens, limit):
            return None
        start = self._cut(turn, found.target_tokens)
        gain = now - self._view(start, turn) if start else 0
        if gain < found.gain_tokens and (now <= GUARD_SHARE * self._setting.window or gain <= 0):
            return None
        if self._setting.asks_model:
            self._ask(was or now)
        return start

    def _prepare(self, found: Marks, turn: int, now: int) -> None:
        """After the turn: the summary that the next one is shown."""
        if not self._setting.asks_model or now < found.precompute_tokens:
            return
        start = self._cut(turn, found.target_tokens)
        if start and now - self._view(start, turn) >= found.gain_tokens:
            self._ready = start
            self._ask(now)

    def _ask(self, prompt: int) -> None:
        self._bill.paid += PRICES.cached * prompt + PRICES.output * self._setting.summary

    def _fold(self, start: int, turn: int) -> int:
        self._start = start
        now = self._view(start, turn)
        self._bill.paid += PRICES.written * (now - self._trace.kept) + PRICES.cached * self._trace.kept
        self._bill.compactions += 1
        size = self._setting.summary
        self._summaries = summarised(self._summaries, size, size if self._setting.asks_model else None)
        return now

    def _cut(self, turn: int, target: int) -> int:
        """The longest tail within the target, else the shortest; 0 when there is nothing to fold."""
        cuts = [cut for cut in self._trace.cuts if self._start < cut < turn]
        within = (cut for cut in cuts if self._view(cut, turn) <= target)
        return next(within, cuts[-1] if cuts else 0)

    def _view(self, start: int, turn: int) -> int:
        return view(self._trace, start, turn, self._setting.summary)


def optimum(trace: Trace, setting: Setting) -> float:
    """The least that can be paid by one who knows the future: a dynamic programme over tails.

    Infinite when no cuts keep every prompt within the window.
    """
    # The least paid so far with a tail that begins at each message.
    paid: dict[int, float] = {0: 0.0}
    last: int | None = None
    for turn in trace.turns:
        after: dict[int, float] = {}
        cheapest = math.inf
        for start, so_far in paid.items():
            was = 0 if last is None else view(trace, start, last, setting.summary)
            now = view(trace, start, turn, setting.summary)
            if now <= setting.window:
                after[start] = so_far + PRICES.written * (now - was) + PRICES.cached * was
            asked = PRICES.cached * (was or now) + PRICES.output * setting.summary
            cheapest = min(cheapest, so_far + (asked if setting.asks_model else 0.0))
        for start in trace.cuts:
            now = view(trace, start, turn, setting.summary)
            if start >= turn or now > setting.window:
                continue
            anew = cheapest + PRICES.written * (now - trace.kept) + PRICES.cached * trace.kept
            after[start] = min(after.get(start, math.inf), anew)
        paid, last = after, turn
    return min(paid.values(), default=math.inf)
