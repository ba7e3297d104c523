"""What a caller may use in a UTC day, what it has used, and how much may be stored for it. Pure.

A quota is checked before a request and charged after its answer: a request that began below the quota runs to
its end. So does one that began below the bound of stored bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.core.budget.economy import Prices, dollars_of
from palimpsest.core.wire.chat_answers import Usage

# Bytes of text that count as a token where nobody has counted it.
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """Tokens of prompts and answers, and dollars, of a UTC day; 0: no limit."""

    tokens: int = 0
    dollars: float = 0.0


@dataclass(frozen=True, slots=True)
class Quota:
    """What may be charged to `account` in a day: a key's id, if `is_key`, or a namespace."""

    account: str
    limits: DailyLimits
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Used:
    """What was used."""

    tokens: int = 0
    dollars: float = 0.0


@dataclass(frozen=True, slots=True)
class StorageBound:
    """How many bytes of messages may be stored for `namespace`, each text once.

    `key` is the id of the key that says so, or "".
    """

    namespace: str
    max_bytes: int
    key: str = ""


def bound_of(namespace: str, default: int, key: str, own: int) -> StorageBound | None:
    """The bound of a caller, that of its key before the default; None without one. 0: none is set."""
    if not (own or default):
        return None
    return StorageBound(namespace, own or default, key if own else "")


def storage_refusal(bound: StorageBound, stored: int) -> str:
    """Why nothing more is stored; "" while something is."""
    if stored < bound.max_bytes:
        return ""
    own = f"`palimpsest keys set {bound.key} --max-bytes N`"
    how = own if bound.key else "access.max_bytes, or `palimpsest keys set ID --max-bytes N` for a single key"
    return (
        f"{stored:,} bytes are stored for this key, of {bound.max_bytes:,} that may be: nothing more is"
        " stored, and so nothing sent. Erase sessions to make room (`palimpsest erase`); the operator of this"
        f" proxy can raise the bound with {how}."
    )


def quota_of(namespace: str, default: DailyLimits, key: str, own: DailyLimits) -> Quota | None:
    """The quota of a caller; None without a limit.

    A key with a limit of its `own` is charged by itself, and has the `default` where it sets none. Others are
    charged to the namespace.
    """
    limits = DailyLimits(own.tokens or default.tokens, own.dollars or default.dollars)
    if limits == DailyLimits():
        return None
    is_key = own != DailyLimits()
    return Quota(key if is_key else namespace, limits, is_key)


def refusal(quota: Quota, used: Used) -> str:
    """Why nothing more may be used today; "" while something may."""
    limits, own = quota.limits, f"palimpsest keys set {quota.account}" if quota.is_key else ""
    if limits.tokens and used.tokens >= limits.tokens:
        said, setting = f"{used.tokens:,} of {limits.tokens:,} tokens", "daily_tokens"
    elif limits.dollars and used.dollars >= limits.dollars:
        said, setting = f"${used.dollars:,.2f} of ${limits.dollars:,.2f}", "daily_dollars"
    else:
        return ""
    option = f"--{setting.replace('_', '-')}"
    how = f"`{own} {option} N`" if own else f"access.{setting}, or `palimpsest keys set` for a single key"
    return (
        f"The quota of the day is used up: {said}. It begins anew at midnight UTC; the operator of this proxy"
        f" can raise it with {how}."
    )


def used_by(usage: Usage, prompt_tokens: int, answer_tokens: int, prices: Prices | None) -> Used:
    """What an answer has used, as the upstream counts; `prompt_tokens` and `answer_tokens` where it does not.

    Without `prices`, those of a million tokens in dollars, nothing but tokens.
    """
    prompt = prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    answer = answer_tokens if usage.completion_tokens is None else usage.completion_tokens
    if prices is None:
        return Used(prompt + answer)
    cost = dollars_of(prompt, usage.cached_tokens or 0, usage.written_tokens or 0, answer, prices)
    return Used(prompt + answer, cost)


def tokens_in(size: int) -> int:
    """A rough number of tokens in so many bytes of text."""
    return -(-size // _BYTES_PER_TOKEN)
