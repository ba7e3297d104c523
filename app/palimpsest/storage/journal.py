"""Stores events, checkpoints, memories, session settings and spending; leases; servers; compactions.

Sessions are named by our ids; nothing is written in one that does not exist. Of two rows with the same id the
first stays. The databases compare letters differently (SQLite folds ASCII only, PostgreSQL depends on its
locale), so a memory's text is stored a second time, case-folded for searching.

A compaction is stored with its journal entries, or prepared ahead. It is fenced by its session's epoch, not
by a lock: one that comes too late stores nothing, nor do its entries.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import sqlalchemy as sa

from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.storage.database import (
    Params,
    Recent,
    Repository,
    Row,
    SqlDatabase,
    Step,
    p,
    step,
)
from palimpsest.storage.sql import (
    AFTER_ALL_ARRIVALS,
    AFTER_ALL_IDS,
    ESCAPE,
    IS_OPEN,
    LIMIT,
    ONE,
    SIZES,
    Query,
    Where,
    among,
    arrivals_step,
    columns_of,
    fields_of,
    in_order,
    key_of,
    listed,
    literal,
    literally,
    new_row,
    of_namespace,
    of_session,
    packed,
    plain,
    replacing,
    row_in_session,
    rows_in,
    sized,
    there_is,
    unpacked,
)
from palimpsest.storage.tables import (
    CHECKPOINTS,
    COMPACTIONS,
    EVENTS,
    EXCHANGES,
    LEASES,
    MEMORIES,
    PREPARED,
    RESERVED,
    SERVERS,
    SESSION_SETTINGS,
    SPENDING,
)

CheckpointKind = Literal["pre_compaction", "periodic", "completion"]
MemoryKind = Literal["summary", "flush", "entry", "block"]

_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
# Event types per query.
_MOST_TYPES = 32
_MOST_WORDS = 16
# SQLite refuses patterns of more than 50,000 bytes; a character may take 9.
_WORD_CHARS = 1000
_MOST_FOLDED = 256


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of a session. `id` is unique there; `payload` is JSON; later ones have a higher `seq`."""

    id: str
    type: str
    payload: bytes
    created_at: float
    seq: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A place to go back to. `point` is the chain of the newest message that it covers.

    Newer ones have a higher `arrival`.
    """

    id: str
    kind: CheckpointKind
    point: bytes
    created_at: float
    arrival: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A text to be found again, and the id of the compaction it came from, if any.

    Ids must grow with time (UUIDv7): they order results from several sessions. Newer ones of a session have a
    higher `arrival`.
    """

    id: str
    kind: MemoryKind
    text: bytes
    compaction: str | None
    created_at: float
    session: str = field(default="", compare=False)
    arrival: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TokensSpent:
    """Requests to models and their tokens, as the models counted them.

    `cached_tokens` are the prompt tokens that the upstream reports as served from its cache.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


# Entries of each kind in `KnownSessions`.
_REMEMBERED = 20_000


class KnownSessions:
    """What turns need not read or write again: sessions without settings and compactions, sets of bodies.

    Sessions without any are remembered only where no other process writes them (`is_sole`), and never again
    once something was written: whoever has given up a write does not know when it happens. Ids of sessions
    are never used again, so that nothing is forgotten when one is erased.
    """

    def __init__(self, *, is_sole: bool) -> None:
        self._is_sole = is_sole
        self._plain: Recent[tuple[str, str], bool] = Recent(_REMEMBERED)
        self._written: Recent[tuple[str, str], bool] = Recent(_REMEMBERED)
        self._sets: Recent[tuple[str, bytes | None], bool] = Recent(_REMEMBERED)

    def is_plain(self, namespace: str, session: str) -> bool:
        """True when the session is known to have neither settings nor compactions."""
        return (namespace, session) in self._plain

    def plain(self, namespace: str, session: str) -> None:
        """The session was read as without settings and compactions."""
        if self._is_sole and (namespace, session) not in self._written:
            self._plain[namespace, session] = True

    def writes(self, namespace: str, session: str) -> None:
        """Settings or a compaction of the session are about to be written."""
        self._plain.pop((namespace, session), None)
        self._written[namespace, session] = True

    def holds(self, session: str, digest: bytes | None) -> bool:
        """True when the session's instructions, or what its requests carry, of this digest are stored."""
        return (session, digest) in self._sets

    def has_written(self, session: str, digest: bytes | None) -> None:
        """The session's set of bodies with this digest is stored; None: there is none."""
        if digest is not None:
            self._sets[session, digest] = True


class Journal(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method.

    `server` is this server's id where others may share the database. None where a server has the database
    alone, and in commands that only read: these do not beat.
    """

    def __init__(self, database: SqlDatabase, known: KnownSessions, server: str | None) -> None:
        super().__init__(database)
        self._known = known
        self.server = server

    async def add_events(self, namespace: str, session: str, events: Sequence[EventRow]) -> None:
        """Append events in this order. Stored events never change."""
        if events:
            key = key_of(namespace, session)
            await self._db.write(
                [arrivals_step(key, len(events)), Step(ADD_EVENT, in_order(key, map(fields_of, events)))]
            )

    async def events(
        self, namespace: str, session: str, after: int, limit: int, types: Sequence[str] = ()
    ) -> list[EventRow]:
        """Events with a `seq` above `after`, oldest first; of these types (at most 32), or of all."""
        named = listed([plain(each) for each in types], _MOST_TYPES) if types else {}
        asked = {"namespace": namespace, "session": session, "after": after, "limit": limit, **named}
        return await self._all(EventRow, _EVENTS_OF_TYPES[_MOST_TYPES] if types else _EVENTS, **asked)

    async def add_checkpoint(
        self,
        namespace: str,
        session: str,
        checkpoint: CheckpointRow,
        events: Sequence[EventRow] = (),
        memories: Sequence[MemoryRow] = (),
    ) -> bool:
        """Store the checkpoint, and with it these memories and events, in this order, in one transaction.

        False when the session has a checkpoint with this id: the first stays.
        """
        key = key_of(namespace, session)
        beside = len(events) + len(memories)
        steps = [
            arrivals_step(key, 1 + beside),
            Step(_ADD_CHECKPOINT, [{**key, **fields_of(checkpoint), "back": beside}]),
            *_entry_steps(key, memories, events),
        ]
        return (await self._db.write([each for each in steps if each.rows]))[1] > 0

    async def checkpoints(
        self, namespace: str, session: str, limit: int, before: int | None = None
    ) -> list[CheckpointRow]:
        """The session's checkpoints, newest first; those with a lower `arrival` than `before`."""
        asked = {"namespace": namespace, "session": session, "limit": limit}
        asked["before"] = AFTER_ALL_ARRIVALS if before is None else before
        return await self._all(CheckpointRow, _CHECKPOINTS, **asked)

    async def checkpoint(self, namespace: str, session: str, checkpoint_id: str) -> CheckpointRow | None:
        """One of the session's checkpoints."""
        asked = {"namespace": namespace, "session": session, "id": plain(checkpoint_id)}
        rows = await self._rows(_CHECKPOINT, **asked)
        return CheckpointRow(*rows[0]) if rows else None

    async def add_memory(self, namespace: str, session: str, memory: MemoryRow) -> None:
        """Store the memory."""
        key = key_of(namespace, session)
        await self._db.write([arrivals_step(key, 1), Step(ADD_MEMORY, memory_rows(key, [memory], 0))])

    async def memories(
        self,
        namespace: str,
        session: str,
        limit: int,
        kinds: Sequence[MemoryKind] = (),
        before: int | None = None,
    ) -> list[MemoryRow]:
        """The session's memories, newest first; of these kinds, or of all; `before` as in `checkpoints`."""
        named = listed(kinds or _KINDS, SIZES[0])
        asked = {"namespace": namespace, "session": session, "limit": limit, **named}
        asked["before"] = AFTER_ALL_ARRIVALS if before is None else before
        return await self._all(MemoryRow, _MEMORIES[SIZES[0]], **asked)

    async def search_memories(
        self, namespace: str, words: Sequence[str], limit: int, before: str | None = None
    ) -> list[MemoryRow]:
        """Memories of all sessions that contain every word, case-insensitive, newest first.

        `before`: the id of a memory, to find older ones.
        A word is any text and also matches inside other words. The first 16 words count, of each the first
        1000 characters; without words, all memories match.
        """
        held = [_searched(word[:_WORD_CHARS].encode("utf-8", "surrogatepass")) for word in words]
        patterns = listed([f"%{literally(word)}%" for word in held] or ["%"], _MOST_WORDS)
        asked = {"namespace": namespace, "limit": limit, **patterns}
        asked["before"] = plain(before) if before else AFTER_ALL_IDS
        return await self._all(MemoryRow, _SEARCH, **asked)

    async def replace_memory_block(
        self, namespace: str, session: str, folded: Sequence[str], block: MemoryRow
    ) -> bool:
        """Replace the memories with the ids `folded` (at most 256) by `block`, in one transaction.

        False, and nothing changed, when one of them no longer exists: another caller has folded it, or this
        call is a repetition. A block replaces one with the same id.
        """
        key = key_of(namespace, session)
        ids = list(dict.fromkeys(map(plain, folded)))
        if len(ids) > _MOST_FOLDED:
            raise ValueError(f"at most {_MOST_FOLDED} memories are folded at once, not {len(ids)}")
        steps = [arrivals_step(key, 1), Step(_PUT_BLOCK, memory_rows(key, [block], 0), "touched")]
        if ids:
            steps.insert(
                1, step(_REMOVE_ALL[_MOST_FOLDED], **key, **listed(ids, _MOST_FOLDED), count=len(ids))
            )
        return (await self._db.write(steps))[-1] > 0

    async def settings_of(self, namespace: str, session: str) -> bytes | None:
        """The session's settings as stored, or None; reads one row inline."""
        rows = await self._few(_SETTINGS, namespace=namespace, session=session)
        return bytes(rows[0][0]) if rows else None

    async def put_settings(self, namespace: str, session: str, payload: bytes | None) -> None:
        """Replace the session's settings; None removes them."""
        self._known.writes(namespace, session)
        key = key_of(namespace, session)
        put = [arrivals_step(key, 0), step(_PUT_SETTINGS, **key, payload=payload)]
        await self._db.write([step(_REMOVE_SETTINGS, **key)] if payload is None else put)

    async def add_spending(self, namespace: str, day: str, spent: TokensSpent) -> None:
        """Add to the sum of `day`, a UTC date as YYYY-MM-DD. Not idempotent."""
        await self._wrote(_ADD_SPENDING, namespace=namespace, day=day, **fields_of(spent))

    async def spending(self, namespace: str, since: str) -> TokensSpent:
        """The sum of the day `since` and later ones."""
        rows = await self._few(_SPENDING, namespace=namespace, day=since)
        return TokensSpent(*map(int, rows[0]))

    async def take_lease(self, key: str, holder: str, now: float, seconds: float) -> bool:
        """Give `holder` the lease until `now + seconds`; False when another holder has it still.

        Of several concurrent callers one gets it. The holder may take it again. Leases belong to no
        namespace. `now` is the caller's clock, so servers' clocks should agree within seconds.
        """
        lease = {"key": key, "holder": holder, "expires_at": now + seconds}
        return await self._wrote(_TAKE_LEASE, **lease, now=now) > 0

    async def renew_lease(self, key: str, holder: str, now: float, seconds: float) -> bool:
        """Extend the lease until `now + seconds`. False when `holder` has lost it."""
        lease = {"key": key, "holder": holder, "expires_at": now + seconds}
        return await self._wrote(_RENEW_LEASE, **lease) > 0

    async def release_lease(self, key: str, holder: str) -> None:
        """Release the lease if `holder` has it."""
        await self._wrote(_RELEASE_LEASE, key=key, holder=holder)

    async def is_leased(self, key: str, now: float, besides: str = "") -> bool:
        """True while a holder other than `besides` has the lease."""
        return bool(await self._few(_IS_LEASED, key=key, now=now, besides=besides))

    async def beat(self) -> None:
        """Announce this server to the others: before it opens exchanges, then periodically."""
        await self._wrote(_BEAT, id=self.server)

    async def leave(self) -> None:
        """Withdraw this server, which has closed its exchanges."""
        await self._db.write([step(_LEAVE, id=self.server), step(_FREE_RESERVED_OF, id=self.server)])

    async def beats(self) -> dict[str, int]:
        """The number of beats of every other server that is announced or has open exchanges.

        A living server's number grows; 0: it was never announced.
        """
        return dict(map(tuple, await self._few(_BEATS, id=self.server)))

    async def give_up(self, server: str, beats: int) -> bool:
        """Mark the server's open exchanges as failed; free its leases and what it reserved of quotas.

        False, and nothing done, if its beats are no longer `beats`; False too when there was nothing to do.
        """
        key = {"id": server, "beats": beats}
        frees = (_STOPPED, FAIL_OPEN_OF, _FREE_LEASES, _FREE_RESERVED_OF)
        steps = [step(statement, **key) for statement in frees]
        return any(await self._db.write(steps))


def _entry_steps(key: Params, memories: Sequence[MemoryRow], events: Sequence[EventRow]) -> Iterable[Step]:
    """The steps that add memories and then events, the newest of the unit."""
    yield Step(ADD_MEMORY, memory_rows(key, memories, len(events)))
    yield Step(ADD_EVENT, in_order(key, map(fields_of, events)))


def memory_rows(key: Params, memories: Sequence[MemoryRow], after: int) -> list[Params]:
    """The rows of `memories`; `after` more arrive after them in the unit."""
    rows = ({**fields_of(memory), "searched": _searched(memory.text)} for memory in memories)
    return in_order(key, rows, after)


def _searched(text: bytes) -> str:
    """The text case-folded, without characters that a text column refuses."""
    return text.decode("utf-8", "replace").replace("\0", "\ufffd").casefold()


def _events(*of_types: Where) -> Query:
    rows = sa.select(*columns_of(EVENTS, "id", "type", "payload", "created_at", "seq"))
    after = EVENTS.c.seq > p("after")
    rows = rows.where(of_session(EVENTS), after, *of_types).order_by(EVENTS.c.seq)
    return rows.limit(LIMIT)


def _memories(*where: Where) -> Query:
    columns = columns_of(MEMORIES, "id", "kind", "text", "compaction", "created_at", "session", "arrival")
    return sa.select(*columns).where(of_namespace(MEMORIES), *where).limit(LIMIT)


ADD_EVENT = row_in_session(EVENTS).on_conflict_do_nothing()
ADD_NUMBERED_EVENT = new_row(EVENTS).on_conflict_do_nothing()
_EVENTS = _events()
_EVENTS_OF_TYPES = sized(_events(among(EVENTS.c.type)), [_MOST_TYPES])

_STORED_CHECKPOINTS = rows_in(CHECKPOINTS, "id", "kind", "point", "created_at", "arrival")
_ADD_CHECKPOINT = row_in_session(CHECKPOINTS).on_conflict_do_nothing()
_CHECKPOINTS = (
    _STORED_CHECKPOINTS.where(CHECKPOINTS.c.arrival < p("before"))
    .order_by(CHECKPOINTS.c.arrival.desc())
    .limit(LIMIT)
)
_CHECKPOINT = _STORED_CHECKPOINTS.where(CHECKPOINTS.c.id == p("id"))

ADD_MEMORY = row_in_session(MEMORIES).on_conflict_do_nothing()
_PUT_BLOCK = replacing(
    row_in_session(MEMORIES), "arrival", "kind", "text", "searched", "compaction", "created_at"
)
# Deletes all listed rows, or none when one is missing: concurrent folds make one block.
_THERE = MEMORIES.alias("there")
_REMOVE_ALL = sized(
    sa.delete(MEMORIES).where(
        of_session(MEMORIES),
        among(MEMORIES.c.id),
        sa.select(sa.func.count()).where(of_session(_THERE), among(_THERE.c.id)).scalar_subquery()
        == p("count"),
    )
)
_MEMORIES = sized(
    _memories(
        MEMORIES.c.session == p("session"),
        among(MEMORIES.c.kind),
        MEMORIES.c.arrival < p("before"),
    ).order_by(MEMORIES.c.arrival.desc())
)
_SEARCH = _memories(
    MEMORIES.c.id < p("before"),
    *(MEMORIES.c.searched.like(p(f"value_{i + 1}"), escape=ESCAPE) for i in range(_MOST_WORDS)),
).order_by(MEMORIES.c.id.desc())

_SETTINGS = rows_in(SESSION_SETTINGS, "payload")
_PUT_SETTINGS = replacing(row_in_session(SESSION_SETTINGS), "payload")
_REMOVE_SETTINGS = sa.delete(SESSION_SETTINGS).where(of_session(SESSION_SETTINGS))

# Older rows have no cached tokens.
_SPENT = {name: sa.func.coalesce(SPENDING.c[name], 0) for name in fields_of(TokensSpent())}
_NEW_SPENDING = new_row(SPENDING)
_ADDED = {name: spent + _NEW_SPENDING.excluded[name] for name, spent in _SPENT.items()}
_ADD_SPENDING = replacing(_NEW_SPENDING, **_ADDED)
_SPENDING = sa.select(*(sa.func.coalesce(sa.func.sum(spent), literal(0)) for spent in _SPENT.values())).where(
    of_namespace(SPENDING), SPENDING.c.day >= p("day")
)

_HELD = (LEASES.c.key == p("key"), LEASES.c.holder == p("holder"))
# Evaluated once the row is locked: of two concurrent takers the second sees the first's lease.
_IS_FREE = sa.or_(LEASES.c.expires_at <= p("now"), LEASES.c.holder == new_row(LEASES).excluded.holder)
_TAKE_LEASE = replacing(new_row(LEASES), "holder", "expires_at", where=_IS_FREE)
_RENEW_LEASE = sa.update(LEASES).where(*_HELD).values(expires_at=p(LEASES.c.expires_at))
_RELEASE_LEASE = sa.delete(LEASES).where(*_HELD)
_IS_LEASED = sa.select(LEASES.c.key).where(
    LEASES.c.key == p("key"), LEASES.c.expires_at > p("now"), LEASES.c.holder != p("besides")
)

_IS_THERE = there_is(SERVERS.c.id == p("id"))
_BEAT = replacing(new_row(SERVERS, beats=ONE), beats=SERVERS.c.beats + ONE)
_LEAVE = sa.delete(SERVERS).where(SERVERS.c.id == p("id"))
# A handful of rows: the servers, and those with open exchanges.
_BEATS = sa.union(
    sa.select(SERVERS.c.id, SERVERS.c.beats).where(SERVERS.c.id != p("id")),
    sa.select(EXCHANGES.c.server, literal(0)).where(
        IS_OPEN, EXCHANGES.c.server != p("id"), EXCHANGES.c.server.not_in(sa.select(SERVERS.c.id))
    ),
)
_STOPPED = sa.delete(SERVERS).where(SERVERS.c.id == p("id"), SERVERS.c.beats == p("beats"))
# No process is left to close the exchanges of a killed one; failed, they do not make a retry ambiguous.
OPEN_FAILED = sa.update(EXCHANGES).where(IS_OPEN).values(state=literal("failed"))
# All only after `_STOPPED` has removed the server's row: a server that beat since still has one.
FAIL_OPEN_OF = OPEN_FAILED.where(EXCHANGES.c.server == p("id"), ~_IS_THERE)
_FREE_LEASES = sa.delete(LEASES).where(LEASES.c.holder == p("id"), ~_IS_THERE)
_FREE_RESERVED_OF = sa.delete(RESERVED).where(RESERVED.c.server == p("id"), ~_IS_THERE)
FREE_RESERVED = sa.delete(RESERVED)


_VALUES = (
    *("id", "kind", "watermark", "kept", "masks", "summary", "policy", "trigger", "author", "model"),
    *("tokens_before", "tokens_after", "messages_folded", "parents", "reason", "state", "details", "memory"),
)
_MASK = struct.Struct(">32sQ")
# The rows of a longer summary are built on another thread: case-folding its text takes 10 ms per MB.
_INLINE_CHARS = 256 * 1024


@dataclass(frozen=True, slots=True)
class StoredCompaction:
    """A compaction with its times; newer ones have a higher `arrival`."""

    compaction: Compaction
    arrival: int
    created_at: float
    undone_at: float | None = None


@dataclass(frozen=True, slots=True)
class JournalEntries:
    """Memories and events stored in a compaction's transaction, in this order."""

    memories: Sequence[MemoryRow] = ()
    events: Sequence[EventRow] = ()


NO_ENTRIES = JournalEntries()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compaction written ahead for a conversation with `model`; not in force yet."""

    compaction: Compaction
    model: str


# A compaction and when it was made.
DatedCompaction: TypeAlias = tuple[Compaction, float]


class Compactions(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(self, database: SqlDatabase, known: KnownSessions) -> None:
        super().__init__(database)
        self._known = known

    async def of_session(self, namespace: str, session: str) -> list[StoredCompaction]:
        """The session's compactions, oldest first, including undone ones."""
        return (await self.with_settings(namespace, session))[1]

    async def with_settings(
        self, namespace: str, session: str
    ) -> tuple[bytes | None, list[StoredCompaction]]:
        """The session's settings as stored, or None, and what `of_session` returns, by one statement."""
        if self._known.is_plain(namespace, session):
            return None, []
        rows = await self._few(_WITH_SETTINGS, namespace=namespace, session=session)
        payload = rows[0][0]
        # A session without compactions has one row.
        made = [_stored(row[1:]) for row in rows if row[1] is not None]
        if payload is None and not made:
            self._known.plain(namespace, session)
        return None if payload is None else bytes(payload), made

    async def authors(self, namespace: str, since: float) -> dict[str, int]:
        """How many compactions of all sessions were made since that time (UTC seconds), by their author."""
        rows = await self._rows(_AUTHORS, namespace=namespace, since=since)
        return {row[0]: row[1] for row in rows}

    async def get(self, namespace: str, compaction_id: str) -> tuple[str, StoredCompaction] | None:
        """The compaction with this id and its session; when imported sessions share it, the newest one's."""
        rows = await self._few(_BY_ID, namespace=namespace, id=plain(compaction_id))
        return (rows[0][0], _stored(rows[0][1:])) if rows else None

    async def add(
        self,
        namespace: str,
        session: str,
        epoch: int,
        compaction: Compaction,
        now: float,
        entries: JournalEntries = NO_ENTRIES,
    ) -> bool:
        """Store the compaction; removes the prepared one of this id.

        False, and nothing stored, not even `entries`, when the session's epoch is no longer `epoch`. True
        when the same compaction is added again.
        """
        self._known.writes(namespace, session)
        key = {"namespace": namespace, "session": session, "epoch": epoch}
        if len(compaction.summary) > _INLINE_CHARS:
            steps = await asyncio.to_thread(_adding, key, compaction, now, entries)
        else:
            steps = _adding(key, compaction, now, entries)
        return (await self._db.write([each for each in steps if each.rows]))[0] > 0

    async def undo(self, namespace: str, session: str, compaction_id: str, now: float) -> bool:
        """Mark the compaction as undone at `now`. False when it does not exist or was undone before."""
        key = {"namespace": namespace, "session": session, "id": plain(compaction_id)}
        return await self._wrote(_UNDO, **key, undone_at=now) > 0

    async def prepare(self, namespace: str, session: str, prepared: Prepared) -> None:
        """Store the session's prepared compaction in place of an earlier one; any server may use it."""
        key = key_of(namespace, session)
        payload = msgspec.msgpack.encode(_values(prepared.compaction))
        put = step(_PREPARE, **key, id=prepared.compaction.id, model=plain(prepared.model), payload=payload)
        await self._db.write([arrivals_step(key, 0), put])

    async def prepared(self, namespace: str, session: str) -> Prepared | None:
        """The session's prepared compaction; `add` of its id removes it."""
        rows = await self._few(_PREPARED, namespace=namespace, session=session)
        return Prepared(_compaction(msgspec.msgpack.decode(rows[0][1])), rows[0][0]) if rows else None


def _adding(key: Params, compaction: Compaction, now: float, entries: JournalEntries) -> list[Step]:
    beside = len(entries.memories) + len(entries.events)
    return [
        # The fence: in another epoch the unit ends here.
        replace(arrivals_step(key, 1 + beside), needed=True),
        Step(_ADD_COMPACTION, [{**key, **compaction_row(compaction, now), "back": beside}]),
        *_entry_steps(key, entries.memories, entries.events),
        step(_NO_LONGER_PREPARED, **key, id=compaction.id),
    ]


def compaction_row(compaction: Compaction, now: float) -> Params:
    """The values of a compaction that was made then, by name."""
    return {**_values(compaction), "created_at": now}


def _values(compaction: Compaction) -> Params:
    """A compaction's fields as text, bytes and integers, by name."""
    return fields_of(compaction) | {
        "kept": packed(compaction.kept),
        "masks": b"".join(_MASK.pack(mask.chain, mask.limit_chars) for mask in compaction.masks),
        # A summary may quote a lone surrogate from a message.
        "summary": compaction.summary.encode("utf-8", "surrogatepass"),
        "parents": json.dumps(compaction.parents),
        "memory": compaction.memory.encode("utf-8", "surrogatepass"),
    }


def _compaction(values: Mapping[str, Any]) -> Compaction:
    """The inverse of `_values`; ValueError for a damaged record."""
    fields = dict(values)
    try:
        fields["kept"] = unpacked(fields["kept"])
        fields["masks"] = tuple(Mask(*mask) for mask in _MASK.iter_unpack(fields["masks"]))
    except struct.error as error:
        raise ValueError("the record of a compaction is damaged") from error
    fields["summary"] = fields["summary"].decode("utf-8", "surrogatepass")
    # Rows written before revision 0002 have none.
    fields["memory"] = (fields["memory"] or b"").decode("utf-8", "surrogatepass")
    fields["parents"] = tuple(json.loads(fields["parents"]))
    return Compaction(**fields)


def _stored(row: Row) -> StoredCompaction:
    arrival, undone_at, created_at, *values = row
    compaction = _compaction(dict(zip(_VALUES, values, strict=True)))
    return StoredCompaction(compaction, arrival, created_at, undone_at)


_STORED = columns_of(COMPACTIONS, "arrival", "undone_at", "created_at", *_VALUES)
_BY_ID = (
    sa.select(COMPACTIONS.c.session, *_STORED)
    .where(COMPACTIONS.c.id == p("id"), of_namespace(COMPACTIONS))
    .order_by(COMPACTIONS.c.session.desc())
    .limit(ONE)
)
_AUTHORS = (
    sa.select(COMPACTIONS.c.author, sa.func.count())
    .where(of_namespace(COMPACTIONS), COMPACTIONS.c.created_at >= p("since"))
    .group_by(COMPACTIONS.c.author)
)
_ONE_ROW = sa.select(ONE.label("one")).subquery()
_WITH_SETTINGS = (
    sa.select(SESSION_SETTINGS.c.payload, *_STORED)
    .select_from(_ONE_ROW)
    .outerjoin(SESSION_SETTINGS, of_session(SESSION_SETTINGS))
    .outerjoin(COMPACTIONS, of_session(COMPACTIONS))
    .order_by(COMPACTIONS.c.arrival)
)
_ADD_COMPACTION = row_in_session(COMPACTIONS, undone_at=sa.null()).on_conflict_do_nothing()
ADD_DATED_COMPACTION = new_row(COMPACTIONS, undone_at=sa.null()).on_conflict_do_nothing()
_UNDO = (
    sa.update(COMPACTIONS)
    .where(of_session(COMPACTIONS), COMPACTIONS.c.id == p("id"), COMPACTIONS.c.undone_at.is_(None))
    .values(undone_at=p(COMPACTIONS.c.undone_at))
)
_PREPARED = rows_in(PREPARED, "model", "payload")
_PREPARE = replacing(row_in_session(PREPARED), "id", "model", "payload")
_NO_LONGER_PREPARED = sa.delete(PREPARED).where(of_session(PREPARED), PREPARED.c.id == p("id"))
