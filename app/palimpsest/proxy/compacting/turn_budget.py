"""The budget of one turn: what fits, and the marks, from everything that is known of the turn. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from palimpsest.core.budget.budget import (
    Budget,
    Window,
    budget_of,
    raised_for_tools,
    with_estimate,
    with_room,
)
from palimpsest.core.budget.economy import Costs, derived
from palimpsest.core.history.message import Conversation
from palimpsest.core.policy import Policy
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.estimate import Reported, by_usage, guess
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.view import CountText, always_kept_tokens, block_tokens, prompt_tokens
from palimpsest.proxy.lookups.hidden_rounds import Replay
from palimpsest.proxy.turn import Subject

# Below this share of the window nothing is compacted, so that marks are not derived from costs.
DERIVED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class WeighedTurn:
    """A turn with the compaction in force; `summary` and `memory` are the tokens of its blocks.

    `ratio`: the model's tokens for one of ours.
    """

    turn: Subject
    current: Compaction | None
    replay: Replay
    summary: int
    memory: int
    ratio: float

    @property
    def block_tokens(self) -> int:
        """Tokens of both blocks."""
        return self.summary + self.memory

    @property
    def talk(self) -> Conversation:
        """The conversation whose answers include the tokens of their hidden rounds."""
        return self.replay.talk or self.turn.conversation


def blocks_of(current: Compaction | None, count_text: CountText) -> tuple[int, int]:
    """Tokens of the summary and memory blocks in force."""
    if current is None:
        return 0, 0
    return block_tokens(current.summary, count_text), block_tokens(current.memory, count_text)


def turn_budget(
    weighed: WeighedTurn, window: Window, policy: Policy, costs: Costs, idle_seconds: int = 0
) -> Budget:
    """The budget, with marks derived from costs where they may be reached.

    `idle_seconds`: as in `derived`.
    """
    turn, talk = weighed.turn, weighed.talk
    said = sum(message.tokens for message in talk.preamble)
    budget = budget_of(
        window,
        fixed_tokens=turn.fixed_tokens + weighed.replay.schema_tokens + said,
        max_output_tokens=turn.max_output_tokens,
        ratio=weighed.ratio,
        policy=policy,
    )
    if weighed.current is None and turn.tokens < DERIVED_SHARE * budget.window_tokens:
        return budget
    if policy.objective == "cost":
        kept = always_kept_tokens(talk, policy) + weighed.memory
        budget = derived(budget, talk, (kept, weighed.summary), policy, costs, idle_seconds)
    replay = weighed.replay
    if replay.goes_with(weighed.current):
        return with_room(budget, replay.result_tokens)
    return raised_for_tools(budget, replay.schema_tokens)


def judged(
    weighed: WeighedTurn, view: View, budget: Budget, policy: Policy, reported: Reported | None
) -> Budget:
    """The budget with marks adjusted to the policy's estimator (B04); `view` is the one in force."""
    counted = prompt_tokens(view, budget)
    guessed = guess(policy.estimator, view, weighed.talk, budget)
    if guessed is None:
        guessed = by_usage(reported, counted, budget) if reported else counted
    return with_estimate(budget, counted, guessed)


def asked_policy(policy: Policy, compact_threshold: int) -> Policy:
    """The policy with the client's compaction threshold as trigger, where that is lower; 0: none.

    The API compacts in the answer that crosses the threshold (reference, "Compaction", 2026-11): a turn waits
    for a summary that is being written.
    """
    if not compact_threshold or 0 < policy.trigger_tokens <= compact_threshold:
        return policy
    return replace(policy, trigger_tokens=compact_threshold, wait_for_summary=True)


def with_memory(budget: Budget, tokens: int, reads_by: str) -> Budget:
    """The budget with the tokens of the next memory block, and the tool that reads what masks leave out."""
    return replace(budget, memory_tokens=tokens, reads_by=reads_by) if tokens or reads_by else budget
