"""A budget whose marks follow from costs: what one conversation shows is handed to the (s, S) rule.

Pure. Knows nothing of price lists; the rule itself is `app.core.budget.economy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.core.budget.block import block_tokens_for
from app.core.budget.budget import Budget
from app.core.budget.economy import (
    Call,
    Growth,
    Objective,
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
# A conversation is not compacted below these shares of the highest trigger, whatever is saved by it: what
# the model is shown is worth more than its price. "cost" means what it says.
_LEAST_TRIGGER: Mapping[Objective, float] = {"cost": 0.0, "balanced": 0.5, "fidelity": 1.0}
# Cuts fall between messages: a fold seldom comes down to the target exactly.
_GAIN_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Costs:
    """What a conversation's tokens cost, and whether a model is asked for its summaries."""

    prices: Prices
    asks_model: bool


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


def derived(
    budget: Budget, talk: Conversation, kept_tokens: int, block_tokens: int, policy: Policy, costs: Costs
) -> Budget:
    """`budget` with trigger, target, precompute mark and least gain as the policy's objective has them.

    `kept_tokens` are the messages that stay wherever the cut falls, `block_tokens` the summary block in
    force, 0 without one. No mark is above the budget's own.
    """
    if policy.objective == "off":
        return budget
    # A fold reserves so much for its block: were less expected, the target would be out of its reach, and
    # the user's words and identifiers would be what gives way.
    wanted = _wanted_block(budget, policy, talk)
    summaries = Summaries(wanted, budget.summary_tokens)
    if block_tokens:
        least = 0 if policy.objective == "cost" else wanted
        summaries = summarised(summaries, max(least, block_tokens), None)
    growth = growth_of(talk.messages)
    top = budget.trigger_tokens
    room = Room(budget.fixed_tokens + kept_tokens, 0, top, int(_LEAST_TRIGGER[policy.objective] * top))
    call = Call(costs.prices, policy.rides) if costs.asks_model else None
    found = marks(costs.prices, growth, summaries, room, policy.objective, call)
    if call is not None:
        folded = found.trigger_tokens - found.target_tokens
        answer = budget.summary_tokens
        if not is_worth_asking(call, policy.objective, found.trigger_tokens, folded, answer):
            call = None
            found = marks(costs.prices, growth, summaries, room, policy.objective, None)
    trigger, precompute = min(top, found.trigger_tokens), found.precompute_tokens
    if call is not None and policy.rides:
        # A question that does not fit behind the prompt costs as much as reading all of it anew.
        precompute = min(precompute, budget.riding_tokens - int(growth.turn_tokens))
    return replace(
        budget,
        trigger_tokens=trigger,
        target_tokens=min(top, found.target_tokens),
        precompute_tokens=min(trigger, max(found.target_tokens + 1, precompute)),
        is_derived=True,
        gain_tokens=int(_GAIN_SHARE * min(found.gain_tokens, trigger - found.target_tokens)),
    )


def _wanted_block(budget: Budget, policy: Policy, talk: Conversation) -> int:
    """Tokens of a block that stands for the whole conversation so far."""
    sizes = [(message.tokens, message.role == "user") for message in talk.messages]
    wording = sum(tokens for tokens, is_user in sizes if is_user)
    return block_tokens_for(budget, policy, tokens=sum(tokens for tokens, _ in sizes), wording=wording)
