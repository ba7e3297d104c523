"""Tokens guessed instead of counted, for policies that would rather guess, and marks that go by them (B04).

Pure. Knows no encoding. A guess decides when a conversation is compacted and how far; what may go out at all
goes by the count, so that no guess sends a prompt that does not fit nor refuses one that does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.core.budget.budget import Budget
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.text.wording import calls_of, text_of
from app.core.view.masking import text_of as shown_text
from app.core.view.outcomes import View, ViewPart
from app.core.view.policy import Estimator
from app.core.wire.responses.items import as_chat

# Characters for a token.
_CHARS: Mapping[Estimator, int] = {"chars3": 3, "chars4": 4}
# A lowered trigger leaves a quarter of what lies below it to grow into, as any other does (F04).
_TARGET_SHARE = 0.75
# One summary block takes at most half of what the target leaves to messages.
_SUMMARY_SHARE = 0.5
_TEXT_PARTS = ("text", "refusal")


@dataclass(frozen=True, slots=True)
class Reported:
    """What the upstream said of the branch's last prompt: `theirs`, its tokens in its own count.

    `ours` are those of the same prompt in our count.
    """

    theirs: int
    ours: int


def guess(estimator: Estimator, view: View, talk: Conversation, budget: Budget) -> int | None:
    """The whole prompt by characters: all texts of the view, rounded up once; None where nobody guesses so.

    Characters are code points of what the model reads: contents, and names and arguments of calls. Tools and
    framing are as counted, and so are messages that hold anything but text.
    """
    if estimator not in _CHARS:
        return None
    tokens = budget.fixed_tokens - sum(message.tokens for message in talk.preamble)
    chars = 0
    for message in talk.preamble:
        chars, tokens = _added(message, chars, tokens)
    for part in view.parts:
        if part.kind == "preamble":
            continue
        if part.index is None or part.masked:
            chars += len(_text_in(part))
        else:
            chars, tokens = _added(talk.messages[part.index], chars, tokens)
    return tokens - (-chars // _CHARS[estimator])


def by_usage(reported: Reported, counted: int, budget: Budget) -> int:
    """The prompt in our count by what the upstream said of the last one, and what came since (idea 12).

    Never less than `counted`: a server that cuts prompts says too little.
    """
    theirs = round(reported.theirs * budget.window_tokens / budget.window.tokens)
    return max(counted, theirs + counted - reported.ours)


def judged_by(budget: Budget, counted: int, guessed: int) -> Budget:
    """`budget` with its marks where a prompt of `counted` tokens is judged as if it took `guessed`.

    Exactly: `guessed` is at or above a mark of `budget` if and only if `counted` is at or above the mark
    here, as long as that is below the ceiling, which stays. Target, least gain and blocks are in the same
    proportion, so that trigger and boundary go by the same sizes.
    """
    if guessed <= 0 or guessed == counted:
        return budget
    fixed = budget.fixed_tokens
    trigger = min(budget.ceiling_tokens, _scaled(budget.trigger_tokens, counted, guessed))
    most = fixed + int(_TARGET_SHARE * max(0, trigger - fixed))
    target = max(fixed + 2, min(most, _scaled(budget.target_tokens, counted, guessed)))
    summary = min(budget.summary_tokens, int(_SUMMARY_SHARE * (target - fixed)))
    return replace(
        budget,
        trigger_tokens=trigger,
        target_tokens=target,
        precompute_tokens=min(trigger, _scaled(budget.precompute_tokens, counted, guessed)),
        summary_tokens=max(1, summary),
        gain_tokens=budget.gain_tokens * counted // guessed,
        carry_tokens=min(budget.carry_tokens, target),
    )


def _scaled(mark: int, counted: int, guessed: int) -> int:
    """Rounded up: a count that is below a mark by less than a token is below it."""
    return -(-mark * counted // guessed)


def _added(message: Message, chars: int, tokens: int) -> tuple[int, int]:
    content = message.fields.get("content")
    if isinstance(content, list) and not all(map(_is_text, content)):
        return chars, tokens + message.tokens
    said = sum(len(call.name) + len(call.arguments) for call in calls_of(message))
    return chars + len(text_of(message)) + said, tokens


def _text_in(part: ViewPart) -> str:
    return shown_text(as_chat(json.loads(part.raw, parse_int=str, parse_float=str)))


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS
