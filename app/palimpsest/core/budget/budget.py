"""The arithmetic of room, all of it: when a conversation is compacted, how far, and what its answer needs.

`F` are the fixed tokens (tools, framing, instructions), in every prompt; `R`, the window less `F`, is what
messages may take. Every figure is in the program's own count: the model's figures are divided by its
calibration before they are compared.

    reserve  = min(max_tokens, R / 4); without max_tokens min(8,000, R / 20)
    trigger  = trigger_ratio x window, but at least F + R / 2;
               at most window - reserve, trigger_tokens, and the model's price step - reserve
    target   = F + target_ratio x available, but at least F + target_floor_ratio x R;
               at most 0.6 of the way from F to the trigger, half where something lowers the trigger
    ceiling  = min(F + ceiling_ratio x R, window - reserve), not below the trigger

So nothing is compacted for the sake of `max_tokens` while a quarter of `R` is free: the upstream judges the
sum of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

import msgspec

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy

WindowSource = Literal["configured", "upstream", "overflow", "observed", "model_data", "name", "default"]
Due: TypeAlias = Literal["later", "soon", "now"]

# No window leaves messages less, tokens: the marks stay in order even where the fixed part fills it.
_LEAST_ROOM = 16
# At most one in so many tokens of R is kept free for an answer: agents send max_tokens of 32,000 on 32,000.
_RESERVE_PART = 4
# ... and where a request names no length these tokens, or one in so many.
_USUAL_ANSWER, _USUAL_PART = 8_000, 20
# The trigger leaves messages at least one in so many tokens of R, however much the fixed part takes.
_TRIGGER_PART = 2
# The target leaves messages at most this share of what the trigger leaves them, so that no compaction ends
# where the next one starts (F04); the second where something lowers the trigger, since ratios are of windows.
_TARGET_SHARE, _LOWERED_TARGET_SHARE = 0.6, 0.5
# A trigger reserve (B02) leaves messages at least these tokens, as the source has it in a window of 64,000.
_LEAST_TRIGGER = 24_000
# A mark stated in tokens leaves messages at least one in so many of them: fixed parts may nearly reach it.
_MESSAGES_PART = 4
# At most this share of R is kept free for look-ups: enough for a quote or two in the smallest windows in use.
_LOOKUP_SHARE = 0.15
# A compaction leaves at most this share of what lies between F and the trigger, so that none ends where the
# next one starts (F04).
_MOST_SHARE = 0.75
# A background summary starts no earlier than half way from the target to the trigger.
_PRECOMPUTE_FLOOR = 0.5
# A summary request is appended to the whole prompt (idea 2): prompt, question and answer must fit together,
# in this share of the window; the rest is for one more turn and an inexact count.
_QUESTION_TOKENS = 800
_PROMPT_SHARE = 0.97
# A record takes at most half of the room that the target leaves to messages, and the smallest one that is
# worth asking for at most this share of it: the rest is for task and tail.
_RECORD_PART, _BLOCK_SHARE = 2, 0.72
# A block takes at most this share of what it replaces: a fold that frees next to nothing is useless (F12).
_REPLACED_SHARE = 0.6
# Room for a block in summary budgets: it holds the record of all folds, and what code adds.
_BLOCK_FACTOR = 3
# A summary is one in so many tokens of a window up to a size, and one in so many of what exceeds it: the
# block takes a sixth of the window, and a sixteenth.
_SUMMARY_PART, _LARGE_WINDOW, _LARGE_PART = 18, 24_000, 48
# Tokens below which a summary says nothing useful (A27).
LEAST_SUMMARY_TOKENS = 200
# Where the upstream refused only the sum of prompt and max_tokens, a fold leaves messages this share of R.
_ANSWER_SHARE = 0.5
# The memory block takes at most one in this many tokens of the window.
_MEMORY_DIVISOR = 8
# Shares are binary fractions: 0.7 x 200,000 must be 140,000, not 139,999.
_ROUNDING = 1e-6


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
    """Room for one request, tokens of the whole prompt in our count.

    A prompt at or above `trigger_tokens` is compacted down to `target_tokens`; no compacted view may exceed
    `ceiling_tokens`; at `precompute_tokens` a background summary starts. `output_tokens` is the reserve,
    `available_tokens` the window less `reserved_tokens` and the fixed part (A05), `summary_tokens` the length
    of a record. `gain_tokens`: the least that a compaction must free. `memory_tokens` are those of the memory
    block that the next fold will have.

    `cheap_tokens`: the ceiling, or the price step below it; a larger prompt waits for its compaction.
    `asked` says, for people, what decides the trigger. `ratio`: the model's tokens for one of ours.
    `reads_by`: the tool with which the model reads what a mask leaves out; "" where it has none.
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
    gain_tokens: int
    memory_tokens: int = 0
    cheap_tokens: int = 0
    asked: str = ""
    ratio: float = 1.0
    reads_by: str = ""

    @property
    def room_tokens(self) -> int:
        """`R`: what messages may take of the window."""
        return max(_LEAST_ROOM, self.window_tokens - self.fixed_tokens)

    @property
    def most_after_tokens(self) -> int:
        """The most that a compaction may leave: a quarter of the room below the trigger is for growth."""
        return self.fixed_tokens + _share(_MOST_SHARE, max(0, self.trigger_tokens - self.fixed_tokens))

    def for_model(self, tokens: int) -> int:
        """Tokens of our count in the model's count, which is what people are shown."""
        return as_theirs(tokens, self.ratio)


def budget_of(
    window: Window,
    *,
    fixed_tokens: int,
    max_output_tokens: int | None,
    ratio: float,
    policy: Policy,
    steps: Sequence[tuple[int, object]] = (),
    lookup_tokens: int = 0,
    unsent_tokens: int = 0,
) -> Budget:
    """What a request with this fixed part may hold (see the top of this page).

    `fixed_tokens` are ours; `max_output_tokens` (None or 0 for none) and the sizes in `steps`, ascending,
    above which a prompt costs more, are the model's, of which `ratio` make one of ours. A prompt below the
    trigger leaves `lookup_tokens` below the ceiling, at most 15 % of R. `unsent_tokens` of the fixed part are
    not in this prompt yet: the trigger is higher by them, as far as the ceiling allows.
    """
    size = max(_LEAST_ROOM, int(window.tokens / ratio))
    fixed, room = fixed_tokens, max(_LEAST_ROOM, size - fixed_tokens)
    asked = int((max_output_tokens or 0) / ratio)
    reserve = min(asked, room // _RESERVE_PART) if asked else min(_USUAL_ANSWER, room // _USUAL_PART)

    by_window = max(math.ceil(policy.trigger_ratio * size - _ROUNDING), fixed + room // _TRIGGER_PART)
    trigger, said = by_window, f"{policy.trigger_ratio:.2f} asked"
    kept_free = policy.trigger_reserve_tokens
    if kept_free and (least := fixed + max(room - kept_free, _LEAST_TRIGGER)) < trigger:
        trigger, said = least, f"{said}, {kept_free:,} kept free"
    limit = int(policy.trigger_tokens / ratio)
    if limit and (limit := max(limit, fixed + limit // _MESSAGES_PART)) < trigger:
        trigger, said = limit, f"{policy.trigger_tokens:,} asked"
    if asked and size - reserve < trigger:
        trigger, said = size - reserve, f"{as_theirs(reserve, ratio):,} kept free for the answer"
    dear = size
    for above, _ in steps:
        step = int(above / ratio) - reserve
        # A step that the fixed parts nearly reach is paid anyway.
        if fixed + step // _MESSAGES_PART <= step:
            dear = step + reserve
            if step < trigger:
                trigger, said = step, f"prompts above {above:,} cost more"
            break
    ceiling = min(size, max(trigger, min(fixed + _share(policy.ceiling_ratio, room), size - reserve)))
    if lookup_tokens and ceiling - (free := min(lookup_tokens, _share(_LOOKUP_SHARE, room))) < trigger:
        trigger, said = ceiling - free, f"{said}, {as_theirs(free, ratio):,} kept free for look-ups"
    trigger = min(trigger, ceiling)
    span = max(0, trigger - fixed)

    available = max(0, size - min(policy.reserved_tokens, size // 2) - fixed)
    kept = max(
        _share(policy.target_ratio, available),
        _share(policy.target_floor_ratio, room),
        2 * policy.summary_min_tokens,
    )
    most = _share(_TARGET_SHARE if trigger == by_window else _LOWERED_TARGET_SHARE, span)
    target = fixed + max(2, min(kept, most))
    least, for_record = policy.summary_min_tokens, (target - fixed) // _RECORD_PART
    if for_record < least:
        for_record = max(1, min(least, _share(_BLOCK_SHARE, target - fixed)))
    if policy.summary_share:
        wanted = _share(policy.summary_share, available)
    else:
        large = max(0, size - _LARGE_WINDOW)
        wanted = (size - large) // _SUMMARY_PART + large // _LARGE_PART
    summary = min(max(least, min(policy.summary_max_tokens, wanted)), for_record)

    # What lies between F and the trigger, were the trigger at the whole window.
    whole = span / policy.trigger_ratio
    precompute = _asking_mark(fixed + whole * policy.precompute_ratio, trigger, target, policy, size, summary)
    return Budget(
        window=window,
        window_tokens=size,
        fixed_tokens=fixed,
        output_tokens=reserve,
        available_tokens=available,
        trigger_tokens=min(ceiling, trigger + unsent_tokens),
        target_tokens=target,
        ceiling_tokens=ceiling,
        precompute_tokens=min(ceiling, precompute + unsent_tokens),
        summary_tokens=summary,
        # In proportion where something lowers the trigger: a trigger of 20,000 tokens on a window of a
        # million could otherwise never free enough.
        gain_tokens=_share(policy.min_gain_ratio, min(room, whole)),
        cheap_tokens=min(ceiling, dear),
        asked=said,
        ratio=ratio,
    )


def asking_ahead(budget: Budget, policy: Policy, lead_tokens: int) -> Budget:
    """The budget with summaries asked for `lead_tokens` below the trigger; unchanged for 0 (unknown).

    Not under a policy that asks at its trigger.
    """
    if not lead_tokens or policy.precompute_ratio >= policy.trigger_ratio:
        return budget
    trigger, size = budget.trigger_tokens, budget.window_tokens
    most = budget.summary_tokens
    mark = _asking_mark(trigger - lead_tokens, trigger, budget.target_tokens, policy, size, most)
    return replace(budget, precompute_tokens=mark)


def _asking_mark(wanted: float, trigger: int, target: int, policy: Policy, size: int, summary: int) -> int:
    """Where a summary is asked for: not far below the trigger, nor where an appended question has no room."""
    if policy.reuse_prompt_cache:
        wanted = min(wanted, size * _PROMPT_SHARE - summary - _QUESTION_TOKENS)
    return min(trigger, math.ceil(max(wanted, target + (trigger - target) * _PRECOMPUTE_FLOOR)))


def _share(ratio: float, tokens: float) -> int:
    return int(ratio * tokens + _ROUNDING)


def due(tokens: int, unfolded: Sequence[Message], budget: Budget, policy: Policy) -> Due:
    """When a prompt of `tokens` is compacted; no summary covers the messages `unfolded`.

    "now": at the trigger, of tokens (A02) or of a count (A14), but with fewer messages than the policy's
    least only at the ceiling (D13). "soon": at the mark where a summary is prepared in the background (B03).
    "later": neither, or the policy is off; nothing further needs to be checked. All counts are ours. Nothing
    else decides this: to add another kind of mark, add a number to `core/policy.py` and a line to
    `count_reached`.
    """
    is_long = tokens >= budget.trigger_tokens or count_reached(unfolded, policy) is not None
    if is_long and (len(unfolded) >= policy.min_messages or tokens >= budget.ceiling_tokens):
        return "later" if policy.is_off else "now"
    return "soon" if tokens >= budget.precompute_tokens and not policy.is_off else "later"


def count_reached(unfolded: Sequence[Message], policy: Policy) -> str | None:
    """The count that triggers a compaction whatever the tokens (A14), as text for people, or None.

    For example "24 messages (24 asked)". The counts are those of `Policy.folds_by_count`.
    """
    if 0 < policy.trigger_messages <= len(unfolded):
        return f"{len(unfolded)} messages ({policy.trigger_messages} asked)"
    return None


def overflow_target(budget: Budget, sent_tokens: int, policy: Policy) -> int:
    """The size of a prompt after the upstream refused one of `sent_tokens` as too long (A29).

    The policy's share of what is available, at least room for two of the smallest summaries, and at most half
    of the messages that were sent: the true window may be far smaller than assumed.
    """
    fixed, room = budget.fixed_tokens, _share(policy.overflow_target_ratio, budget.available_tokens)
    room = min(max(room, 2 * policy.summary_min_tokens), budget.most_after_tokens - fixed)
    return fixed + max(2, min(room, (sent_tokens - fixed) // 2))


def answer_target(budget: Budget, most_tokens: int) -> int | None:
    """The target of a fold that makes room for `max_tokens`: the upstream takes prompts of `most_tokens`.

    Messages keep half of R (rule 40); None where that is still too long, so that no fold helps.
    """
    target = budget.fixed_tokens + _share(_ANSWER_SHARE, budget.room_tokens)
    return target if target <= most_tokens else None


def block_tokens_for(budget: Budget, tokens: int) -> int:
    """Tokens that a block may take which replaces `tokens` folded ones.

    Three summaries' length (A12), but at most 72 % of the room for messages and 60 % of what it replaces.
    """
    room = max(1, budget.target_tokens - budget.fixed_tokens)
    most = max(budget.summary_tokens, _share(_BLOCK_SHARE, room))
    wanted = min(_BLOCK_FACTOR * budget.summary_tokens, most)
    return max(1, min(wanted, max(_share(_REPLACED_SHARE, tokens), LEAST_SUMMARY_TOKENS)))


def memory_room(budget: Budget, policy: Policy) -> int:
    """Tokens that a session's memory block may take in a view: at most an eighth of the window."""
    return min(policy.memory_tokens, budget.window_tokens // _MEMORY_DIVISOR)
