"""How far tool results are shortened: oversized ones, old ones, and those that must make room.

User and instruction messages are never shortened, nor is anything pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from palimpsest.core.history.message import RESULT_ROLES, Conversation
from palimpsest.core.text.message_text import calls_of
from palimpsest.core.view.compaction import context_id, reference_to
from palimpsest.core.view.dialects import label_tokens
from palimpsest.core.view.json_results import is_document
from palimpsest.core.view.masking import shown, text_of
from palimpsest.core.view.plan_input import PlanInput, ResultLimits
from palimpsest.core.view.validity import group_index
from palimpsest.core.view.view import masked_tokens

# Expanded documents may take 30,000 tokens where other results take 10,000 (A08).
_DOCUMENT_FACTOR = 3
# A mask that leaves more than this share of the current size breaks the cached prefix and gains little.
_WORTH = 0.9
# How often a character limit is corrected towards its tokens, which are not evenly spread over a text.
_ATTEMPTS = 6
_CORRECTION = 0.95
# Characters left at least of a result where shortening replaces summaries.
_THINNED_CHARS = 720


def oversized(situation: PlanInput) -> ResultLimits:
    """Limits for results above the tool result limit, and for documents above three times that limit (A08).

    Neither is shown with more than its share of R. The newest group stays whole while there is room
    (see `squeezed`), because the model is about to use it, and so do results that were requested again. A
    result that was pinned after it was masked is whole again.
    """
    policy = situation.policy
    by_window = int(policy.tool_result_share * situation.budget.room_tokens)
    plain = max(1, min(policy.tool_result_tokens, by_window))
    document = max(1, min(_DOCUMENT_FACTOR * policy.tool_result_tokens, by_window))
    newest = situation.groups[-1].start if situation.groups else 0
    again = asked_again(situation.conversation)
    old = (index for index in maskable(situation) if index < newest and index not in again)
    large = [index for index in old if situation.limits.sizes[index] > plain]
    documents = {index for index in large if _is_document(situation, index)}
    limits = shortened(situation, _anew(situation), documents, document)
    return shortened(situation, limits, [index for index in large if index not in documents], plain)


def older(situation: PlanInput, limits: ResultLimits, target: int) -> ResultLimits:
    """Limits for old results: cut to a common length, the longest first, as far as the target requires.

    None is cut to fewer characters than the policy's least. Not cut are the newest results, up to their share
    of the target and at least the newest group, and results that the agent requested again.
    """
    policy = situation.policy
    least = policy.old_result_chars or (_THINNED_CHARS if policy.only_thins else 0)
    if not least:
        return limits
    old = _old(situation, limits)
    sizes = [limits.sizes[index] for index in old]
    room = target - (situation.total_with(limits) - sum(sizes))
    most = max(1, _level(sorted(sizes), max(0, room)))
    return shortened(situation, limits, old, most, least)


def squeezed(situation: PlanInput, limits: ResultLimits, start: int, room: int, floor: int) -> ResultLimits:
    """Limits for results from `start` on: cut alike until they take `room` tokens together (F33).

    None is shown with less than `floor` tokens, so the room may still be exceeded.
    """
    indexes = [index for index in maskable(situation) if index >= start]
    sizes = sorted(limits.sizes[index] for index in indexes)
    most = max(floor, _level(sizes, room))
    return shortened(situation, limits, indexes, most)


def shortened(
    situation: PlanInput, limits: ResultLimits, indexes: Iterable[int], most: int, least_chars: int = 0
) -> ResultLimits:
    """The given results, where they take more than `most` tokens, are shown with at most that many.

    They keep at least `least_chars` characters; at that length only where it gains enough to break the
    prefix.
    """
    chars, sizes = dict(limits.chars), list(limits.sizes)
    for index in indexes:
        if sizes[index] <= most:
            continue
        limit, tokens = _limit_for(situation, index, most)
        worth = sizes[index]
        if limit < least_chars:
            limit, tokens = least_chars, _tokens_at(situation, index, least_chars)
            worth = int(_WORTH * worth)
        if tokens < worth:
            chars[index], sizes[index] = limit, tokens
    return ResultLimits(chars, tuple(sizes))


def maskable(situation: PlanInput) -> Iterator[int]:
    """Indexes of the results in the current view that are not pinned, oldest first."""
    for index, message in enumerate(situation.conversation.messages):
        if message.role in RESULT_ROLES and index not in situation.pins and situation.is_visible(index):
            yield index


def asked_again(conversation: Conversation) -> frozenset[int]:
    """The newest result of every call that was made more than once with the same arguments.

    The agent needed it again and would repeat the call if it were cut.
    """
    newest: dict[tuple[str, str], int] = {}
    again: set[tuple[str, str]] = set()
    calls: dict[str, tuple[str, str]] = {}
    for index, message in enumerate(conversation.messages):
        for call in calls_of(message):
            calls[call.id] = (call.name, call.arguments.strip())
        if message.answers is None or (asked := calls.pop(message.answers, None)) is None:
            continue
        if asked in newest:
            again.add(asked)
        newest[asked] = index
    return frozenset(newest[asked] for asked in again)


def _anew(situation: PlanInput) -> ResultLimits:
    """The limits of a new view: none for pins; instructions with the label that the policy adds."""
    chars, sizes = dict(situation.limits.chars), list(situation.limits.sizes)
    for index in situation.to_label:
        sizes[index] += label_tokens(situation.count_text)
    for index in situation.pins & chars.keys():
        del chars[index]
        sizes[index] = situation.conversation.messages[index].tokens
    return ResultLimits(chars, tuple(sizes))


def _is_document(situation: PlanInput, index: int) -> bool:
    """True when the result is a document, by its call or its text."""
    messages = situation.conversation.messages
    group = situation.groups[group_index(situation.groups, index)]
    for message in messages[group.start : index]:
        calls = message.fields.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and call.get("id") == messages[index].answers:
                return is_document(call, text_of(messages[index].fields))
    return False


def _old(situation: PlanInput, limits: ResultLimits) -> list[int]:
    """Results before the newest ones, oldest first, without those that were requested again."""
    again = asked_again(situation.conversation)
    indexes = list(maskable(situation))
    recent = int(situation.policy.recent_result_share * situation.room)
    newest_group = situation.groups[-1].start
    taken = 0
    while indexes and (indexes[-1] >= newest_group or taken + limits.sizes[indexes[-1]] <= recent):
        taken += limits.sizes[indexes.pop()]
    return [index for index in indexes if index not in again]


def _level(sizes: list[int], room: int) -> int:
    """The largest size such that the sizes (ascending), each cut to it, sum to at most `room`."""
    left = room
    for place, size in enumerate(sizes):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return sizes[-1] if sizes else 0


def _limit_for(situation: PlanInput, index: int, most: int) -> tuple[int, int]:
    """The characters with which the message takes at most `most` tokens, and its tokens then."""
    message = situation.conversation.messages[index]
    length = len(text_of(message.fields))
    limit = int(length * min(1.0, most / message.tokens))
    tokens = _tokens_at(situation, index, limit)
    for _ in range(_ATTEMPTS):
        if tokens <= most or not limit:
            break
        limit = int(limit * most / tokens * _CORRECTION)
        tokens = _tokens_at(situation, index, limit)
    return limit, tokens


def _tokens_at(situation: PlanInput, index: int, limit: int) -> int:
    message = situation.conversation.messages[index]
    name = context_id(situation.conversation.chains[index])
    reference = reference_to(situation.budget.reads_by, name)
    text = shown(text_of(message.fields), limit, reference)
    return masked_tokens(message, text, situation.count_text)
