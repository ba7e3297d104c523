"""Reads and writes exchanges: a request before it is forwarded, its answer before the client sees the end.

What they store and the units that write it are in `exchange_units`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from palimpsest.core.history.stored_points import Rebase
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.wire.json_spans import raw_elements
from palimpsest.core.wire.json_text import array_of
from palimpsest.errors import Conflict, StoreError
from palimpsest.storage import exchanges_sql as sql
from palimpsest.storage.accounts import Accounts, ProvenNamespaces, proof_step
from palimpsest.storage.compactions import DatedCompaction
from palimpsest.storage.database import (
    Pace,
    Params,
    Reading,
    Repository,
    Row,
    SqlDatabase,
    Unit,
    rows_of,
    step,
)
from palimpsest.storage.erasure import GIVE_UP_IMPORT, RecentlyErased
from palimpsest.storage.exchange_units import (
    INLINE_MESSAGES,
    CloseExchange,
    OpenExchange,
    StoredMessage,
    beginning,
    closing,
    importing,
    is_answered,
    is_quick,
    opening,
)
from palimpsest.storage.journal import EventRow, KnownSessions
from palimpsest.storage.sql import SIZES, bodies_of, grouped, listed, plain, rows_among, unfinished

# Open exchanges from which on a commit waits for further units: with fewer, hardly any would come.
_CROWD = 8


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A finished request: its last message, its model and the tokens of its full prompt, tools included.

    `tokens_full` and `tokens_forwarded` (the prompt that was sent) are in our count, `prompt_tokens` is the
    upstream's count of the latter. None when unknown; `compaction` None: none was in force. `finished_at` is
    in seconds since 1970.
    """

    head: bytes
    model: str
    tokens_full: int
    tokens_forwarded: int | None = None
    prompt_tokens: int | None = None
    compaction: str | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class InterruptedExchange:
    """An exchange that a dead process left open, and its answer as far as it was saved.

    `partial` is the answer's message as it was given to `save_partial`. `depth` and `answers` are those of
    `head`, the request's last message: an answer to it has one more of each. `is_followed`: the conversation
    has continued from `head` already.
    """

    namespace: str
    session: str
    exchange: str
    head: bytes
    base: bytes
    model: str
    partial: bytes
    depth: int
    answers: int
    is_followed: bool = False


class Exchanges(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(
        self,
        database: SqlDatabase,
        accounts: Accounts,
        proven: ProvenNamespaces,
        erased: RecentlyErased,
        known: KnownSessions,
        server: str | None,
    ) -> None:
        super().__init__(database)
        self._accounts = accounts
        self._known = known
        self._proven = proven
        self._erased = erased
        self._server = server
        # Open exchanges, on whose number the pace of commits depends.
        self._open: set[str] = set()

    async def open(self, exchange: OpenExchange) -> None:
        """Commit a request (P2). Conflict when `external_id` names another session already."""
        size = (0, 0)
        if exchange.rebase is not None:
            size = await self._db.read_snapshot(_rebase_size(exchange, exchange.rebase))
        is_long = len(exchange.messages) > INLINE_MESSAGES
        units: Iterator[Unit] = iter(())
        unit: Unit | None
        if is_long and not (exchange.continues or exchange.base or exchange.rebase):
            units = beginning(exchange, self._server)
            unit = await asyncio.to_thread(next, units)
        else:
            build = partial(opening, self._unknown(exchange), size, self._server)
            unit = await asyncio.to_thread(build) if is_long else build()
        place = exchange.namespace, exchange.session
        if place in self._erased or (exchange.namespace, "") in self._erased:
            # The session was erased meanwhile (rule 30). Nothing is awaited between this check and the write.
            return
        pace = self._pace(exchange.messages)
        self._open.add(exchange.exchange)
        try:
            while unit is not None:
                await self._db.write(unit, pace=pace)
                unit = await asyncio.to_thread(next, units, None) if is_long else None
        except (StoreError, Conflict):
            self._open.discard(exchange.exchange)
            if is_long:
                with suppress(StoreError):
                    hidden = unfinished(exchange.namespace)
                    await self._wrote(GIVE_UP_IMPORT, session=exchange.session, hidden=hidden)
            raise
        self._known.has_written(exchange.session, exchange.preamble_digest)
        self._known.has_written(exchange.session, exchange.carried_digest)

    async def close(self, exchange: CloseExchange) -> None:
        """Commit an answer or a failure (P3); nothing is stored for an erased exchange (rule 30).

        A namespace's first answer proves it (rule 26).
        """
        is_sent = self._known.holds(exchange.session, exchange.sent_digest)
        unit = closing(replace(exchange, sent=()) if is_sent else exchange)
        proves = exchange.namespace not in self._proven and is_answered(exchange)
        if proves:
            unit = [*unit, proof_step(exchange.namespace, exchange.finished_at)]
        # First, so that also what is erased meanwhile was used.
        charges = self._accounts.steps_of(exchange.charge) if exchange.charge is not None else []
        self._open.discard(exchange.exchange)
        pace = self._pace(exchange.answers)
        touched = await self._db.write([*charges, *unit], pace=pace)
        if proves and touched[len(charges)]:
            self._proven.add(exchange.namespace)
        self._known.has_written(exchange.session, exchange.sent_digest)

    def is_open(self, exchange: str) -> bool:
        """True from `open` to `close` of an exchange of this process."""
        return exchange in self._open

    def _unknown(self, exchange: OpenExchange) -> OpenExchange:
        """The exchange without the instructions, and what it carried, that its session has stored already."""
        if not exchange.continues:
            return exchange
        has = self._known.holds(exchange.session, exchange.preamble_digest)
        carries = self._known.holds(exchange.session, exchange.carried_digest)
        if not (has or carries):
            return exchange
        return replace(
            exchange, preamble=() if has else exchange.preamble, carried=() if carries else exchange.carried
        )

    def _pace(self, messages: Sequence[StoredMessage]) -> Pace:
        """The pace for a unit with these messages, beside the exchanges that are open."""
        if not self._open and is_quick(messages):
            return "alone"
        return "crowded" if len(self._open) >= _CROWD else "usual"

    async def import_session(
        self,
        opened: OpenExchange,
        times: Sequence[float],
        events: Sequence[EventRow],
        made: Sequence[DatedCompaction] = (),
    ) -> None:
        """Create a session without exchanges from `opened.messages`, with their `times`, and `events`.

        `made` are compactions, oldest first, each with the time it was made. It is written in slices, and
        found by nobody before the last one; after a failure `Erasure.drop_import` is called for the others.
        Conflict when `external_id` names another session already.
        """
        self._known.writes(opened.namespace, opened.session)
        units = importing(opened, times, events, made)
        while (unit := await asyncio.to_thread(next, units, None)) is not None:
            if not (await self._db.write(unit))[0]:
                # It is there already, or was erased meanwhile.
                return

    async def save_partial(self, namespace: str, session: str, exchange: str, body: bytes) -> None:
        """Save the answer so far, replacing the earlier one; `close` erases it.

        Nothing happens when the exchange is not open.
        """
        key = {"namespace": namespace, "session": session, "exchange": exchange}
        await self._wrote(sql.SAVE_PARTIAL, **key, partial=body)

    async def interrupted(self) -> list[InterruptedExchange]:
        """Every failed exchange, of all namespaces, that still has a partial answer.

        A killed server leaves them. They are listed until `close`: on SQLite from the next start, on a shared
        PostgreSQL database from another server's `journal.give_up`.
        """
        return await self._db.read_snapshot(_interrupted())

    async def of_key(self, namespace: str, idempotency_key: str) -> tuple[str, bytes] | None:
        """Session and head of the newest exchange with this idempotency key."""
        key = plain(idempotency_key)
        rows = await self._few(sql.OF_KEY, namespace=namespace, idempotency_key=key)
        return (rows[0][0], rows[0][1]) if rows else None

    async def finished(self, namespace: str, session: str, heads: Sequence[bytes]) -> FinishedRequest | None:
        """The newest finished request that ended at one of `heads` (at most 8), None when there is none."""
        if not heads:
            return None
        asked = {"namespace": namespace, "session": session, **listed("head", heads, sql.HEADS)}
        rows = await self._few(sql.FINISHED, **asked)
        return FinishedRequest(*rows[0]) if rows else None

    async def newest_finished(self, namespace: str, sessions: Sequence[str]) -> dict[str, FinishedRequest]:
        """The newest finished request of each of `sessions`; those without one are left out.

        Requests marked as beside a conversation do not count.
        """
        reading = rows_among(sql.NEWEST_FINISHED, "session", sessions, namespace=namespace)
        rows = await self._db.read_snapshot(reading)
        return {session: FinishedRequest(*request) for session, *request in rows}

    async def hidden_rounds(
        self, namespace: str, session: str, chains: Sequence[bytes]
    ) -> dict[bytes, HiddenRounds]:
        """The hidden rounds of the answers at `chains`; answers without any are left out."""
        reading = rows_among(sql.ROUNDS_AMONG, "chain", chains, namespace=namespace, session=session)
        rows = await (
            self._db.read_bounded(reading) if len(chains) <= SIZES[-1] else self._db.read_snapshot(reading)
        )
        return {bytes(row[0]): _hidden(row) for row in rows}

    async def add_hidden_results(
        self, namespace: str, session: str, chain: bytes, results: Sequence[bytes], tokens: int
    ) -> bool:
        """Store the results of our tool calls in the answer at `chain`; `tokens` counts answer and results.

        False, and nothing stored, when they are stored already or a message follows the answer: a
        conversation that continued without them stays that way.
        """
        key = {"namespace": namespace, "session": session, "chain": chain}
        added = step(sql.ADD_RESULTS, **key, results=array_of(results), written_tokens=tokens)
        return (await self._db.write([added]))[0] > 0

    async def answers_with(
        self, namespace: str, items: Sequence[str], after: bytes | None = None
    ) -> dict[str, list[bytes]]:
        """The bodies of relayed answers that contain an item of this id, for each known id.

        With `after`, only answers to the message of this chain. An id that more than 8 answers share has an
        empty list.
        """
        reading = _answers_with(namespace, items, after)
        return await (
            self._db.read_bounded(reading)
            if len(items) <= sql.ITEM_SIZES[0]
            else self._db.read_snapshot(reading)
        )

    async def items_of(self, namespace: str, session: str) -> list[str]:
        """The ids of the items of a session's answers, at most 4096, escaped by `plain`."""
        rows = await self._rows(sql.ITEMS_OF, namespace=namespace, session=session)
        return [ident for (ident,) in rows]


def _hidden(row: Row) -> HiddenRounds:
    _, messages, tokens, written, results, written_tokens = row
    return HiddenRounds(
        before=tuple(raw_elements(bytes(messages))),
        tokens=tokens,
        written=None if written is None else bytes(written),
        results=None if results is None else tuple(raw_elements(bytes(results))),
        written_tokens=written_tokens,
    )


def _rebase_size(exchange: OpenExchange, rebase: Rebase) -> Reading[tuple[int, int]]:
    """The numbers of messages and relayed answers on the path of a rebase."""
    point: Params = {"namespace": exchange.namespace, "session": exchange.session, "chain": rebase.base}
    base = (yield from rows_of(sql.SIZE_OF, **point)) if rebase.base else []
    depth, answers = base[0] if base else (0, 0)
    for members, _ in grouped("chain", rebase.members, (sql.MEMBERS,)):
        answers += (yield from rows_of(sql.RELAYED_AMONG, **{**point, **members}))[0][0]
    return depth + len(rebase.members), answers


def _interrupted() -> Reading[list[InterruptedExchange]]:
    found = []
    for row in (yield from rows_of(sql.INTERRUPTED)):
        point = {"namespace": row[0], "session": row[1], "chain": row[3]}
        sizes = yield from rows_of(sql.SIZE_OF, **point)
        depth, answers = sizes[0] if sizes else (0, 0)
        followed = yield from rows_of(sql.IS_FOLLOWED, **point)
        found.append(InterruptedExchange(*[*row, depth, answers, bool(followed[0][0])]))
    return found


def _answers_with(
    namespace: str, items: Sequence[str], after: bytes | None
) -> Reading[dict[str, list[bytes]]]:
    asked = {"namespace": namespace, "after": after}
    statements = sql.ANSWERS_WITH if after is None else sql.ANSWERS_AFTER_WITH
    found: defaultdict[str, set[bytes]] = defaultdict(set)
    for ident, digest in (yield from rows_among(statements, "item", map(plain, items), **asked)):
        found[ident].add(digest)
    few = {ident: digests for ident, digests in found.items() if len(digests) <= sql.MOST_ANSWERS}
    bodies = yield from bodies_of(namespace, [digest for digests in few.values() for digest in digests])
    known = [ident for ident in items if plain(ident) in found]
    return {ident: [bodies[digest] for digest in few.get(plain(ident), ())] for ident in known}
