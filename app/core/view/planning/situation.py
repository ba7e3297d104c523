"""Everything planning looks at, measured once: the current view, the groups, the size of each message.

Knows nothing of what is decided from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.budget.budget import Budget
from app.core.history.conversation import Conversation
from app.core.view.compaction import Compaction, Mask
from app.core.view.cuts import Group, group_index, groups_of
from app.core.view.dialects.instructions import is_told_as_user
from app.core.view.harness import opening_of
from app.core.view.outcomes import View
from app.core.view.policy import Policy
from app.core.view.view import (
    CountText,
    applies,
    cut_in,
    kept_in,
    newest_user,
    prompt_tokens,
    rendered,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Which results are shown with how many characters (`chars`, by index), and every message's tokens so."""

    chars: Mapping[int, int]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """One conversation under its current view, measured.

    `current` is None unless it applies. `total` counts the whole prompt as it would go out now,
    `since` the messages folded already, `kept` those of them that stay verbatim, `pins` indexes of
    messages pinned by hand, with the groups they belong to. `limits` are the current masks.
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
    limits: Limits

    @property
    def to_label(self) -> tuple[int, ...]:
        """Instructions that a view made now tells as a user's, and the current one does not."""
        if self.policy.later_system_messages == "keep" or (self.current and self.current.tells_as_user):
            return ()
        messages = enumerate(self.conversation.messages)
        return tuple(index for index, message in messages if is_told_as_user(message))

    @property
    def room(self) -> int:
        """Tokens the budget's target leaves to messages."""
        return max(1, self.budget.target_tokens - self.budget.fixed_tokens)

    @property
    def min_gain(self) -> int:
        """Tokens a compaction must free to be worth a broken prefix (F12)."""
        return self.budget.gain_tokens

    @property
    def unfolded(self) -> int:
        """How many messages no summary stands for yet."""
        return len(self.conversation.messages) - self.since

    @property
    def is_due(self) -> bool:
        """True at a mark of the policy: of tokens (A02), or of messages (A14); not before the least (D13)."""
        policy = self.policy
        if self.unfolded < policy.least_messages and self.total < self.budget.ceiling_tokens:
            return False
        is_long = 0 < policy.trigger_messages <= self.unfolded
        return is_long or self.total >= self.budget.trigger_tokens

    def is_visible(self, index: int) -> bool:
        """True when the message stands in the current view."""
        return index >= self.since or index in self.kept

    def total_with(self, limits: Limits) -> int:
        """The prompt's tokens if only the masks changed."""
        indexes = (*self.kept, *range(self.since, len(limits.sizes)))
        change: int = sum(limits.sizes[i] - self.limits.sizes[i] for i in indexes)
        return self.total + change


def situation_of(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> Situation:
    """The conversation measured under `current`, which counts as None where it does not apply."""
    groups = groups_of(conversation.messages)
    if current is not None and not applies(current, conversation, groups):
        current = None
    view = rendered(conversation, current, count_text)
    sizes = [message.tokens for message in conversation.messages]
    for part in view.parts:
        if part.index is not None:
            sizes[part.index] = part.tokens
    return Situation(
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
        limits=Limits(_limits_in(current, conversation), tuple(sizes)),
    )


def must_keep(situation: Situation, with_task: bool) -> frozenset[int]:
    """Messages that stay verbatim wherever the cut falls, by index (A09).

    Instructions one by one; pins, the newest user message and, if asked for, the original task and what
    the client set up before it (rule 34), with the groups they belong to.
    """
    conversation, groups = situation.conversation, situation.groups
    anchors = set(situation.pins)
    if (newest := newest_user(conversation)) is not None:
        anchors.add(newest)
    opening = opening_of(conversation)
    if with_task:
        anchors.update(opening.setup)
    if with_task and situation.policy.keeps_task and opening.task is not None:
        anchors.add(opening.task)
    kept = {index for index, message in enumerate(conversation.messages) if message.is_instruction}
    for anchor in anchors:
        group = groups[group_index(groups, anchor)]
        kept.update(range(group.start, group.stop))
    return frozenset(kept)


def masks_of(situation: Situation, limits: Limits, cut: int, kept: frozenset[int]) -> tuple[Mask, ...]:
    """The masks of messages that stand in a view with this cut, in the messages' order."""
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
