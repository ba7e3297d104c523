"""The store's contract, in prose and types. Two implementations keep it: SQLite and PostgreSQL.

What is promised
----------------
* A coroutine that writes returns only when its rows are durable (SQLite: synchronous=FULL;
  PostgreSQL: synchronous_commit=on). All rows of one call are committed together or not at all,
  also when the caller is cancelled meanwhile.
* Every write is an upsert on natural keys: repeating a call, also after an unknown outcome, changes nothing.
* Nothing is visible to a read before it is durable; after a write returned, every read sees it.
* Every method takes the namespace and touches no other's rows. What exists elsewhere reads as absent.
* Message bodies are bytes. They come back as they were given, whatever they contain.
* When the store cannot do its work in `store_deadline_seconds` it raises StoreUnavailable; the
  caller may conclude nothing about whether the rows were written, and may call again.
* Order is `arrival` (monotonic per session), never time. Times are for people: UTC seconds.

What it must not know: HTTP, what a summary is for, when to compact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.core.history.branches import BranchKind, Mark
from app.core.history.known import Known, MessageState, Rebase
from app.core.recall.rounds.hidden import HiddenRounds
from app.core.view.compaction import Compaction
from app.core.wire.answered import Usage
from app.storage.erase.contract import Erasing
from app.storage.exchange.asked import FinishedRequests
from app.storage.exchange.hidden import HiddenKept
from app.storage.exchange.items import ItemsKept
from app.storage.interrupted import PartialAnswers
from app.storage.journal import Also, Event, Journal
from app.storage.learned.contract import Learned
from app.storage.naming import NamedSessions
from app.storage.pins import Pinned
from app.storage.recall.contract import Recall
from app.storage.trouble import Trouble

ExchangeState = Literal["open", "done", "incomplete", "failed", "rejected", "refused"]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as it is written: `body` is exact bytes, `digest` their sha256."""

    chain: bytes
    parent: bytes
    canonical: bytes
    role: str
    tokens: int
    depth: int
    answers: int
    body: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Variant:
    """Another spelling, byte for byte, of the message stored at `chain`."""

    chain: bytes
    body: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class OpenExchange:
    """Everything of a request that is committed before a byte of it goes upstream (P2).

    The session is created when it does not exist (`external_id` is the client's name for it, or None).
    `messages` that exist already are left as they are, except that a rejected or refused one becomes live
    again. `head` is the digest of the request's last message; it becomes a branch head and `base` stops
    being one. `preamble` are the instructions, each as its body and the body's sha256, in order, and
    `preamble_digest` their joint sha256. `mode`: how it was read, or `naming.BEGINS_UNSEEN`. `full_history`:
    it carried answers or instructions. `appends`: only what is new to the named session. `mark`: it is
    beside a conversation (rule 33). `takes_name`: a session that begins takes the name from the one that
    had it (rule 9). `continues`: the session is there; if it was erased, nothing is stored, none is told.
    """

    namespace: str
    session: str
    external_id: str | None
    exchange: str
    base: bytes
    head: bytes
    messages: Sequence[StoredMessage]
    variants: Sequence[Variant]
    rebase: Rebase | None
    preamble: Sequence[tuple[bytes, bytes]]
    preamble_digest: bytes
    model: str
    found_by: str
    mode: str
    full_history: bool
    idempotency_key: str | None
    started_at: float
    takes_name: bool = False
    continues: bool = False
    appends: bool = False
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class CloseExchange:
    """How an exchange ended, with its answers: committed before the client sees the end (P3).

    `answers` follow `head`; one alone becomes the branch head (rule 6), unless `head` `is_overtaken`, gone on
    from meanwhile. `answer_state` is "incomplete" for a cut stream. With `state` "rejected" or "refused" the
    messages `withdrawn` (by chain, of those it brought) leave the path, stay stored, and `base` is a branch
    head again (rule 11). `view`, its tokens: None when unknown. `response_id` is the upstream's id of an
    answer: the newest of equal ones counts. `hidden` is what led to it unseen: kept where there is one alone,
    its results apart (rule 31). `by_upstream`: it proves (rule 26). `items` are ids of items in the answers.
    """

    namespace: str
    session: str
    exchange: str
    head: bytes
    base: bytes
    state: ExchangeState
    answers: Sequence[StoredMessage]
    answer_state: MessageState
    withdrawn: Sequence[bytes]
    usage: Usage
    finish_reason: str | None
    status: int | None
    view: Literal["original", "compacted"] | None
    tokens_full: int | None
    tokens_forwarded: int | None
    compaction: str | None
    finished_at: float
    response_id: str | None = None
    hidden: HiddenRounds | None = None
    by_upstream: bool = True
    items: Sequence[str] = ()
    is_overtaken: bool = False


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


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A stored message as it is read back. `in_path` is false for one the client has dropped since."""

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
class PathEntry:
    """A point of a path without its body: enough to align a client's list with it (rule 4)."""

    chain: bytes
    canonical: bytes
    digest: bytes
    role: str
    relayed: bool


@dataclass(frozen=True, slots=True)
class Head:
    """A branch: its newest message and how many relayed answers lead to it.

    `beside` is the message of the default branch that it leaves or hangs on, b"" for none.
    """

    chain: bytes
    answers: int
    depth: int
    arrival: int
    preamble: bytes
    kind: BranchKind = "main"
    beside: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredCompaction:
    """A compaction, when it was stored, when it was undone; newer ones have a higher `arrival`."""

    compaction: Compaction
    arrival: int
    created_at: float
    undone_at: float | None = None


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A proxy-issued key, without the key."""

    id: str
    label: str
    namespace: str
    created_at: float
    revoked_at: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """`proven`: the upstream has answered the namespace with a 2xx; then `messages` stay uncounted, 0."""

    proven: bool
    messages: int


class Store(
    FinishedRequests,
    PartialAnswers,
    NamedSessions,
    HiddenKept,
    ItemsKept,
    Pinned,
    Journal,
    Recall,
    Erasing,
    Learned,
    Protocol,
):
    """See the module docstring: it is the contract."""

    async def close(self) -> None:
        """Everything accepted is durable; the database is closed."""

    def trouble(self) -> Trouble | None:
        """Why nothing can be recorded, as far as the files and the disk say so; looks at them, 20 us.

        None also for a database that is served elsewhere.
        """

    async def keep_reserve(self, size: int) -> bool:
        """So many bytes of the database's disk are kept for erasing; False when there is no room for them.

        An erase that meets a full disk uses them up. They are given back when the store is closed.
        """

    async def warm(self) -> None:
        """What the first of each kind of request would else prepare is prepared (0.5 s beside the loop)."""

    async def ping(self) -> None:
        """A real write and read succeeded."""

    async def namespace_of(self, credential: bytes, now: float) -> str:
        """The namespace of a credential's HMAC; a new one the first time."""

    async def bind_pepper(self, fingerprint: bytes) -> bool:
        """True when the database belongs to the pepper of this fingerprint; the first one is stored."""

    async def standing(self, namespace: str) -> Standing:
        """Whether the namespace is proven: by a `close_exchange` of state done or incomplete with a 2xx."""

    async def erase_unproven(self, before: float) -> Sequence[str]:
        """Nothing is left of the namespaces named: they began before, did nothing since, are not proven.

        At most 16 at a time, the oldest first. Those of issued keys are proven from the start.
        """

    async def known(self, namespace: str, chains: Sequence[bytes], session: str | None) -> Sequence[Known]:
        """The deepest points among `chains` (oldest first) that are stored, live or incomplete.

        Returns every row (one a session) of the deepest known chain and, when none of those has a
        relayed answer on its path, those of the deepest chain that has. Limited to `session` if given.
        Of more than 64 sessions that share a chain, the 64 created last are looked at.
        """

    async def relayed(
        self, namespace: str, canonicals: Sequence[bytes], session: str | None
    ) -> Sequence[Known]:
        """Answers we relayed whose own canonical digest is one of `canonicals`, live or incomplete.

        In the order asked; at most 64 for one digest.
        """

    async def path(self, namespace: str, session: str, chain: bytes) -> Sequence[PathEntry]:
        """The path named by `chain`, oldest first; empty when unknown."""

    async def bodies(
        self, namespace: str, session: str, chain: bytes, since: bytes = b""
    ) -> Sequence[MessageRow]:
        """The path named by `chain` with bodies, oldest first: what the client's list was.

        From the message `since` on, it included, where that stands on the path; no older row is read then.
        """

    async def transcript(self, namespace: str, session: str, chain: bytes) -> Sequence[MessageRow]:
        """As `bodies`, with the messages the client dropped on the way in their places (`in_path` false)."""

    async def message(self, namespace: str, prefix: bytes) -> tuple[str, MessageRow] | None:
        """The session and the message whose chain starts with `prefix` (at least 12 bytes)."""

    async def preamble(self, namespace: str, session: str, digest: bytes) -> Sequence[bytes]:
        """The instruction bodies stored under a preamble digest, in order."""

    async def session(self, namespace: str, name: str) -> SessionRow | None:
        """By our id, else by the client's own."""

    async def sessions(
        self, namespace: str, limit: int, before: str | None, *, with_side: bool = True
    ) -> Sequence[SessionRow]:
        """Newest first, after the session id `before`; `with_side`: those of side requests alone, too."""

    async def session_count(self, namespace: str, prefix: str, *, with_side: bool = True) -> int:
        """How many sessions there are whose id begins with `prefix` (of a lower-case UUID; "": all)."""

    async def heads(self, namespace: str, session: str) -> Sequence[Head]:
        """Branches, the default one first: the newest path of main turns (rule 33)."""

    async def exchange_of_key(self, namespace: str, idempotency_key: str) -> tuple[str, bytes] | None:
        """Session and head of the newest exchange that carried this key."""

    async def open_exchange(self, exchange: OpenExchange) -> None:
        """Commit a request (P2). Conflict when `external_id` already names another session."""

    async def import_session(
        self,
        opened: OpenExchange,
        times: Sequence[float],
        events: Sequence[Event],
        made: Sequence[tuple[Compaction, float]] = ...,
    ) -> None:
        """A new session is there, without an exchange: `opened.messages`, each of its time, and `events`.

        `made` are compactions, oldest first, each with the time it was made.
        Conflict, and nothing stored, when `external_id` already names another session.
        """

    async def close_exchange(self, exchange: CloseExchange) -> None:
        """Commit an answer or a failure (P3); nothing is stored of an exchange that was erased (rule 30)."""

    async def compactions(self, namespace: str, session: str) -> Sequence[StoredCompaction]:
        """Oldest first, those that were undone too."""

    async def compaction(self, namespace: str, compaction_id: str) -> tuple[str, StoredCompaction] | None:
        """The compaction of this id and its session; of imports that share one, the newest session's."""

    async def add_compaction(
        self, namespace: str, session: str, epoch: int, compaction: Compaction, now: float, also: Also = ...
    ) -> bool:
        """False, and nothing stored, `also` neither, when the session's epoch is no longer `epoch`."""

    async def keys(self) -> Sequence[KeyRow]:
        """All proxy-issued keys, newest first, revoked ones included."""

    async def add_key(self, key: KeyRow, digest: bytes) -> None:
        """`digest` is the sha256 of the key; the key itself is never stored."""

    async def revoke_key(self, key_id: str, now: float) -> bool:
        """False when there is no such key, or it is revoked already."""

    async def key_namespace(self, digest: bytes) -> str | None:
        """The namespace of a valid proxy key; None when unknown or revoked."""
