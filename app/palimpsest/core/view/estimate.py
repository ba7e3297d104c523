"""Estimated prompt tokens, for policies that do not count (B04).

An estimate decides when a conversation is compacted and how far. Whether a prompt may be sent is decided by
the count, so that no estimate sends a prompt that does not fit or refuses one that does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from palimpsest.core.budget.budget import Budget
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.policy import Estimator
from palimpsest.core.text.message_text import calls_of, text_of
from palimpsest.core.view.masking import text_of as shown_text
from palimpsest.core.view.outcomes import View, ViewPart
from palimpsest.core.view.view import prompt_tokens
from palimpsest.core.wire.responses.items import as_chat

# Characters per token.
_CHARS: Mapping[Estimator, int] = {"chars3": 3, "chars4": 4}
_TEXT_PARTS = ("text", "refusal")


@dataclass(frozen=True, slots=True)
class Reported:
    """The upstream's usage `theirs` for the branch's last prompt, and our count `ours` of the same prompt."""

    theirs: int
    ours: int


def guess(estimator: Estimator, view: View, talk: Conversation, budget: Budget) -> int | None:
    """The whole prompt by characters, rounded up once; None where the estimator does not use characters.

    Characters are code points of what the model reads: contents, and names and arguments of calls. Tools and
    framing are counted, and so are messages with anything but text.
    """
    if estimator not in _CHARS:
        return None
    tokens, chars = budget.fixed_tokens, 0
    for part in view.parts:
        if part.kind == "preamble":
            continue
        if part.index is None or part.masked:
            chars += len(_text_in(part))
        else:
            chars, tokens = _added(talk.messages[part.index], chars, tokens)
    return tokens - (-chars // _CHARS[estimator])


def by_usage(reported: Reported, counted: int, budget: Budget) -> int:
    """The prompt in our count: the upstream's usage for the last prompt, plus what was added since (idea 12).

    Never less than `counted`: a server that truncates prompts reports too little.
    """
    theirs = round(reported.theirs * budget.window_tokens / budget.window.tokens)
    return max(counted, theirs + counted - reported.ours)


def judged(
    view: View, talk: Conversation, budget: Budget, estimator: Estimator, reported: Reported | None
) -> Budget:
    """The budget with marks adjusted to the policy's estimator (B04); `view` is the one in force."""
    counted = prompt_tokens(view, budget)
    guessed = guess(estimator, view, talk, budget)
    if guessed is None:
        guessed = by_usage(reported, counted, budget) if reported else counted
    return with_estimate(budget, counted, guessed)


def with_estimate(budget: Budget, counted: int, guessed: int) -> Budget:
    """`budget` with marks that treat a prompt of `counted` tokens as if it had `guessed`.

    The ceiling stays. Target, least gain and record change in the same proportion.
    """
    fixed = budget.fixed_tokens
    counted, guessed = counted - fixed, guessed - fixed
    if guessed <= 0 or counted <= 0 or guessed == counted:
        return budget

    def scaled(mark: int) -> int:
        return min(budget.ceiling_tokens, max(fixed + 3, fixed - (-(mark - fixed) * counted // guessed)))

    trigger = scaled(budget.trigger_tokens)
    target = max(fixed + 2, min(fixed + (trigger - fixed) * 3 // 4, scaled(budget.target_tokens)))
    return replace(
        budget,
        trigger_tokens=trigger,
        target_tokens=target,
        precompute_tokens=min(trigger, scaled(budget.precompute_tokens)),
        gain_tokens=budget.gain_tokens * counted // guessed,
    )


def _added(message: Message, chars: int, tokens: int) -> tuple[int, int]:
    content = message.fields.get("content")
    if isinstance(content, list) and not all(map(_is_text, content)):
        return chars, tokens + message.tokens
    call_chars = sum(len(call.name) + len(call.arguments) for call in calls_of(message))
    return chars + len(text_of(message)) + call_chars, tokens


def _text_in(part: ViewPart) -> str:
    return shown_text(as_chat(json.loads(part.raw, parse_int=str, parse_float=str)))


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS
