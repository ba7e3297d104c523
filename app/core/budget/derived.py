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
# Users' words get so much of the target at least, whatever it costs (A16); the steps down to it.
_LEAST_WORDING = 0.25
_WORDING_STEPS = 3
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
    force, 0 without one. No mark is above the budget's own. The room for users' words is lowered where it
    would bring the cheapest trigger up to the highest: what is carried must not make folds frequent.
    """
    objective = policy.objective
    if objective == "off":
        return budget
    most, least = policy.user_wording_share, min(policy.user_wording_share, _LEAST_WORDING)
    found = budget
    for step in range(_WORDING_STEPS + 1):
        share = most - (most - least) * step / _WORDING_STEPS
        room = replace(budget, wording_tokens=int(share * budget.carry_tokens))
        found = _marked(room, talk, (kept_tokens, block_tokens), policy, costs, objective)
        if objective == "fidelity" or most == least or found.trigger_tokens < budget.trigger_tokens:
            break
    return found


def _marked(
    budget: Budget,
    talk: Conversation,
    sizes: tuple[int, int],
    policy: Policy,
    costs: Costs,
    objective: Objective,
) -> Budget:
    """As `derived`, for the room for words that `budget` has; `sizes`: what is kept, and the block."""
    kept_tokens, block_tokens = sizes
    # A fold reserves so much for its block: were less expected, the target would be out of its reach, and
    # the user's words and identifiers would be what gives way.
    wanted = _wanted_block(budget, policy, talk)
    summaries = Summaries(wanted, budget.summary_tokens)
    if block_tokens:
        least = 0 if objective == "cost" else wanted
        summaries = summarised(summaries, max(least, block_tokens), None)
    growth = growth_of(talk.messages)
    top = budget.trigger_tokens
    room = Room(budget.fixed_tokens + kept_tokens, 0, top, int(_LEAST_TRIGGER[objective] * top))
    call = Call(costs.prices, policy.rides) if costs.asks_model else None
    found = marks(costs.prices, growth, summaries, room, objective, call)
    if call is not None:
        folded = found.trigger_tokens - found.target_tokens
        answer = budget.summary_tokens
        if not is_worth_asking(call, objective, found.trigger_tokens, folded, answer):
            call = None
            found = marks(costs.prices, growth, summaries, room, objective, None)
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
