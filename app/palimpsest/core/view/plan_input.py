"""The input of planning, measured once, and how far the tool results in it can be shortened.

User and instruction messages are never shortened, nor is anything pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from palimpsest.core.budget.budget import Budget, count_reached
from palimpsest.core.history.message import RESULT_ROLES, Conversation, Message
from palimpsest.core.policy import Policy
from palimpsest.core.text.message_text import calls_of
from palimpsest.core.view.clients import opening_of
from palimpsest.core.view.compaction import Compaction, Mask, Trigger, context_id, reference_to
from palimpsest.core.view.dialects import becomes_user_message, label_tokens
from palimpsest.core.view.json_results import is_document, level
from palimpsest.core.view.masking import shown, text_of
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.validity import Group, group_index, groups_of
from palimpsest.core.view.view import (
    CountText,
    applies,
    cut_in,
    kept_in,
    masked_tokens,
    newest_user,
    prompt_tokens,
    rendered,
)

# Expanded documents may take 30,000 tokens where other results take 10,000 (A08).
_DOCUMENT_FACTOR = 3
# A mask that leaves more than this share of the current size breaks the cached prefix and gains little.
_WORTH = 0.9
# How often a character limit is corrected towards its tokens, which are not evenly spread over a text.
_ATTEMPTS = 6
_CORRECTION = 0.95
# Characters left at least of a result where shortening replaces summaries.
_THINNED_CHARS = 720


@dataclass(frozen=True, slots=True)
class Goal:
    """The size that the prompt should have, and must not exceed; tokens of the whole prompt.

    `most` is what it may take where the newest exchanges would not stay otherwise (rule 38).
    """

    target: int
    limit: int
    trigger: Trigger
    most: int = 0


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """The characters with which results are shown (`chars`, by index), and every message's tokens then."""

    chars: Mapping[int, int]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class PlanInput:
    """One conversation under its current view, measured.

    `current` is None unless it applies. `total` counts the whole prompt as it would be sent now, `since` the
    messages folded already, `kept` those of them that stay verbatim. `pins` are indexes of messages pinned by
    hand, with the groups they belong to. `limits` are the current masks.
    """

    conversation: Conversation
    budget: Budget
    policy: Policy
    count_text: CountText
    current: Compaction | None
    pins: frozenset[int]
    view: View
    total: int
    since: int
    kept: frozenset[int]
    groups: tuple[Group, ...]
    limits: ResultLimits

    @property
    def room(self) -> int:
        """Tokens that the budget's target leaves to messages."""
        return max(1, self.budget.target_tokens - self.budget.fixed_tokens)

    @property
    def unfolded(self) -> Sequence[Message]:
        """The messages that no summary covers yet."""
        return self.conversation.messages[self.since :]

    def reason(self, trigger: Trigger) -> str:
        """See `why`."""
        return why(self.total, self.unfolded, self.budget, self.policy, trigger)

    def total_with(self, limits: ResultLimits) -> int:
        """The prompt's tokens if only the masks changed."""
        indexes = (*self.kept, *range(self.since, len(limits.sizes)))
        change: int = sum(limits.sizes[i] - self.limits.sizes[i] for i in indexes)
        return self.total + change

    def folds_more(self, cut: int, kept: frozenset[int]) -> bool:
        """True when this cut folds a message of the current view."""
        return any(index not in kept for index in (*self.kept, *range(self.since, cut)))

    def must_keep(self, with_task: bool = True) -> frozenset[int]:
        """Indexes of the messages that stay verbatim wherever the cut falls (A09).

        Instructions one by one. Pins, the newest user message and, if asked for, the original task and what
        the client set up before it (rule 34), with the groups they belong to.
        """
        anchors: set[int | None] = {*self.pins, newest_user(self.conversation)}
        if with_task:
            opening = opening_of(self.conversation)
            anchors.update(opening.setup, [opening.task] if self.policy.keep_original_task else ())
        messages = enumerate(self.conversation.messages)
        return _with_groups(self.groups, anchors).union(i for i, each in messages if each.is_instruction)

    def masks(self, limits: ResultLimits, cut: int, kept: frozenset[int]) -> tuple[Mask, ...]:
        """The masks of the messages in a view with this cut, in the messages' order."""
        chains = self.conversation.chains
        shortened = (index for index in sorted(limits.chars) if index >= cut or index in kept)
        return tuple(Mask(chains[index], limits.chars[index]) for index in shortened)

    def maskable(self, start: int = 0) -> Iterator[int]:
        """Indexes of the results in the current view, from `start` on, that are not pinned, oldest first."""
        for index, message in enumerate(self.conversation.messages):
            is_visible = index >= self.since or index in self.kept
            if index >= start and is_visible and message.role in RESULT_ROLES and index not in self.pins:
                yield index

    @cached_property
    def oversized(self) -> ResultLimits:
        """Limits for results above the tool result limit, and for documents above three times that (A08).

        Neither is shown with more than its share of R. The newest group stays whole while there is room (see
        `squeezed`), because the model is about to use it, and so do results that were requested again. A
        result that was pinned after it was masked is whole again; instructions have the label that the policy
        adds.
        """
        policy = self.policy
        by_window = int(policy.tool_result_share * self.budget.room_tokens)
        plain = max(1, min(policy.tool_result_tokens, by_window))
        document = max(1, min(_DOCUMENT_FACTOR * policy.tool_result_tokens, by_window))
        newest = self.groups[-1].start if self.groups else 0
        again = asked_again(self.conversation)
        old = (index for index in self.maskable() if index < newest and index not in again)
        large = [index for index in old if self.limits.sizes[index] > plain]
        documents = {index for index in large if self._is_document(index)}

        chars, sizes = dict(self.limits.chars), list(self.limits.sizes)
        if policy.later_system_messages != "keep" and not (self.current and self.current.tells_as_user):
            for index, message in enumerate(self.conversation.messages):
                sizes[index] += label_tokens(self.count_text) if becomes_user_message(message) else 0
        for index in self.pins & chars.keys():
            del chars[index]
            sizes[index] = self.conversation.messages[index].tokens
        limits = self._shortened(ResultLimits(chars, tuple(sizes)), documents, document)
        return self._shortened(limits, [index for index in large if index not in documents], plain)

    def older(self, limits: ResultLimits, target: int) -> ResultLimits:
        """Limits for old results: cut to a common length, the longest first, as far as the target requires.

        None is cut to fewer characters than the policy's least. Not cut are the newest results, up to their
        share of the target and at least the newest group, and results that the agent requested again.
        """
        least = self.policy.old_result_chars or (_THINNED_CHARS if self.policy.only_thins else 0)
        if not least:
            return limits
        old, recent, taken = list(self.maskable()), int(self.policy.recent_result_share * self.room), 0
        while old and (old[-1] >= self.groups[-1].start or taken + limits.sizes[old[-1]] <= recent):
            taken += limits.sizes[old.pop()]
        again = asked_again(self.conversation)
        old = [index for index in old if index not in again]
        sizes = [limits.sizes[index] for index in old]
        room = target - (self.total_with(limits) - sum(sizes))
        return self._shortened(limits, old, max(1, level(sizes, max(0, room))), least)

    def squeezed(self, start: int, room: int, floor: int) -> ResultLimits:
        """Limits for results from `start` on: cut alike until they take `room` tokens together (F33).

        None is shown with less than `floor` tokens, so the room may still be exceeded.
        """
        limits, indexes = self.oversized, list(self.maskable(start))
        most = max(floor, level([limits.sizes[index] for index in indexes], room))
        return self._shortened(limits, indexes, most)

    def _shortened(
        self, limits: ResultLimits, indexes: Iterable[int], most: int, least_chars: int = 0
    ) -> ResultLimits:
        """The given results, where they take more than `most` tokens, are shown with at most that many.

        They keep at least `least_chars` characters; at that length only where it gains enough to break the
        prefix.
        """
        chars, sizes = dict(limits.chars), list(limits.sizes)
        for index in indexes:
            if (worth := sizes[index]) <= most:
                continue
            limit, tokens = self._limit_for(index, most)
            if limit < least_chars:
                limit, tokens = least_chars, self._tokens_at(index, least_chars)
                worth = int(_WORTH * worth)
            if tokens < worth:
                chars[index], sizes[index] = limit, tokens
        return ResultLimits(chars, tuple(sizes))

    def _limit_for(self, index: int, most: int) -> tuple[int, int]:
        """The characters with which the message takes at most `most` tokens, and its tokens then."""
        message = self.conversation.messages[index]
        limit = int(len(text_of(message.fields)) * min(1.0, most / message.tokens))
        tokens = self._tokens_at(index, limit)
        for _ in range(_ATTEMPTS):
            if tokens <= most or not limit:
                break
            limit = int(limit * most / tokens * _CORRECTION)
            tokens = self._tokens_at(index, limit)
        return limit, tokens

    def _tokens_at(self, index: int, limit: int) -> int:
        message = self.conversation.messages[index]
        reference = reference_to(self.budget.reads_by, context_id(self.conversation.chains[index]))
        return masked_tokens(message, shown(text_of(message.fields), limit, reference), self.count_text)

    def _is_document(self, index: int) -> bool:
        """True when the result is a document, by its call or its text."""
        messages = self.conversation.messages
        group = self.groups[group_index(self.groups, index)]
        made = (call for message in messages[group.start : index] for call in calls_of(message))
        call = next((call for call in made if call.id == messages[index].answers), None)
        return call is not None and is_document(call, text_of(messages[index].fields))


def plan_input_of(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> PlanInput:
    """The conversation measured under `current`, which counts as None where it does not apply.

    `pins` are chain digests.
    """
    groups = groups_of(conversation.messages)
    if current is not None and not applies(current, conversation, groups):
        current = None
    view = rendered(conversation, current, count_text)
    sizes = [message.tokens for message in conversation.messages]
    for part in view.parts:
        if part.index is not None:
            sizes[part.index] = part.tokens
    masked = (
        {conversation.position(mask.chain): mask.limit_chars for mask in current.masks} if current else {}
    )
    return PlanInput(
        conversation=conversation,
        budget=budget,
        policy=policy,
        count_text=count_text,
        current=current,
        pins=_with_groups(groups, map(conversation.position, pins)),
        view=view,
        total=prompt_tokens(view, budget),
        since=cut_in(current, conversation),
        kept=frozenset(kept_in(current, conversation)),
        groups=groups,
        limits=ResultLimits({i: chars for i, chars in masked.items() if i is not None}, tuple(sizes)),
    )


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


def why(total: int, unfolded: Sequence[Message], budget: Budget, policy: Policy, trigger: Trigger) -> str:
    """Why a compaction is made, for people: the figures that decided, in the model's own count (E11).

    For example "115,340 tokens of 128,000 (0.90 asked)", or "24 messages (24 asked)" (A14). `total` is the
    whole prompt in our count; no summary covers the messages `unfolded`.
    """
    size = f"{budget.for_model(total):,} tokens of {budget.window.tokens:,}"
    if trigger == "manual":
        return f"asked for by hand at {size}"
    if trigger == "overflow":
        return f"the upstream refused {size}"
    if total < budget.trigger_tokens and (counted := count_reached(unfolded, policy)) is not None:
        return counted
    return f"{size} ({budget.asked})"


def _with_groups(groups: Sequence[Group], places: Iterable[int | None]) -> frozenset[int]:
    """The indexes of these messages (None: not on this path) and of all others in their groups."""
    around = (groups[group_index(groups, place)] for place in places if place is not None)
    return frozenset(index for group in around for index in range(group.start, group.stop))
