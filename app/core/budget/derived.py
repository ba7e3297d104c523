"""A budget whose marks follow from costs: what one conversation shows is handed to the (s, S) rule.

Pure. Knows nothing of price lists; the rule itself is `app.core.budget.economy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.budget.block import block_tokens_for
from app.core.budget.budget import Budget
from app.core.budget.economy import (
    Call,
    Growth,
    Marks,
    Prices,
    Room,
    Summaries,
    grown,
    is_worth_asking,
    marks,
    summarised,
)
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.view.policy import Policy

# Turns looked back at; older ones hardly weigh (see `grown`).
_TURNS = 12
# A conversation is not compacted below this share of the highest trigger, whatever is saved by it: what the
# model is shown is worth more than its price. After a pause that the cache did not outlive it may be.
_LEAST_TRIGGER = 0.5
# What the newest turns get at least of the room beside what is kept and the summary. A twentieth is one or
# two turns at 12k and about five of a coding agent's at 200k.
_TAIL_SHARE = 0.05
# As much is kept as makes turns at most so much dearer than the lowest target does.
_ALLOWANCE = 0.03
# Cuts fall between messages: a fold seldom comes down to the target exactly.
_GAIN_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Costs:
    """What a conversation's tokens cost, and whether a model is asked for its summaries.

    `cache_seconds`: so long the upstream's cache keeps a prompt that nobody asks for; 0: for ever.
    """

    prices: Prices
    asks_model: bool
    cache_seconds: int = 0


def growth_of(messages: Sequence[Message]) -> Growth:
    """How much the newest turns added each: a turn ends with an answer of the assistant."""
    added, turns = 0, []
    for message in reversed(messages):
        if message.role == "assistant" and added:
            turns.append(added)
            added = 0
            if len(turns) == _TURNS:
                break
        added += message.tokens
    growth = Growth()
    for tokens in reversed(turns):
        growth = grown(growth, tokens)
    return growth


def room_of(kept_tokens: int, block_tokens: float, ceiling_tokens: int, *, is_cold: bool = False) -> Room:
    """What the marks of the objective `cost` lie between; tokens of the whole prompt."""
    free = max(0.0, ceiling_tokens - kept_tokens - max(1.0, block_tokens))
    return Room(
        kept_tokens,
        int(_TAIL_SHARE * free),
        ceiling_tokens,
        0 if is_cold else int(_LEAST_TRIGGER * ceiling_tokens),
        _ALLOWANCE,
    )


def derived(
    budget: Budget,
    talk: Conversation,
    sizes: tuple[int, int],
    policy: Policy,
    costs: Costs,
    idle_seconds: int = 0,
) -> Budget:
    """`budget` with trigger, target, precompute mark and least gain as the policy's objective has them.

    `sizes` are the tokens of the messages that stay wherever the cut falls, and of the summary block in
    force, 0 without one. No mark is above the budget's own. `idle_seconds`: for so long nobody asked, longer
    than the upstream's cache lives; 0: the cache is warm.
    """
    if policy.objective == "fidelity":
        return budget
    is_cold = idle_seconds > 0
    # A fold reserves so much for its block: were less expected, the target would be out of its reach.
    wanted = block_tokens_for(budget, sum(message.tokens for message in talk.messages))
    summaries = Summaries(wanted, budget.summary_tokens)
    if sizes[1]:
        summaries = summarised(summaries, max(wanted, sizes[1]), None)
    growth, top, rides = growth_of(talk.messages), budget.trigger_tokens, policy.rides and not is_cold
    room = room_of(budget.fixed_tokens + sizes[0], summaries.block_tokens, top, is_cold=is_cold)
    call = Call(costs.prices, rides, is_checked=policy.self_check) if costs.asks_model else None
    found = marks(costs.prices, growth, summaries, room, call, is_cold=is_cold)
    if call is not None and not _is_worth(call, found, budget):
        call = None
        found = marks(costs.prices, growth, summaries, room, None, is_cold=is_cold)
    trigger, precompute = min(top, found.trigger_tokens), found.precompute_tokens
    if is_cold:
        # What frees less is not worth a summary, free or not (F12).
        trigger = min(top, max(trigger, found.target_tokens + budget.gain_tokens))
    if call is not None and rides:
        # A question that does not fit behind the prompt costs as much as reading all of it anew.
        precompute = min(precompute, budget.riding_tokens - int(growth.turn_tokens))
    return replace(
        budget,
        trigger_tokens=trigger,
        target_tokens=min(top, found.target_tokens),
        precompute_tokens=min(trigger, max(found.target_tokens + 1, precompute)),
        is_derived=True,
        gain_tokens=int(_GAIN_SHARE * min(found.gain_tokens, trigger - found.target_tokens)),
        asked=budget.asked if trigger == top else f"objective cost: from {budget.for_model(trigger):,} on",
        idle_seconds=idle_seconds,
    )


def _is_worth(call: Call, found: Marks, budget: Budget) -> bool:
    folded = found.trigger_tokens - found.target_tokens
    call = replace(call, read_tokens=folded)
    return is_worth_asking(call, found.trigger_tokens, folded, budget.summary_tokens)
