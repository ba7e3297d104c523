"""How much room there is: window, reserves, trigger and target in one value, and what adjusts them.

Every figure is in the program's own token count: the window is divided by the model's calibration before
anything is compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import msgspec

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.policy import Policy

WindowSource = Literal["configured", "upstream", "overflow", "observed", "model_data", "name", "default"]


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window in its own tokens, and where the figure comes from."""

    # The bounds hold where one is read from a document.
    tokens: Annotated[int, msgspec.Meta(ge=1, le=10**12)]
    source: WindowSource

    @property
    def is_known(self) -> bool:
        """True when configured or learned from the upstream: only then may a request be refused (rule 18)."""
        return self.source in ("configured", "upstream", "overflow")


@dataclass(frozen=True, slots=True)
class Budget:
    """Room for one request, in our count.

    `fixed_tokens` are tools, framing and the request's preamble: present in every view. A prompt at or above
    `trigger_tokens` is compacted down to `target_tokens`; no view may exceed `ceiling_tokens`; at
    `precompute_tokens` a background summary starts. `summary_tokens` bounds one summary block.
    `available_tokens` is the window less the scaled reserve and the fixed part (A05). `append_limit_tokens`:
    the largest prompt to which a summary request can be appended. `gain_tokens`: the least that a compaction
    must free. `base_target_tokens` is the target before any derivation. `memory_tokens` are those of the
    memory block that the next fold will have.

    `asked` says, for people, what decides the trigger. `idle_seconds`: the pause since the last request,
    where it was so long that the upstream's cache is gone and the marks are set for that; 0 otherwise.
    `ratio`: the model's tokens for one of ours. `reads_by`: the tool with which the model reads what a mask
    leaves out; "" where it has none.
    """

    window: Window
    window_tokens: int
    fixed_tokens: int
    output_tokens: int
    available_tokens: int
    trigger_tokens: int
    target_tokens: int
    ceiling_tokens: int
    precompute_tokens: int
    summary_tokens: int
    append_limit_tokens: int
    gain_tokens: int
    base_target_tokens: int
    is_derived: bool = False
    memory_tokens: int = 0
    asked: str = ""
    idle_seconds: int = 0
    ratio: float = 1.0
    reads_by: str = ""

    def for_model(self, tokens: int) -> int:
        """Tokens of our count in the model's count, which is what people are shown."""
        return as_theirs(tokens, self.ratio)


# At most this share of the window is held back for the answer: agents send 32,000 on 32k windows (rule 19).
_OUTPUT_SHARE = 0.5
# A trigger reserve (B02) never brings the trigger below this share of the window.
_TRIGGER_FLOOR = 0.25
# The target leaves at least this share of the room between the fixed part and the trigger for growth, so
# that no compaction ends where the next one starts (F04).
_GROWTH_SHARE = 0.25
# A background summary starts no earlier than half way from the target to the trigger.
_PRECOMPUTE_FLOOR = 0.5
# A summary request is appended to the whole prompt (idea 2): prompt, request and answer must fit together,
# with this share of the window to spare for one more turn and an inexact count.
_QUESTION_TOKENS = 700
_SPARE_SHARE = 0.03
# A summary block takes at most half of the room that the target leaves to messages: the other half is for
# the task and the tail. It matters only for windows below about 4k tokens.
SUMMARY_SHARE = 0.5
# The memory block takes at most one in this many tokens of the window.
_MEMORY_DIVISOR = 8
# No calibration can make a window smaller than this, tokens.
_LEAST_WINDOW = 16


def budget_of(
    window: Window,
    *,
    fixed_tokens: int,
    max_output_tokens: int | None,
    ratio: float,
    policy: Policy,
) -> Budget:
    """What a request with this fixed part may hold, every figure in our own count (rule 19).

    `fixed_tokens` are ours; `max_output_tokens` is the request's `max_tokens` or `max_completion_tokens`, in
    the model's tokens, None or 0 when it names none. `ratio` is the model's tokens for one of ours (its
    calibration): the window in our count is the window divided by it.

    * trigger: min(trigger share x window, window - output), the output being at most half the
      window; a trigger reserve (B02) is kept free too.
    * available: window - min(reserved, window / 2) - fixed, at least 0 (A05).
    * target: fixed + target share x available (A06), or the floor share of window - fixed if that
      is more; at least room for two of the smallest summaries, at most three quarters of the way
      from the fixed part to the trigger.
    * summary: the policy's share of available between its smallest and its largest (A12, A13), at
      most half of what the target leaves to messages.
    * ceiling: min(ceiling share x window, window - output), never below the trigger (A27).
    * precompute: its share of the window, in proportion when the output lowers the trigger, and at
      least half way between target and trigger.
    * gain: its share of the window, in proportion when something lowers the trigger: a trigger of 20,000
      tokens on a window of a million could otherwise never free enough.
    """
    size = max(_LEAST_WINDOW, math.floor(window.tokens / ratio))
    output = math.floor(min((max_output_tokens or 0) / ratio, size * _OUTPUT_SHARE))
    free = size - output
    trigger = max(1, min(_trigger_tokens(size, policy), free))
    reserve = min(policy.reserved_tokens, size // 2)
    available = max(0, size - reserve - fixed_tokens)
    room = max(_share(policy.target_ratio, available), _share(policy.target_floor_ratio, size - fixed_tokens))
    target = target_of(room, fixed_tokens, trigger, policy)
    wanted = min(policy.summary_max_tokens, _share(policy.summary_share, available))
    summary = min(max(policy.summary_min_tokens, wanted), int((target - fixed_tokens) * SUMMARY_SHARE))
    append_limit = free - summary - _QUESTION_TOKENS - size * _SPARE_SHARE
    precompute = trigger * min(1.0, policy.precompute_ratio / policy.trigger_ratio)
    precompute = min(precompute, append_limit) if policy.reuse_prompt_cache else precompute
    return Budget(
        window=window,
        window_tokens=size,
        fixed_tokens=fixed_tokens,
        output_tokens=output,
        available_tokens=available,
        trigger_tokens=trigger,
        target_tokens=target,
        ceiling_tokens=max(trigger, min(_share(policy.ceiling_ratio, size), free)),
        precompute_tokens=_between(target, precompute, trigger),
        summary_tokens=max(1, summary),
        append_limit_tokens=max(1, math.floor(append_limit)),
        gain_tokens=int(policy.min_gain_ratio * min(size, trigger / policy.trigger_ratio)),
        base_target_tokens=target,
        asked=_asked(policy, trigger, free, max_output_tokens or 0, window.tokens),
        ratio=ratio,
    )


def target_of(room: int, fixed: int, trigger: int, policy: Policy) -> int:
    """The size to which a prompt is compacted, tokens: `room` for messages on top of the fixed part.

    At least room for two of the smallest summaries. At most three quarters of what lies between the fixed
    part and the trigger. Never below the fixed part, which cannot be compacted.
    """
    most = most_after_compaction(fixed, trigger) - fixed
    return fixed + max(2, min(max(room, 2 * policy.summary_min_tokens), most))


def most_after_compaction(fixed: int, trigger: int) -> int:
    """The most tokens that a compaction may leave: a quarter of the room below the trigger is for growth."""
    return fixed + math.floor(max(0, trigger - fixed) * (1 - _GROWTH_SHARE))


def memory_room(budget: Budget, policy: Policy) -> int:
    """Tokens that a session's memory block may take in a view: at most an eighth of the window."""
    return min(policy.memory_tokens, budget.window_tokens // _MEMORY_DIVISOR)


def _between(target: int, precompute: float, trigger: int) -> int:
    """Where a background summary starts: between half way from target to trigger and the trigger."""
    return min(trigger, math.ceil(max(precompute, target + (trigger - target) * _PRECOMPUTE_FLOOR)))


def _asked(policy: Policy, trigger: int, free: int, output: int, window: int) -> str:
    """What decides the trigger, in the model's tokens."""
    if trigger == free and output:
        return f"{min(output, int(window * _OUTPUT_SHARE)):,} kept free for the answer"
    if policy.trigger_tokens and trigger >= policy.trigger_tokens:
        return f"{policy.trigger_tokens:,} asked"
    if policy.trigger_reserve_tokens:
        return f"{policy.trigger_ratio:.2f} asked, {policy.trigger_reserve_tokens:,} kept free"
    return f"{policy.trigger_ratio:.2f} asked"


def _trigger_tokens(size: int, policy: Policy) -> int:
    by_share = math.ceil(policy.trigger_ratio * size - _ROUNDING)
    if policy.trigger_tokens:
        by_share = min(by_share, policy.trigger_tokens)
    if not policy.trigger_reserve_tokens:
        return by_share
    return max(_share(_TRIGGER_FLOOR, size), min(by_share, size - policy.trigger_reserve_tokens))


# Shares are binary fractions: 0.7 x 200,000 must be 140,000, not 139,999.
_ROUNDING = 1e-6


def _share(ratio: float, tokens: int) -> int:
    return math.floor(ratio * tokens + _ROUNDING)


# Enough for a quote or two in the smallest windows in use.
_SHARE = 0.15


def with_room(budget: Budget, wanted_tokens: int) -> Budget:
    """`budget` with marks so low that a prompt below the trigger leaves `wanted_tokens` below the ceiling.

    At most 15 % of the window less the fixed part is kept free so. The marks are lowered in proportion.
    """
    wanted = min(wanted_tokens, int(_SHARE * (budget.window_tokens - budget.fixed_tokens)))
    most = budget.ceiling_tokens - wanted
    if most >= budget.trigger_tokens:
        return budget
    lowered = with_estimate(budget, most, budget.trigger_tokens)
    room = f"{budget.for_model(wanted):,} kept free for look-ups"
    return replace(lowered, asked=f"{budget.asked}, {room}" if budget.asked else room)


def raised_for_tools(budget: Budget, tools_tokens: int) -> Budget:
    """`budget` for prompts without our tools, with marks raised by the tokens of the tools.

    The tools are in its fixed part, as the next view will have them. The marks rise as far as the ceiling
    allows, so that the first compaction comes neither earlier nor later, and leaves room for the tools.
    """
    most = budget.ceiling_tokens
    return replace(
        budget,
        trigger_tokens=min(most, budget.trigger_tokens + tools_tokens),
        precompute_tokens=min(most, budget.precompute_tokens + tools_tokens),
    )


def with_estimate(budget: Budget, counted: int, guessed: int) -> Budget:
    """`budget` with marks that treat a prompt of `counted` tokens as if it had `guessed`.

    `guessed` is at or above a mark of `budget` exactly when `counted` is at or above that mark here, as long
    as it is below the ceiling, which stays. Target, least gain and blocks change in the same proportion, so
    that trigger and cut use the same sizes.
    """
    if guessed <= 0 or guessed == counted:
        return budget
    fixed = budget.fixed_tokens
    trigger = min(budget.ceiling_tokens, _scaled(budget.trigger_tokens, counted, guessed))
    most = most_after_compaction(fixed, trigger)
    target = max(fixed + 2, min(most, _scaled(budget.target_tokens, counted, guessed)))
    summary = min(budget.summary_tokens, int(SUMMARY_SHARE * (target - fixed)))
    return replace(
        budget,
        trigger_tokens=trigger,
        target_tokens=target,
        precompute_tokens=min(trigger, _scaled(budget.precompute_tokens, counted, guessed)),
        summary_tokens=max(1, summary),
        gain_tokens=budget.gain_tokens * counted // guessed,
        base_target_tokens=min(budget.base_target_tokens, target),
    )


def _scaled(mark: int, counted: int, guessed: int) -> int:
    """Rounded up: a count that is below a mark by less than a token is below it."""
    return -(-mark * counted // guessed)


# The block takes at most this share of the room for messages: the rest is for task and tail.
_BLOCK_SHARE = 0.72
# ... and this share of what it replaces: a fold that frees next to nothing is useless (F12).
_REPLACED_SHARE = 0.6
# Room for a block in summary budgets: one for the model's record, two for what code extracts.
BLOCK_FACTOR = 3
# Tokens below which a summary says nothing useful (A27).
LEAST_SUMMARY_TOKENS = 200


def block_tokens_for(budget: Budget, tokens: int) -> int:
    """Tokens that a block may take which replaces `tokens` folded ones.

    The model's record (A12) and twice as much of what code extracts, together at most 72 % of the room for
    messages and 60 % of what they replace.
    """
    wanted = BLOCK_FACTOR * budget.summary_tokens
    room = max(1, budget.base_target_tokens - budget.fixed_tokens)
    most = max(budget.summary_tokens, int(_BLOCK_SHARE * room))
    return max(1, min(wanted, most, max(int(_REPLACED_SHARE * tokens), LEAST_SUMMARY_TOKENS)))
