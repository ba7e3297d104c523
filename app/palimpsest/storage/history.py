"""Reads conversations (points, paths, transcripts, branches, sessions, names); reads and writes pins.

Session and exchange ids grow with time (UUIDv7), so listings are ordered by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from types import MappingProxyType

from palimpsest.core.history.branches import BranchKind, BranchRequest, SessionTree, Texts, TreePoint
from palimpsest.core.history.quotes import Said, all_words_of, words_of
from palimpsest.core.history.stored_points import (
    MessageState,
    PathEntry,
    Point,
    Rebase,
    StoredPoint,
    bases_of,
    lineage_of,
    path_of,
)
from palimpsest.storage import history_sql as sql
from palimpsest.storage.database import (
    Params,
    Reading,
    Repository,
    Row,
    Statement,
    from_snapshot,
    rows_of,
    step,
)
from palimpsest.storage.sql import (
    AFTER_ALL_ARRIVALS,
    AFTER_ALL_IDS,
    DIGEST_BYTES,
    arrivals_step,
    bodies_of,
    key_of,
    listed,
    literally,
    plain,
    rows_among,
    unpacked,
)

# The mode of requests that continue a conversation whose beginning only the upstream has.
BEGINS_UNSEEN = "upstream"
_MIN_PREFIX_BYTES = 12
# At most so many digests are looked up on the calling thread.
_NEAR = sum(sql.PROBE_SIZES[:2])
# States of a newest exchange that ended without a whole answer; an open one may still be answered.
_FAILED = frozenset({"failed", "rejected", "refused", "incomplete"})
# Why an answer ended that calls tools.
_CALLS = frozenset({"tool_calls", "function_call"})
# Of what was said last: sessions, and messages of each; a turn may have several side requests.
_SESSIONS_LAST, _MESSAGES_LAST, _MESSAGES_NOW = 16, 48, 12
_ARRIVAL, _DIGEST = sql.FACTS.index("arrival"), sql.FACTS.index("digest")


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as the API lists it."""

    id: str
    external_id: str | None
    epoch: int
    found_by: str
    model: str
    full_history: bool
    created_at: float
    updated_at: float
    messages: int
    exchanges: int
    compactions: int
    is_side: bool = False
    # Grows with whatever is stored of the session.
    arrivals: int = 0


@dataclass(frozen=True, slots=True)
class NamedSession:
    """The columns of a session that deciding about a request needs."""

    id: str
    external_id: str | None
    epoch: int
    full_history: bool
    appends: bool = False


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """An answer: its session, its chain there, and the digest of the instructions of its request.

    `has_hidden`: hidden rounds led to it, or it was rewritten for the client (rule 31). `begins_unseen`: only
    the upstream has the beginning of the conversation.
    """

    session: str
    chain: bytes
    preamble: bytes
    has_hidden: bool = False
    begins_unseen: bool = False


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A stored message; `in_path` is false when the client has dropped it since."""

    chain: bytes
    canonical: bytes
    role: str
    tokens: int
    depth: int
    arrival: int
    relayed: bool
    state: MessageState
    in_path: bool
    body: bytes
    finish_reason: str | None
    created_at: float


@dataclass(frozen=True, slots=True)
class Head:
    """A branch: its newest message and the number of relayed answers on its path.

    `beside` is the message of the default branch where this branch forks off, b"" for none.
    """

    chain: bytes
    answers: int
    depth: int
    arrival: int
    preamble: bytes
    kind: BranchKind = "main"
    beside: bytes = b""


@dataclass(frozen=True, slots=True)
class PinRow:
    """A message pinned by hand; with `is_lifted`, one pinned by its own text whose pin was taken back."""

    chain: bytes
    created_at: float
    is_lifted: bool = False


NO_FIELDS: Mapping[str, str] = MappingProxyType({})


class History(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    async def known(self, namespace: str, chains: Sequence[bytes], session: str | None) -> list[StoredPoint]:
        """The deepest points among `chains` (oldest first) that are stored, live or incomplete.

        Returns every row (one per session) of the deepest known chain and, when none of those has a
        relayed answer on its path, those of the deepest chain that has. Limited to `session` if given.
        When more than 64 sessions share a chain, the 64 newest are read.
        """
        newest, older = chains[-_NEAR:], chains[:-_NEAR]
        found = await self._db.read_bounded(_known(namespace, newest, session))
        if not older or any(point.answers for point in found):
            return found
        if found:
            return [*found, *await self._db.read_snapshot(_deepest(namespace, older, session, answered=True))]
        return await self._db.read_snapshot(_known(namespace, older, session))

    async def relayed(
        self, namespace: str, canonicals: Sequence[bytes], session: str | None
    ) -> list[StoredPoint]:
        """Relayed answers, live or incomplete, whose own canonical digest is one of `canonicals`.

        In the order of `canonicals`; at most 64 per digest.
        """
        reading = _relayed(namespace, tuple(dict.fromkeys(canonicals)), session)
        return await (
            self._db.read_bounded(reading) if len(canonicals) <= _NEAR else self._db.read_snapshot(reading)
        )

    @from_snapshot
    def path(self, namespace: str, session: str, chain: bytes) -> Reading[list[PathEntry]]:
        """The path named by `chain`, oldest first; empty when unknown."""
        rows = yield from _path(key_of(namespace, session), chain)
        return [PathEntry(row[0], row[1], row[_DIGEST], row[2], bool(row[6])) for row in rows]

    @from_snapshot
    def messages(
        self, namespace: str, session: str, chain: bytes, since: bytes = b""
    ) -> Reading[list[MessageRow]]:
        """The path named by `chain` with bodies, oldest first: the list the client sent.

        Begins with the message `since` if that is on the path; older rows are then not read.
        """
        key = key_of(namespace, session)
        path = yield from _path(key, chain, since)
        bodies = yield from bodies_of(namespace, [row[_DIGEST] for row in path])
        return [_message(row, bodies[row[_DIGEST]], in_path=True) for row in path]

    @from_snapshot
    def those(self, namespace: str, session: str, chains: Sequence[bytes]) -> Reading[list[MessageRow]]:
        """The session's messages at `chains` with bodies, in that order; unknown ones are left out."""
        rows = yield from _facts(key_of(namespace, session), {}, chains)
        bodies = yield from bodies_of(namespace, [row[_DIGEST] for row in rows])
        return [_message(row, bodies[row[_DIGEST]], in_path=True) for row in rows]

    @from_snapshot
    def transcript(self, namespace: str, session: str, chain: bytes) -> Reading[list[MessageRow]]:
        """Like `messages`, with those the client dropped on the way in their places (`in_path` false)."""
        key = key_of(namespace, session)
        in_path = {row[0]: row for row in (yield from _path(key, chain))}
        points, facts = yield from _walk(key, chain, sql.BY_ANCHOR)
        paths: dict[bytes, list[bytes]] = {}
        for base in bases_of(points):
            if base not in paths:
                paths[base] = [row[0] for row in (yield from _path(key, base))]
        said = yield from _facts(key, {**facts, **in_path}, lineage_of(points, paths))
        bodies = yield from bodies_of(namespace, [row[_DIGEST] for row in said])
        return [_message(row, bodies[row[_DIGEST]], in_path=row[0] in in_path) for row in said]

    async def message(self, namespace: str, prefix: bytes) -> tuple[str, MessageRow] | None:
        """The session and the message whose chain starts with `prefix`, of 12 to 32 bytes.

        None for a shorter prefix. When several sessions share the chain, the newest session's.
        """
        if not _MIN_PREFIX_BYTES <= len(prefix) <= DIGEST_BYTES:
            return None
        last = prefix + b"\xff" * (DIGEST_BYTES - len(prefix))
        rows = await self._few(sql.MESSAGE, namespace=namespace, first=prefix, last=last)
        return (rows[0][0], _message(rows[0][2:], rows[0][1], in_path=True)) if rows else None

    @from_snapshot
    def preamble(self, namespace: str, session: str, digest: bytes) -> Reading[list[bytes]]:
        """The instruction bodies stored under a preamble digest, in order; empty when unknown."""
        found = yield from rows_of(sql.PREAMBLE, namespace=namespace, session=session, digest=digest)
        digests = unpacked(found[0][0]) if found else ()
        bodies = yield from bodies_of(namespace, digests)
        return [bodies[each] for each in digests]

    async def session(self, namespace: str, name: str) -> SessionRow | None:
        """The session with our id `name`, else the one that the client gave this name."""
        rows = await self._rows(sql.SESSION, namespace=namespace, name=plain(name))
        return _session(_ours_first(rows, name)[0]) if rows else None

    async def sessions(
        self,
        namespace: str,
        limit: int,
        before: str | None,
        *,
        with_side: bool = True,
        only: Mapping[str, str] = NO_FIELDS,
    ) -> list[SessionRow]:
        """Newest first, after the session id `before`; `with_side` includes those of side requests only.

        `only`: those with an exchange that has all of these fields ("client", "code", "model", "status"), and
        those whose name or id begins with "named" (ASCII letters in either case).
        """
        asked: dict[str, object] = dict.fromkeys((*sql.LISTED_BY, "named"))
        asked |= {name: int(value) if name == "status" else plain(value) for name, value in only.items()}
        if "named" in only:
            asked["named"] = f"{literally(plain(only['named'])).lower()}%"
        rows = await self._rows(
            sql.SESSIONS_BEFORE,
            **asked,
            namespace=namespace,
            before=plain(before) if before else AFTER_ALL_IDS,
            limit=limit,
            with_side=with_side,
            is_any=not only.keys() & set(sql.LISTED_BY),
        )
        return [_session(row) for row in rows]

    async def session_count(self, namespace: str, *, with_side: bool = True) -> int:
        """The number of sessions."""
        rows = await self._rows(sql.SESSION_COUNT, namespace=namespace, with_side=with_side)
        return int(rows[0][0])

    async def named(self, namespace: str, name: str) -> NamedSession | None:
        """Like `session`, as one row without counts."""
        rows = await self._few(sql.NAMED, namespace=namespace, name=plain(name))
        if not rows:
            return None
        ident, external_id, epoch, full_history, appends = _ours_first(rows, name)[0]
        return NamedSession(ident, external_id, epoch, bool(full_history), bool(appends))

    async def response(self, namespace: str, response_id: str) -> StoredResponse | None:
        """The newest answer that the upstream gave this id."""
        rows = await self._few(sql.RESPONSE, namespace=namespace, response_id=plain(response_id))
        if not rows:
            return None
        session, chain, preamble, hidden, mode = rows[0]
        return StoredResponse(session, chain, preamble, bool(hidden), mode == BEGINS_UNSEEN)

    @from_snapshot
    def said_last(self, namespace: str, *, just_now: bool = False) -> Reading[list[Said]]:
        """What users and assistants said last in the 16 newest sessions, as text; not in side requests alone.

        Of each the newest 48 messages, `just_now` twelve. Only the newest 256 exchanges of all namespaces are
        read: callers ask right after an answer.
        """
        newest = yield from rows_of(sql.NEWEST_OF_ALL, namespace=namespace)
        found: list[Said] = []
        for session in list(dict.fromkeys(row[0] for row in newest))[:_SESSIONS_LAST]:
            most = _MESSAGES_NOW if just_now else _MESSAGES_LAST
            said, _ = yield from _said(key_of(namespace, session), None, most)
            found += said
        return found

    async def said(self, namespace: str, session: str, before: int | None) -> tuple[list[Said], int | None]:
        """What users and assistants said before the arrival `before` (None: all), the newest first.

        At most 500, and where to go on; None: there are no more.
        """
        return await self._db.read_snapshot(_said(key_of(namespace, session), before, 500))

    @from_snapshot
    def heads(self, namespace: str, session: str) -> Reading[list[Head]]:
        """Branches, the default one first: the newest path of main turns (rule 33).

        The tree is read only if there are several branches, several instructions or marked requests.
        """
        key = key_of(namespace, session)
        heads = [Head(*row) for row in (yield from rows_of(sql.HEADS, **key))]
        ((instructions, marks),) = yield from rows_of(sql.VARIETY, **key)
        if len(heads) <= 1 and instructions <= 1 and not marks:
            return heads
        points: dict[bytes, TreePoint] = {}
        sizes, preambles = {}, {}
        for point in (yield from rows_of(sql.POINTS, **key)):
            chain, parent, role, relayed, arrival, is_head, digest, depth, answers, preamble, finish = point
            sizes[chain], preambles[chain] = (answers, depth, arrival), preamble
            # A message and the end of a rebased list may have the same digest: the message counts, as for
            # paths.
            if role or chain not in points:
                known = (chain, parent, role, bool(relayed), arrival, bool(is_head), bytes(digest), preamble)
                points[chain] = TreePoint(*known, finish in _CALLS)
        requests = [
            BranchRequest(head, preamble, arrival, mark or "", mode == "append", tokens or 0)
            for head, preamble, arrival, mark, mode, tokens in (yield from rows_of(sql.REQUESTS, **key))
        ]
        tree = SessionTree(list(points.values()), requests)
        texts = yield from _texts(key, *tree.wanted())
        return [
            Head(
                branch.chain,
                *sizes[branch.chain],
                branch.preamble or preambles[branch.chain],
                branch.kind,
                branch.beside,
            )
            for branch in tree.branches(texts)
        ]

    async def pins(self, namespace: str, session: str) -> list[PinRow]:
        """In order of arrival."""
        rows = await self._few(sql.PINS_OF, namespace=namespace, session=session)
        return [PinRow(chain, at, lifted_at is not None) for chain, at, lifted_at in rows]

    async def add_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """Pin the message; idempotent. Reverts `lift_pin`. Nothing happens without the session."""
        await self._put_pin(namespace, session, chain, now, None)

    async def lift_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """Take back the pin in the message's own text, and remove one by hand.

        Nothing happens without the session.
        """
        await self._put_pin(namespace, session, chain, now, now)

    async def remove_pin(self, namespace: str, session: str, chain: bytes) -> bool:
        """Remove a pin by hand. False when there was none."""
        key = {"namespace": namespace, "session": session, "chain": chain}
        return await self._wrote(sql.REMOVE_PIN, **key) > 0

    async def _put_pin(
        self, namespace: str, session: str, chain: bytes, now: float, lifted_at: float | None
    ) -> None:
        key = {"namespace": namespace, "session": session, "chain": chain}
        put = step(sql.PUT_PIN, **key, created_at=now, lifted_at=lifted_at, back=0)
        await self._db.write([arrivals_step(key, 1), put])


def _known(namespace: str, chains: Sequence[bytes], session: str | None) -> Reading[list[StoredPoint]]:
    deepest = yield from _deepest(namespace, chains, session, answered=False)
    if not deepest or any(point.answers for point in deepest):
        return deepest
    older = chains[: chains.index(deepest[0].chain)]
    return [*deepest, *(yield from _deepest(namespace, older, session, answered=True))]


def _deepest(
    namespace: str, chains: Sequence[bytes], session: str | None, *, answered: bool
) -> Reading[list[StoredPoint]]:
    """The points at the last of `chains` that is stored (`answered`: with a relayed answer on its path)."""
    scope, scoped = key_of(namespace, session), session is not None
    for part, size in _parts_from_the_end(chains):
        points = sql.POINTS_AT_DEEPEST[size, scoped, answered]
        if found := [_point(row) for row in (yield from rows_of(points, **scope, **listed(part, size)))]:
            return [point for point in found if point.answers or not answered]
    return []


def _parts_from_the_end(chains: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
    """Slices of `chains`, last first, each with the size of the statement that looks it up."""
    end, turn = len(chains), 0
    while end > 0:
        size = sql.PROBE_SIZES[min(turn, len(sql.PROBE_SIZES) - 1)]
        yield chains[max(0, end - size) : end], size
        end, turn = end - size, turn + 1


def _relayed(namespace: str, canonicals: Sequence[bytes], session: str | None) -> Reading[list[StoredPoint]]:
    found: list[StoredPoint] = []
    for start in range(0, len(canonicals), sql.CANONICALS):
        # A canonical digest is 32 bytes: the empty one pads the list and matches nothing.
        part = [*canonicals[start : start + sql.CANONICALS], b""]
        asked = {"namespace": namespace, "session": session, **listed(part, sql.CANONICALS)}
        rows = yield from rows_of(sql.RELAYED[session is not None], **asked)
        found.extend(_point(row) for row in rows)
    order = {canonical: i for i, canonical in enumerate(canonicals)}
    return sorted(found, key=lambda point: order[point.canonical])


def _point(row: Row) -> StoredPoint:
    *place, relayed, extended, outcome, state, preamble = row
    now = (bool(relayed), bool(extended), outcome in _FAILED, outcome == "done", state, preamble)
    return StoredPoint(*[*place, *now, outcome == "open"])


def _walk(
    key: Params, chain: bytes, statement: Statement, since: bytes = b""
) -> Reading[tuple[list[Point], dict[bytes, Row]]]:
    """The points oldest first, and the messages among them."""
    rows = yield from rows_of(statement, **key, chain=chain, since=since)
    points: list[Point] = []
    facts: dict[bytes, Row] = {}
    # Arrival decreases at every step of the walk, so it orders the rows.
    for row in sorted(rows, key=itemgetter(_ARRIVAL)):
        base, members = row[-2:]
        if members is None:
            facts[row[0]] = row[:-2]
            points.append(row[0])
        else:
            points.append(Rebase(row[0], base, unpacked(members)))
    return points, facts


def _path(key: Params, chain: bytes, since: bytes = b"") -> Reading[list[Row]]:
    points, facts = yield from _walk(key, chain, sql.BY_BASE, since)
    chains = path_of(points)
    if since in chains:
        # It may be inside a rebased list: the walk then continued past it.
        chains = chains[len(chains) - 1 - chains[::-1].index(since) :]
    return (yield from _facts(key, facts, chains))


def _facts(key: Params, found: Mapping[bytes, Row], chains: Sequence[bytes]) -> Reading[list[Row]]:
    """The stored messages at `chains`; those not in `found` are read."""
    missing = [chain for chain in chains if chain not in found]
    rows = yield from rows_among(sql.MESSAGES_AMONG, missing, **key)
    every = {**found, **{row[0]: row for row in rows}}
    return [every[chain] for chain in chains if chain in every]


def _message(facts: Row, body: bytes, *, in_path: bool) -> MessageRow:
    chain, canonical, role, tokens, depth, arrival, relayed, state, finish_reason, created_at, _ = facts
    row = (chain, canonical, role, tokens, depth, arrival, bool(relayed), state, in_path, body)
    return MessageRow(*row, finish_reason, created_at)


def _said(key: Params, before: int | None, limit: int) -> Reading[tuple[list[Said], int | None]]:
    first = AFTER_ALL_ARRIVALS if before is None else before
    rows = yield from rows_of(sql.SAID_BEFORE, **key, before=first, limit=limit)
    said = [
        Said(str(key["session"]), all_words_of([body]), role == "assistant", at, chain, bool(relayed))
        for _, chain, role, relayed, at, body in rows
    ]
    return said, rows[-1][0] if len(rows) == limit else None


def _texts(key: Params, instructions: Iterable[bytes], digests: Iterable[bytes]) -> Reading[Texts]:
    named: dict[bytes, Sequence[bytes]] = dict.fromkeys(instructions, ())
    rows = yield from rows_among(sql.PREAMBLES_AMONG, named, **key)
    named |= {row[0]: unpacked(row[1]) for row in rows}
    every = [*(digest for each in named.values() for digest in each), *digests]
    bodies = yield from bodies_of(str(key["namespace"]), every)
    return Texts(
        {name: words_of(bodies[digest] for digest in each) for name, each in named.items()},
        {digest: words_of([bodies[digest]]) for digest in digests},
    )


def _ours_first(rows: Sequence[Row], name: str) -> list[Row]:
    """Our id before the client's name: a client may have named its session like one of our ids."""
    return sorted(rows, key=lambda row: bool(row[0] != name))


def _session(row: Row) -> SessionRow:
    found = SessionRow(*row)
    return replace(found, full_history=bool(found.full_history), is_side=bool(found.is_side))
