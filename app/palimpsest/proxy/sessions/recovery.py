"""Servers that share a database: their presence, and recovery of exchanges that a killed one left (S10).

A server counts as dead when its beat counter stands still; clocks are not compared. Recovery runs before the
first request, and when another server on the same database is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from palimpsest.core.history.message import Message, chain_of
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.responses.items import ids_in
from palimpsest.errors import RequestError, StoreError
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recorder import stored_message
from palimpsest.storage.exchange_units import CloseExchange
from palimpsest.storage.exchanges import Exchanges, InterruptedExchange
from palimpsest.storage.journal import Journal

_presence_log = structlog.get_logger("palimpsest.presence")
# Looks within the time after which a silent server counts as dead.
LOOKS = 3


class Presence:
    """Presence of servers on a shared database; `found` is called when one is gone."""

    def __init__(self, journal: Journal, found: Callable[[], Awaitable[None]], seconds: float) -> None:
        self._journal = journal
        self._found = found
        self._seconds = seconds
        # By server: its beat counter, and the looks since it changed.
        self._seen: dict[str, tuple[int, int]] = {}

    async def keep(self) -> None:
        """Beat and look periodically until cancelled."""
        while True:
            await asyncio.sleep(self._seconds / LOOKS)
            try:
                await self.look()
            except StoreError as error:
                # During an outage no server can beat: start counting again.
                self._seen.clear()
                _presence_log.warning("presence_failed", error=type(error).__name__)

    async def look(self) -> None:
        """Beat, and give up servers whose beat has stood still too long. StoreError."""
        await self._journal.beat()
        beats = await self._journal.beats()
        self._seen = {server: (beat, self._looks(server, beat)) for server, beat in beats.items()}
        gone = [server for server, (_, looks) in self._seen.items() if looks > LOOKS]
        for server in gone:
            if await self._journal.give_up(server, self._seen.pop(server)[0]):
                _presence_log.warning("server_gone", server=server)
        if gone:
            await self._found()

    def _looks(self, server: str, beat: int) -> int:
        before, looks = self._seen.get(server, (beat, 0))
        return looks + 1 if before == beat else 1


_log = structlog.get_logger("palimpsest.recovery")


async def recover(exchanges: Exchanges, reader: MessageReader, now: float) -> None:
    """Close every interrupted exchange as incomplete, as if its upstream had broken off there.

    One that cannot be stored is left for the next start.
    """
    for left in await exchanges.interrupted():
        try:
            await exchanges.close(_cut(left, _answers(left, reader), now))
        except StoreError as error:
            _log.error("partial_answer_not_recovered", error=type(error).__name__, session=left.session)
        else:
            _log.info("partial_answer_recovered", session=left.session)


def _answers(left: InterruptedExchange, reader: MessageReader) -> list[Message]:
    try:
        read = reader.read_answers([left.partial], left.model)
    except RequestError:
        return []
    return [message for message in read if message.can_stand_cut]


def _cut(left: InterruptedExchange, answers: list[Message], now: float) -> CloseExchange:
    """The record of the exchange; view and token counts were lost with the process."""
    return CloseExchange(
        namespace=left.namespace,
        session=left.session,
        exchange=left.exchange,
        head=left.head,
        base=left.base,
        state="incomplete",
        answers=[
            stored_message(
                answer, chain_of(left.head, answer.canonical), left.head, left.depth + 1, left.answers + 1
            )
            for answer in answers
        ],
        answer_state="incomplete",
        withdrawn=(),
        usage=Usage(),
        finish_reason=None,
        status=200,
        view=None,
        tokens_full=None,
        tokens_forwarded=None,
        compaction=None,
        finished_at=now,
        items=ids_in(answers[0].raw) if answers else (),
        is_overtaken=left.is_followed,
    )
