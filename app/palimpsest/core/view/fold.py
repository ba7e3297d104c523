"""Where to cut: how much of the history is folded, and what of it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.budget.budget import block_tokens_for
from palimpsest.core.history.message import Message
from palimpsest.core.view.plan_input import PlanInput, ResultLimits, must_keep
from palimpsest.core.view.validity import Group

# The newest messages, whose paths count as in use.
_RECENT_MESSAGES = 4
# Characters read of a long message.
_READ_CHARS = 20_000
_MOST_PATHS = 20
_PATH = re.compile(
    r"(?<![\w/.:@-])(?:(?:\.{1,2}|~)?/)?(?:[\w.-]+/)+[\w-]+(?:\.\w{1,8})?(?![\w/])"
    r"|(?<![\w/.:@-])[\w-]+\.(?:py|js|ts|tsx|go|rs|c|h|cpp|java|rb|md|json|ya?ml|toml|txt|cfg|ini|sh|csv|html|sql)\b"
)


def active_paths(messages: Sequence[Message]) -> tuple[str, ...]:
    """Paths and file names in the last four messages, newest message first, at most 20."""
    found: dict[str, None] = {}
    for message in reversed(messages[-_RECENT_MESSAGES:]):
        if message.is_instruction:
            continue
        for match in _PATH.finditer(_text(message)[:_READ_CHARS]):
            if any(letter.isalpha() for letter in match[0]):
                found.setdefault(match[0])
    return tuple(found)[:_MOST_PATHS]


def active_groups(
    messages: Sequence[Message], groups: Sequence[Group], sizes: Sequence[int], cut: int, room: int
) -> tuple[int, ...]:
    """Indexes before `cut` to keep because their group names an active path; at most `room` tokens.

    Newest groups first; a group that does not fit is skipped (A10), as are those of the last four messages
    themselves.
    """
    paths = active_paths(messages)
    stop = min(cut, max(0, len(messages) - _RECENT_MESSAGES))
    kept: list[int] = []
    for group in reversed(groups):
        indexes = range(group.start, group.stop)
        size = sum(sizes[index] for index in indexes)
        if not paths or group.stop > stop or size > room:
            continue
        if any(path in _text(messages[index]) for index in indexes for path in paths):
            kept.extend(indexes)
            room -= size
    return tuple(sorted(kept))


def _text(message: Message) -> str:
    return message.raw.decode("utf-8", "replace")


# A tail that starts at a user message has at least this share of the longest possible one.
_USER_START_SHARE = 0.5


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


def fold_to(situation: PlanInput, limits: ResultLimits, target: int) -> FoldDraft | None:
    """The fold that leaves the longest tail within `target` tokens, with messages on active paths kept.

    When no fold reaches the target, the smallest one. None when there is nothing to fold. The tail starts at
    a user message where that costs no more than half of it.
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


def counted(situation: PlanInput, limits: ResultLimits) -> FoldDraft | None:
    """The fold that leaves the tail which a policy defines by number of messages or share of the window.

    By number: the shortest legal tail of at least that many messages. By share: the longest within it. None
    where the policy defines neither, or nothing further would be folded.
    """
    policy, messages = situation.policy, situation.conversation.messages
    if not policy.tail_messages and not policy.tail_ratio:
        return None
    chosen: FoldDraft | None = None
    for draft in drafts(situation, limits, must_keep(situation, with_task=True)):
        # A user message must follow a summary in the system role.
        at_user = policy.tail_starts_at_user or policy.summary_role == "system"
        if at_user and messages[draft.cut].role != "user":
            continue
        if policy.tail_messages and len(messages) - draft.cut < policy.tail_messages:
            break
        if not policy.tail_messages:
            most = policy.tail_ratio * situation.budget.room_tokens
            if draft.tail_tokens <= most:
                return draft
        chosen = draft
    return chosen


def drafts(
    situation: PlanInput, limits: ResultLimits, must: frozenset[int], start: int | None = None
) -> Iterator[FoldDraft]:
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
            yield FoldDraft(group.start, kept, summary, tail, total, limits)
        for index in range(group.start, group.stop):
            tail -= sizes[index]
            if index in must:
                passed.append(index)
                kept_tokens += sizes[index]


def _best(situation: PlanInput, limits: ResultLimits, must: frozenset[int], target: int) -> FoldDraft | None:
    lowest: FoldDraft | None = None
    chosen: FoldDraft | None = None
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


# Exchanges that are kept, if possible, before the newest question.
_EXCHANGES = 2


def with_newest(
    situation: PlanInput, draft: FoldDraft, *, target: int, most: int, records: int = 2
) -> FoldDraft:
    """The draft with the newest exchanges in its tail, where the prompt then takes at most `most` tokens.

    To reach `target`, the summary shrinks to at least `records` summary budgets. An exchange without room
    beside it is folded.
    """
    least = records * situation.budget.summary_tokens
    for cut in _starts(situation):
        if cut < draft.cut and (kept := _cut_at(situation, draft, cut, target, least)).total <= most:
            return kept
    return draft


def _starts(situation: PlanInput) -> list[int]:
    """Where the newest exchanges begin that are not folded yet, earliest first."""
    messages = enumerate(situation.conversation.messages)
    asked = [index for index, message in messages if message.role == "user"]
    # The last one is the newest question, which stays in any case.
    wanted = [asked[-1 - before] for before in range(_EXCHANGES, 0, -1) if before < len(asked)]
    cuts = {group.start for group in situation.groups}
    return [start for start in wanted if start > situation.since and start in cuts]


def _cut_at(situation: PlanInput, draft: FoldDraft, cut: int, target: int, least: int) -> FoldDraft:
    sizes = draft.limits.sizes
    # Kept with the draft that chose it: messages that are kept only for their path.
    kept = frozenset(index for index in must_keep(situation, with_task=True) | draft.kept if index < cut)
    tail = sum(sizes[cut:])
    rest = draft.total - draft.summary_tokens - draft.tail_tokens
    rest += sum(sizes[i] for i in kept) - sum(sizes[i] for i in draft.kept)
    # Room for the model's record, and for what code extracts.
    summary = min(draft.summary_tokens, max(least, target - rest - tail))
    return replace(
        draft, cut=cut, kept=kept, summary_tokens=summary, tail_tokens=tail, total=rest + summary + tail
    )
