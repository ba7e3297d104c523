"""Where to cut: how much of the history is folded so that the view comes down to a target.

Knows nothing of triggers; it is asked when something must be folded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.core.budget.block import block_tokens_for
from app.core.view.planning.retention import active_groups
from app.core.view.planning.situation import Limits, Situation, must_keep

# A tail that starts at a user message may be so much shorter than the longest possible one.
_USER_START_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Draft:
    """A possible fold: messages before `cut` but for `kept`; `total` is the prompt then, all included.

    That is fixed part, kept messages, summary, memory block and tail.
    """

    cut: int
    kept: frozenset[int]
    summary_tokens: int
    tail_tokens: int
    total: int
    limits: Limits


def fold_to(situation: Situation, limits: Limits, target: int) -> Draft | None:
    """The fold that leaves the longest tail within `target` tokens, active paths retained.

    When none comes down to it, the one that comes lowest. None when there is nothing to fold. The
    tail starts at a user message where that costs no more than half of it.
    """
    room = int(situation.policy.active_path_share * situation.room)
    must = must_keep(situation, with_task=True)
    draft = _best(situation, limits, must, target - room)
    if draft is None or not room or draft.total > target - room:
        return _best(situation, limits, must, target)
    conversation = situation.conversation
    retained = active_groups(conversation.messages, situation.groups, limits.sizes, draft.cut, room)
    if not set(retained) - draft.kept:
        return _best(situation, limits, must, target)
    return next(drafts(situation, limits, must | set(retained), draft.cut))


def counted(situation: Situation, limits: Limits) -> Draft | None:
    """The fold that leaves the tail a policy asks for by number of messages or share of the window.

    By number: the shortest legal tail of at least so many messages. By share: the longest within it.
    None where the policy counts neither, or nothing further would be folded.
    """
    policy, messages = situation.policy, situation.conversation.messages
    if not policy.tail_messages and not policy.tail_ratio:
        return None
    chosen: Draft | None = None
    for draft in drafts(situation, limits, must_keep(situation, with_task=True)):
        # Behind a summary told as system a user's message must follow.
        at_user = policy.tail_starts_at_user or policy.summary_role == "system"
        if at_user and messages[draft.cut].role != "user":
            continue
        if policy.tail_messages and len(messages) - draft.cut < policy.tail_messages:
            break
        if not policy.tail_messages:
            most = policy.tail_ratio * situation.budget.window_tokens
            if draft.tail_tokens <= most:
                return draft
        chosen = draft
    return chosen


def drafts(
    situation: Situation, limits: Limits, must: frozenset[int], start: int | None = None
) -> Iterator[Draft]:
    """A draft for every legal cut beyond what is folded, or from `start` on; longest tail first."""
    first = situation.since + 1 if start is None else max(1, start)
    sizes = limits.sizes
    beside = situation.budget.fixed_tokens + situation.budget.memory_tokens
    whole = tail = sum(sizes)
    kept_tokens = 0
    kept: frozenset[int] = frozenset()
    passed: list[int] = []
    for group in situation.groups:
        if group.start >= first:
            summary = block_tokens_for(situation.budget, whole - tail - kept_tokens)
            total = beside + kept_tokens + summary + tail
            if len(kept) < len(passed):
                kept = frozenset(passed)
            yield Draft(group.start, kept, summary, tail, total, limits)
        for index in range(group.start, group.stop):
            tail -= sizes[index]
            if index in must:
                passed.append(index)
                kept_tokens += sizes[index]


def _best(situation: Situation, limits: Limits, must: frozenset[int], target: int) -> Draft | None:
    lowest: Draft | None = None
    chosen: Draft | None = None
    for draft in drafts(situation, limits, must):
        if draft.total > target:
            lowest = draft if lowest is None or draft.total <= lowest.total else lowest
            continue
        if chosen is None:
            chosen = draft
        if draft.tail_tokens < _USER_START_SHARE * chosen.tail_tokens:
            break
        if situation.conversation.messages[draft.cut].role == "user":
            return draft
    return chosen or lowest
