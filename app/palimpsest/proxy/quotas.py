"""Daily quotas: tokens are reserved when a request is forwarded, and charged as used when it ends.

Both are in the store, so that all processes on a database see them at once and a restart forgets no use. Of
requests at the same time those are refused that find nothing left: the quota is exceeded by what one request
reserves at most, and by what answers are longer than reserved. Callers without a quota have no bill, and
nothing here is called for them. Days are UTC.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from palimpsest.core.utc import day_of, left_of_day
from palimpsest.core.wire.chat_answers import Usage, usage_of
from palimpsest.core.wire.responses.answers import tokens_of
from palimpsest.errors import QuotaExceeded, StoreError
from palimpsest.proxy.jobs import Jobs, logged
from palimpsest.storage.accounts import Accounts, Charge, KeyRow
from palimpsest.upstream.decoding import decoder_for

_log = structlog.get_logger("palimpsest.quotas")

# What requests in progress have reserved may be free in so many seconds.
_SOON_SECONDS = 5
# Bytes of text that count as a token where nobody has counted it.
_BYTES_PER_TOKEN = 4
# Tokens reserved for an answer whose length the request does not bound, and at most for one that it does:
# agents state the most that a model can write, and it writes little.
ANSWER_TOKENS = 4_096
_MOST_ANSWER_TOKENS = 32_768


@dataclass(frozen=True, slots=True)
class Quota:
    """Tokens of prompts and answers that may be charged to `account` in a UTC day.

    The account is a key's id, if `is_key`, or a namespace.
    """

    account: str
    tokens: int
    is_key: bool = False


def quota_of(namespace: str, default: int, key: KeyRow | None) -> Quota | None:
    """The quota of a caller; None without a limit (0).

    A key with a limit of its own is charged by itself, others are charged to the namespace.
    """
    if key is not None and key.daily_tokens:
        return Quota(key.id, key.daily_tokens, is_key=True)
    return Quota(namespace, default) if default else None


def answer_room(stated: int | None, choices: object = 1) -> int:
    """Tokens reserved for an answer of so many `choices`, each of at most `stated` tokens, if stated."""
    room = ANSWER_TOKENS if stated is None else min(stated, _MOST_ANSWER_TOKENS)
    return room * choices if isinstance(choices, int) and choices > 1 else room


def used_by(usage: Usage, prompt_tokens: int, answer_tokens: int) -> int:
    """Tokens of an answer, as the upstream counts; `prompt_tokens` and `answer_tokens` where it does not."""
    prompt = prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    return prompt + (answer_tokens if usage.completion_tokens is None else usage.completion_tokens)


def tokens_in(size: int) -> int:
    """A rough number of tokens in so many bytes of text."""
    return -(-size // _BYTES_PER_TOKEN)


@dataclass(slots=True)
class Bill:
    """What one request is charged to on `day`, what it has reserved, and what was charged for it so far.

    An answer may be recorded twice: its usage may come after its end. `hidden` are the tokens of prompts that
    its answer does not state: those of hidden rounds.
    """

    quota: Quota
    day: str
    reserved: int = 0
    charged: int = 0
    hidden: int = 0

    def charge(self, used: int) -> Charge:
        """What is left to charge for a request that has used these tokens; releases what it has reserved."""
        return Charge(self.quota.account, self.day, used + self.hidden - self.charged, self.reserved)


class Quotas:
    """Reserves and charges. QuotaExceeded when nothing more may be used."""

    def __init__(self, accounts: Accounts, jobs: Jobs, clock: Callable[[], float] = time.time) -> None:
        self._accounts = accounts
        self._jobs = jobs
        self._clock = clock
        # Charges that could not be stored: their requests are over, and what they reserved is not free yet.
        self._owed: list[Charge] = []

    async def bill(self, quota: Quota) -> Bill:
        """The bill of a request, before anything is done for it."""
        bill = Bill(quota, day_of(self._clock()))
        while self._owed:
            await self._accounts.charge(self._owed[-1])
            self._owed.pop()
        self._check(quota, *await self._accounts.used(quota.account, bill.day))
        return bill

    async def reserve(self, bill: Bill, tokens: int) -> None:
        """Reserve tokens for a request that is about to be forwarded, besides what it has reserved before."""
        quota, more = bill.quota, tokens - bill.reserved
        if more <= 0:
            return
        if not await self._accounts.reserve(quota.account, bill.day, more, quota.tokens):
            used, reserved = await self._accounts.used(quota.account, bill.day)
            # It was full a moment ago, when somebody else's request had not ended yet.
            self._check(quota, used, max(reserved, quota.tokens - used))
        bill.reserved += more

    def _check(self, quota: Quota, used: int, reserved: int) -> None:
        if used + reserved < quota.tokens:
            return
        is_used, seconds = used >= quota.tokens, _SOON_SECONDS
        said = (
            f"What is left of the quota of the day is reserved: {used:,} of {quota.tokens:,} tokens are used,"
            f" and requests in progress have reserved {reserved:,}. What they leave is free at their end."
        )
        if is_used:
            seconds = int(left_of_day(self._clock())) + 1
            own = f"`palimpsest keys set {quota.account} --daily-tokens N`"
            how = own if quota.is_key else "access.daily_tokens, or `palimpsest keys set` for a single key"
            said = (
                f"The quota of the day is used up: {used:,} of {quota.tokens:,} tokens. It begins anew at"
                f" midnight UTC; the operator of this proxy can raise it with {how}."
            )
        raise QuotaExceeded(said, retry_seconds=seconds, is_used=is_used)

    @contextmanager
    def charging(self, bill: Bill, used: int) -> Iterator[Charge]:
        """End the bill of a request that has used these tokens: the block stores the charge.

        What it cannot store is stored before the next bill.
        """
        charge = bill.charge(used)
        try:
            yield charge
        except StoreError:
            self._owed.append(charge)
            bill.charged, bill.reserved = bill.charged + charge.tokens, 0
            raise
        bill.charged, bill.reserved = bill.charged + charge.tokens, 0

    def end(self, bill: Bill, used: int) -> None:
        """End, in the background, the bill of a request that is not recorded."""
        if used + bill.hidden == bill.charged and not bill.reserved:
            return

        async def ended() -> None:
            said = logged(_log, "use_not_stored", account=bill.quota.account)
            with said, self.charging(bill, used) as charge:
                await self._accounts.charge(charge)

        self._jobs.start(ended())


# Usage stands at the end of an answer; of the Responses API a few fields follow.
_TAIL_BYTES = 64 * 1024
# More decoded bytes are not looked at.
_MOST_BYTES = 1024 * 1024 * 1024
_STATED = re.compile(r'(?<!\\)"usage"\s*:\s*(\{)')
_JSON = json.JSONDecoder()
_EVENT = b"data:"


class PassingAnswer:
    """Listens to an answer that passes through, for what it used. Keeps its last 64 KiB."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._decoder = decoder_for(headers, _MOST_BYTES)
        self._tail = b""
        self._size = 0
        self._events = 0

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes, as received."""
        plain = self._decoder.feed(chunk) if self._decoder is not None else b""
        self._size += len(plain)
        self._events += plain.count(_EVENT)
        self._tail = (self._tail + plain)[-_TAIL_BYTES:]

    def used(self, prompt_tokens: int | None) -> int:
        """Tokens of the request, by the usage that its answer stated last.

        Without one, an estimate for a conversation with a prompt of `prompt_tokens`: an event of a stream is
        about a token. None: no conversation, which has used nothing.
        """
        tail = self._tail.decode("utf-8", "replace")
        for found in reversed(list(_STATED.finditer(tail))):
            with suppress(ValueError, RecursionError):
                fields, _ = _JSON.raw_decode(tail, found.start(1))
                stated = tokens_of(fields) if "input_tokens" in fields else usage_of(fields)
                if stated != Usage():
                    return used_by(stated, 0, 0)
        return 0 if prompt_tokens is None else prompt_tokens + (self._events or tokens_in(self._size))
