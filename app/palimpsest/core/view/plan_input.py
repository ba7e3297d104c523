"""The input of planning, measured once: the current view, the groups, the size of each message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palimpsest.core.budget.budget import Budget, Due, due
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.policy import Policy
from palimpsest.core.view.clients import opening_of
from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.core.view.dialects import becomes_user_message
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.validity import Group, group_index, groups_of
from palimpsest.core.view.view import (
    CountText,
    applies,
    cut_in,
    kept_in,
    newest_user,
    prompt_tokens,
    rendered,
)


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """The characters with which results are shown (`chars`, by index), and every message's tokens then."""

    chars: Mapping[int, int]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
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
    def to_label(self) -> tuple[int, ...]:
        """Instructions that a new view shows as user messages, and the current one does not."""
        if self.policy.later_system_messages == "keep" or (self.current and self.current.tells_as_user):
            return ()
        messages = enumerate(self.conversation.messages)
        return tuple(index for index, message in messages if becomes_user_message(message))

    @property
    def room(self) -> int:
        """Tokens that the budget's target leaves to messages."""
        return max(1, self.budget.target_tokens - self.budget.fixed_tokens)

    @property
    def min_gain(self) -> int:
        """Tokens that a compaction must free to be worth a broken prefix (F12)."""
        return self.budget.gain_tokens

    @property
    def unfolded(self) -> Sequence[Message]:
        """The messages that no summary covers yet."""
        return self.conversation.messages[self.since :]

    @property
    def due(self) -> Due:
        """When the prompt is compacted."""
        return due(self.total, self.unfolded, self.budget, self.policy)

    def is_visible(self, index: int) -> bool:
        """True when the message is in the current view."""
        return index >= self.since or index in self.kept

    def total_with(self, limits: ResultLimits) -> int:
        """The prompt's tokens if only the masks changed."""
        indexes = (*self.kept, *range(self.since, len(limits.sizes)))
        change: int = sum(limits.sizes[i] - self.limits.sizes[i] for i in indexes)
        return self.total + change


def plan_input_of(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> PlanInput:
    """The conversation measured under `current`, which counts as None where it does not apply."""
    groups = groups_of(conversation.messages)
    if current is not None and not applies(current, conversation, groups):
        current = None
    view = rendered(conversation, current, count_text)
    sizes = [message.tokens for message in conversation.messages]
    for part in view.parts:
        if part.index is not None:
            sizes[part.index] = part.tokens
    return PlanInput(
        conversation=conversation,
        budget=budget,
        policy=policy,
        count_text=count_text,
        current=current,
        pins=_pinned(conversation, groups, pins),
        view=view,
        total=prompt_tokens(view, budget),
        since=cut_in(current, conversation),
        kept=frozenset(kept_in(current, conversation)),
        groups=groups,
        limits=ResultLimits(_limits_in(current, conversation), tuple(sizes)),
    )


def must_keep(situation: PlanInput, with_task: bool) -> frozenset[int]:
    """Indexes of the messages that stay verbatim wherever the cut falls (A09).

    Instructions one by one. Pins, the newest user message and, if asked for, the original task and what the
    client set up before it (rule 34), with the groups they belong to.
    """
    conversation, groups = situation.conversation, situation.groups
    anchors = set(situation.pins)
    if (newest := newest_user(conversation)) is not None:
        anchors.add(newest)
    opening = opening_of(conversation)
    if with_task:
        anchors.update(opening.setup)
    if with_task and situation.policy.keep_original_task and opening.task is not None:
        anchors.add(opening.task)
    kept = {index for index, message in enumerate(conversation.messages) if message.is_instruction}
    for anchor in anchors:
        group = groups[group_index(groups, anchor)]
        kept.update(range(group.start, group.stop))
    return frozenset(kept)


def masks_of(situation: PlanInput, limits: ResultLimits, cut: int, kept: frozenset[int]) -> tuple[Mask, ...]:
    """The masks of the messages in a view with this cut, in the messages' order."""
    chains = situation.conversation.chains
    return tuple(
        Mask(chains[index], limits.chars[index])
        for index in sorted(limits.chars)
        if index >= cut or index in kept
    )


def _pinned(conversation: Conversation, groups: tuple[Group, ...], pins: frozenset[bytes]) -> frozenset[int]:
    pinned: set[int] = set()
    for pin in pins:
        place = conversation.position(pin)
        if place is not None:
            group = groups[group_index(groups, place)]
            pinned.update(range(group.start, group.stop))
    return frozenset(pinned)


def _limits_in(current: Compaction | None, conversation: Conversation) -> dict[int, int]:
    if current is None:
        return {}
    places = ((conversation.position(mask.chain), mask.limit_chars) for mask in current.masks)
    return {place: chars for place, chars in places if place is not None}
