"""Daily quotas: checks them before a request goes upstream, and charges what its answer has used.

What was used is in the store, so that all processes on a database see it at once and a restart forgets
nothing. Callers without a quota have no bill, and nothing here is called for them. Days are UTC.
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


@dataclass(slots=True)
class Bill:
    """What one request is charged to, and what was charged for it so far.

    An answer may be recorded twice: its usage may come after its end.
    """

    quota: Quota
    charged: int = 0


class Quotas:
    """Checks and charges."""

    def __init__(self, accounts: Accounts, jobs: Jobs, clock: Callable[[], float] = time.time) -> None:
        self._accounts = accounts
        self._jobs = jobs
        self._clock = clock

    async def bill(self, quota: Quota) -> Bill:
        """The bill of a request; QuotaExceeded when nothing more may be used today."""
        now = self._clock()
        if said := refusal(quota, await self._accounts.used(quota.account, day_of(now))):
            raise QuotaExceeded(said, retry_seconds=int(left_of_day(now)) + 1)
        return Bill(quota)

    def charge_of(self, bill: Bill, usage: Usage, prompt_tokens: int, answer_tokens: int) -> Charge:
        """What an answer adds to its bill; see `used_by`. `settle` it once it is stored."""
        used = used_by(usage, prompt_tokens, answer_tokens)
        return Charge(bill.quota.account, day_of(self._clock()), used - bill.charged)

    def settle(self, bill: Bill, charge: Charge) -> None:
        """The charge is stored."""
        bill.charged += charge.tokens

    def charge_unrecorded(self, bill: Bill, usage: Usage) -> None:
        """Charge, in the background, what an answer that is not recorded has used."""
        self._jobs.start(self._charged(bill, usage))

    async def _charged(self, bill: Bill, usage: Usage) -> None:
        try:
            await self._accounts.charge(self.charge_of(bill, usage, 0, 0))
        except StoreError as error:
            _log.warning("use_not_stored", error=type(error).__name__, account=bill.quota.account)


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

    def usage(self, prompt: bytes | None) -> Usage:
        """The usage that it stated last.

        Without one, an estimate for a conversation with this body: an event of a stream is about a token. No
        usage without a body, too.
        """
        tail = self._tail.decode("utf-8", "replace")
        for found in reversed(list(_STATED.finditer(tail))):
            with suppress(ValueError, RecursionError):
                fields, _ = _JSON.raw_decode(tail, found.start(1))
                stated = tokens_of(fields) if "input_tokens" in fields else usage_of(fields)
                if stated != Usage():
                    return stated
        if prompt is None:
            return Usage()
        return Usage(tokens_in(len(prompt)), self._events or tokens_in(self._size))
