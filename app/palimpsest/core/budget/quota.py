"""What a caller may use in a UTC day, and what an answer has used. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.core.wire.chat_answers import Usage

# Bytes of text that count as a token where nobody has counted it.
_BYTES_PER_TOKEN = 4
# Tokens reserved for an answer whose length the request does not bound, and at most for one that it does:
# agents state the most that a model can write, and it writes little.
ANSWER_TOKENS = 4_096
MOST_ANSWER_TOKENS = 32_768


@dataclass(frozen=True, slots=True)
class Quota:
    """Tokens of prompts and answers that may be charged to `account` in a UTC day.

    The account is a key's id, if `is_key`, or a namespace.
    """

    account: str
    tokens: int
    is_key: bool = False


def quota_of(namespace: str, default: int, key: str, own: int) -> Quota | None:
    """The quota of a caller; None without a limit (0).

    A key with a limit of its `own` is charged by itself, others are charged to the namespace.
    """
    if own:
        return Quota(key, own, is_key=True)
    return Quota(namespace, default) if default else None


def answer_room(stated: int | None, choices: object = 1) -> int:
    """Tokens reserved for an answer of so many `choices`, each of at most `stated` tokens, if stated."""
    room = ANSWER_TOKENS if stated is None else min(stated, MOST_ANSWER_TOKENS)
    return room * choices if isinstance(choices, int) and choices > 1 else room


def refusal(quota: Quota, used: int, reserved: int) -> str:
    """Why nothing more may be used now; "" while something may."""
    if used + reserved < quota.tokens:
        return ""
    if used < quota.tokens:
        return (
            f"What is left of the quota of the day is reserved: {used:,} of {quota.tokens:,} tokens are used,"
            f" and requests in progress have reserved {reserved:,}. What they leave is free at their end."
        )
    own = f"`palimpsest keys set {quota.account} --daily-tokens N`"
    how = own if quota.is_key else "access.daily_tokens, or `palimpsest keys set` for a single key"
    return (
        f"The quota of the day is used up: {used:,} of {quota.tokens:,} tokens. It begins anew at midnight"
        f" UTC; the operator of this proxy can raise it with {how}."
    )


def used_by(usage: Usage, prompt_tokens: int, answer_tokens: int) -> int:
    """Tokens of an answer, as the upstream counts; `prompt_tokens` and `answer_tokens` where it does not."""
    prompt = prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    return prompt + (answer_tokens if usage.completion_tokens is None else usage.completion_tokens)


def tokens_in(size: int) -> int:
    """A rough number of tokens in so many bytes of text."""
    return -(-size // _BYTES_PER_TOKEN)
