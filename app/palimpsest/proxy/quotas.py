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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from palimpsest.core.budget.quota import Quota, refusal, tokens_in, used_by
from palimpsest.core.utc import day_of, left_of_day
from palimpsest.core.wire.chat_answers import Usage, usage_of
from palimpsest.core.wire.responses.answers import tokens_of
from palimpsest.errors import QuotaExceeded, StoreError
from palimpsest.proxy.jobs import Jobs
from palimpsest.storage.accounts import Accounts, Charge
from palimpsest.upstream.decoding import decoder_for

_log = structlog.get_logger("palimpsest.quotas")


# What requests in progress have reserved may be free in so many seconds.
_SOON_SECONDS = 5


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
        self._check(bill, *await self._accounts.used(quota.account, bill.day))
        return bill

    async def reserve(self, bill: Bill, tokens: int) -> None:
        """Reserve tokens for a request that is about to be forwarded, besides what it has reserved before."""
        quota, more = bill.quota, tokens - bill.reserved
        if more <= 0:
            return
        if not await self._accounts.reserve(quota.account, bill.day, more, quota.tokens):
            self._check(bill, *await self._accounts.used(quota.account, bill.day), is_full=True)
        bill.reserved += more

    def _check(self, bill: Bill, used: int, reserved: int, *, is_full: bool = False) -> None:
        """`is_full`: it was a moment ago, when somebody else's request has not ended yet."""
        least = max(0, bill.quota.tokens - used) if is_full else 0
        if said := refusal(bill.quota, used, max(reserved, least)):
            is_used = used >= bill.quota.tokens
            seconds = int(left_of_day(self._clock())) + 1 if is_used else _SOON_SECONDS
            raise QuotaExceeded(said, retry_seconds=seconds, is_used=is_used)

    def charge_of(self, bill: Bill, used: int) -> Charge:
        """What ends the bill of a request that has used these tokens; `settle` it once it is stored."""
        return Charge(bill.quota.account, bill.day, used + bill.hidden - bill.charged, bill.reserved)

    def settle(self, bill: Bill, charge: Charge, *, is_stored: bool = True) -> None:
        """The charge is stored, or else will be, before the next bill."""
        bill.charged, bill.reserved = bill.charged + charge.tokens, 0
        if not is_stored:
            self._owed.append(charge)

    def end(self, bill: Bill, used: int) -> None:
        """End, in the background, the bill of a request that is not recorded."""
        charge = self.charge_of(bill, used)
        self.settle(bill, charge)
        if charge.tokens or charge.released:
            self._jobs.start(self._charged(charge))

    async def _charged(self, charge: Charge) -> None:
        try:
            await self._accounts.charge(charge)
        except StoreError as error:
            self._owed.append(charge)
            _log.warning("use_not_stored", error=type(error).__name__, account=charge.account)


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
