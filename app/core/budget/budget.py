"""How much room there is: window, reserves, trigger and target in one value.

Pure. Knows nothing of messages; counts come in as numbers. Every figure is in the program's own
token count: the window is divided by the model's calibration before anything is compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from app.core.budget.calibration import as_theirs
from app.core.view.policy import Policy

WindowSource = Literal["configured", "upstream", "overflow", "observed", "model_data", "name", "default"]


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window in its own tokens, and how we know it."""

    tokens: int
    source: WindowSource

    @property
    def is_known(self) -> bool:
        """True when configured or learned from the upstream: only then may we refuse (rule 18)."""
        return self.source in ("configured", "upstream", "overflow")


@dataclass(frozen=True, slots=True)
class Budget:
    """Room for one request, in our count.

    `fixed_tokens` are tools, framing and the request's preamble: present in every view. A prompt at
    or above `trigger_tokens` is compacted down to `target_tokens`; no view may exceed
    `ceiling_tokens`; `precompute_tokens` starts a background summary. `summary_tokens` bounds one
    summary block. `available_tokens` is the window less the scaled reserve and the fixed part (A05).
    `carry_tokens` is the target before any derivation. `memory_tokens` are those of the memory block that the
    next fold will carry.
    `asked` says for a person what decides the trigger. `idle_seconds`: nobody asked for so long that the
    upstream's cache is gone, and the marks are those of such a moment; 0: they are the usual ones. `ratio`:
    the model's tokens for one of ours. `reads_by`: the tool with which the model reads what a mask leaves
    out; "" where it has none.
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
    riding_tokens: int
    gain_tokens: int
    carry_tokens: int
    is_derived: bool = False
    memory_tokens: int = 0
    asked: str = ""
    idle_seconds: int = 0
    ratio: float = 1.0
    reads_by: str = ""

    def for_model(self, tokens: int) -> int:
        """Tokens of our count as the model counts them: what people are shown."""
        return as_theirs(tokens, self.ratio)


# At most this share of the window is held back for the answer: agents send 32,000 on 32k windows (rule 19).
_OUTPUT_SHARE = 0.5
# A trigger reserve (B02) never brings the trigger below this share of the window.
_TRIGGER_FLOOR = 0.25
# The target leaves at least this share of what lies between the fixed part and the trigger to grow
# into, so that no compaction lands where the next one starts (F04).
_GROWTH_SHARE = 0.25
# A background summary starts no earlier than half way from the target to the trigger.
_PRECOMPUTE_FLOOR = 0.5
# A summary is asked for behind the whole prompt (idea 2), so prompt, question and answer must fit
# together, with this much of the window to spare for one more turn and a count that is off.
_QUESTION_TOKENS = 700
_SPARE_SHARE = 0.03
# One summary block takes at most half of the room the target gives to messages: the other half is
# the task and the tail. It matters below about 4k tokens of window only.
_SUMMARY_SHARE = 0.5
# The memory block takes at most one in so many tokens of the window: a small one is for the conversation.
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

    `fixed_tokens` are ours; `max_output_tokens` is the request's `max_tokens` or
    `max_completion_tokens`, in the model's tokens, None or 0 when it names none. `ratio` is the
    model's tokens for one of ours (its calibration): the window in our count is the window over it.

    * trigger: min(trigger share x window, window - output), the output being at most half the
      window; a policy with a trigger reserve of its own (B02) keeps that free too.
    * available: window - min(reserved, window / 2) - fixed, at least 0 (A05).
    * target: fixed + target share x available (A06), or the floor share of window - fixed if that
      is more; at least room for two of the smallest summaries, at most three quarters of the way
      from the fixed part to the trigger.
    * summary: max(500, min(4,096, 8 % of available)) (A12, A13), at most half of what the target
      leaves to messages.
    * ceiling: min(guard share x window, window - output), never below the trigger (A27).
    * precompute: its share of the window, in proportion when the output lowers the trigger, and at
      least half way between target and trigger.
    * gain: its share of the window, in proportion when something lowers the trigger: of 20,000 tokens
      on a window of a million no step would be worth it.
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
    summary = min(max(policy.summary_min_tokens, wanted), int((target - fixed_tokens) * _SUMMARY_SHARE))
    riding = free - summary - _QUESTION_TOKENS - size * _SPARE_SHARE
    precompute = trigger * min(1.0, policy.precompute_ratio / policy.trigger_ratio)
    precompute = min(precompute, riding) if policy.rides else precompute
    return Budget(
        window=window,
        window_tokens=size,
        fixed_tokens=fixed_tokens,
        output_tokens=output,
        available_tokens=available,
        trigger_tokens=trigger,
        target_tokens=target,
        ceiling_tokens=max(trigger, min(_share(policy.guard_ratio, size), free)),
        precompute_tokens=_between(target, precompute, trigger),
        summary_tokens=max(1, summary),
        riding_tokens=max(1, math.floor(riding)),
        gain_tokens=int(policy.min_gain_ratio * min(size, trigger / policy.trigger_ratio)),
        carry_tokens=target,
        asked=_asked(policy, trigger, free, max_output_tokens or 0, window.tokens),
        ratio=ratio,
    )


def target_of(room: int, fixed: int, trigger: int, policy: Policy) -> int:
    """What a prompt is brought down to, tokens: `room` for messages on top of the fixed part.

    At least room for two of the smallest summaries; never so much that less than a quarter of what
    lies below the trigger is won; never below the fixed part, which cannot be compacted.
    """
    most = most_after(fixed, trigger) - fixed
    return fixed + max(2, min(max(room, 2 * policy.summary_min_tokens), most))


def most_after(fixed: int, trigger: int) -> int:
    """The most tokens a compaction may leave: a quarter of what the trigger allows is there to grow into."""
    return fixed + math.floor(max(0, trigger - fixed) * (1 - _GROWTH_SHARE))


def memory_room(budget: Budget, policy: Policy) -> int:
    """Tokens that a session's memory block may take in a view: at most an eighth of the window."""
    return min(policy.memory_tokens, budget.window_tokens // _MEMORY_DIVISOR)


def _between(target: int, precompute: float, trigger: int) -> int:
    """Where a background summary begins: not below half way up to the trigger, nor above it."""
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
