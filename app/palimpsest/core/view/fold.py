"""Where to cut: how much of the history is folded, and what of it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from palimpsest.core.budget.budget import block_tokens_for
from palimpsest.core.history.message import Message
from palimpsest.core.view.plan_input import Goal, PlanInput, ResultLimits

# The newest messages, whose paths count as in use.
_RECENT_MESSAGES = 4
# Characters read of a long message.
_READ_CHARS = 20_000
_MOST_PATHS = 20
_PATH = re.compile(
    r"(?<![\w/.:@-])(?:(?:\.{1,2}|~)?/)?(?:[\w.-]+/)+[\w-]+(?:\.\w{1,8})?(?![\w/])"
    r"|(?<![\w/.:@-])[\w-]+\.(?:py|js|ts|tsx|go|rs|c|h|cpp|java|rb|md|json|ya?ml|toml|txt|cfg|ini|sh|csv|html|sql)\b"
)
# A tail that starts at a user message has at least this share of the longest possible one.
_USER_START_SHARE = 0.5
# Exchanges that are kept, if possible, before the newest question.
_EXCHANGES = 2


@dataclass(frozen=True, slots=True)
class FoldDraft:
    """A possible fold of the messages before `cut` except `kept`.

    `total` is the whole prompt then: fixed part, kept messages, summary, memory block and tail.
    """

    cut: int
    kept: frozenset[int]
    summary_tokens: int
    tail_tokens: int
    total: int
    limits: ResultLimits


def fold_to(situation: PlanInput, target: int) -> FoldDraft | None:
    """The fold that leaves the longest tail within `target` tokens, with messages on active paths kept.

    When no fold reaches the target, the smallest one. None when there is nothing to fold. The tail starts at
    a user message where that costs no more than half of it.
    """
    room = int(situation.policy.active_path_share * situation.room)
    must = situation.must_keep()
    draft = _best(situation, must, target - room) if room else None
    if draft is not None and draft.total <= target - room:
        retained = _on_active_paths(situation, draft.cut, room)
        if retained - draft.kept:
            return next(drafts(situation, must | retained, draft.cut))
    return _best(situation, must, target)


def counted(situation: PlanInput) -> FoldDraft | None:
    """The fold that leaves the tail which a policy defines by number of messages or share of the window.

    By number: the shortest legal tail of at least that many messages. By share: the longest within it. None
    where the policy defines neither, or nothing further would be folded.
    """
    policy, messages = situation.policy, situation.conversation.messages
    if not policy.tail_messages and not policy.tail_ratio:
        return None
    # A user message must follow a summary in the system role.
    at_user = policy.tail_starts_at_user or policy.summary_role == "system"
    most = policy.tail_ratio * situation.budget.room_tokens
    chosen: FoldDraft | None = None
    for draft in drafts(situation, situation.must_keep()):
        if at_user and messages[draft.cut].role != "user":
            continue
        if policy.tail_messages and len(messages) - draft.cut < policy.tail_messages:
            break
        if not policy.tail_messages and draft.tail_tokens <= most:
            return draft
        chosen = draft
    return chosen


def drafts(situation: PlanInput, must: frozenset[int], start: int | None = None) -> Iterator[FoldDraft]:
    """A draft for every legal cut beyond what is folded, or from `start` on; longest tail first."""
    first = situation.since + 1 if start is None else max(1, start)
    limits, budget = situation.oversized, situation.budget
    whole = tail = sum(limits.sizes)
    kept_tokens = 0
    kept: frozenset[int] = frozenset()
    passed: list[int] = []
    for group in situation.groups:
        if group.start >= first:
            summary = block_tokens_for(budget, whole - tail - kept_tokens)
            total = budget.fixed_tokens + budget.memory_tokens + kept_tokens + summary + tail
            if len(kept) < len(passed):
                kept = frozenset(passed)
            yield FoldDraft(group.start, kept, summary, tail, total, limits)
        for index in range(group.start, group.stop):
            tail -= limits.sizes[index]
            if index in must:
                passed.append(index)
                kept_tokens += limits.sizes[index]


def with_newest(situation: PlanInput, draft: FoldDraft, goal: Goal) -> FoldDraft:
    """The draft with the newest exchanges in its tail, where the prompt then takes at most `goal.most`.

    To reach the target, the summary shrinks to at least two summary budgets (the model's record, and what
    code extracts), after an overflow of a window that is a guess to one. An exchange without room beside it
    is folded.
    """
    sizes, summary_tokens = draft.limits.sizes, situation.budget.summary_tokens
    is_guess = goal.trigger == "overflow" and not situation.budget.window.is_known
    least = summary_tokens if is_guess else 2 * summary_tokens
    starts = {group.start for group in situation.groups}
    asked = [i for i, message in enumerate(situation.conversation.messages) if message.role == "user"]
    # Kept with the draft that chose it: messages that are kept only for their path.
    must = situation.must_keep() | draft.kept
    # The last one is the newest question, which stays in any case.
    for cut in asked[-1 - _EXCHANGES : -1]:
        if not situation.since < cut < draft.cut or cut not in starts:
            continue
        kept = frozenset(index for index in must if index < cut)
        tail = sum(sizes[cut:])
        rest = draft.total - draft.summary_tokens - draft.tail_tokens
        rest += sum(sizes[i] for i in kept) - sum(sizes[i] for i in draft.kept)
        summary = min(draft.summary_tokens, max(least, goal.target - rest - tail))
        total = rest + summary + tail
        if total <= goal.most:
            return replace(draft, cut=cut, kept=kept, summary_tokens=summary, tail_tokens=tail, total=total)
    return draft


def _on_active_paths(situation: PlanInput, cut: int, room: int) -> frozenset[int]:
    """Indexes before `cut` to keep because their group names an active path; at most `room` tokens.

    Active are the first 20 paths and file names in the last four messages, newest message first. Newest
    groups first; a group that does not fit is skipped (A10), as are those of the last four messages.
    """
    messages = situation.conversation.messages
    found: dict[str, None] = {}
    for message in reversed(messages[-_RECENT_MESSAGES:]):
        if not message.is_instruction:
            matches = _PATH.finditer(_text(message)[:_READ_CHARS])
            found |= dict.fromkeys(match[0] for match in matches if any(map(str.isalpha, match[0])))
    paths = tuple(found)[:_MOST_PATHS]
    stop = min(cut, len(messages) - _RECENT_MESSAGES)
    kept: set[int] = set()
    for group in reversed(situation.groups):
        indexes = range(group.start, group.stop)
        size = sum(situation.oversized.sizes[index] for index in indexes)
        if group.stop > stop or size > room:
            continue
        if any(path in _text(messages[index]) for index in indexes for path in paths):
            kept.update(indexes)
            room -= size
    return frozenset(kept)


def _text(message: Message) -> str:
    return message.raw.decode("utf-8", "replace")


def _best(situation: PlanInput, must: frozenset[int], target: int) -> FoldDraft | None:
    lowest: FoldDraft | None = None
    chosen: FoldDraft | None = None
    for draft in drafts(situation, must):
        if draft.total > target:
            lowest = draft if lowest is None or draft.total <= lowest.total else lowest
            continue
        chosen = chosen or draft
        if draft.tail_tokens < _USER_START_SHARE * chosen.tail_tokens:
            break
        if situation.conversation.messages[draft.cut].role == "user":
            return draft
    return chosen or lowest
