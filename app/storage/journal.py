"""What the store keeps beside a conversation: events, checkpoints, memories, settings, spending, and of the
servers that share the database who works on what, and who is there.

A part of the store's contract, with its promises. Sessions are named by our ids; in one that does not
exist nothing is written. Of two rows with one id the first stays. Must not know what a payload says, when
something is to be kept, or who may read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.core.view.compaction import Compaction

CheckpointKind = Literal["pre_compaction", "periodic", "completion"]
MemoryKind = Literal["summary", "flush", "entry", "block"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a session. `id` tells it apart there; `payload` is JSON."""

    id: str
    type: str
    payload: bytes
    created_at: float


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event in its place: later ones of the session have a higher `seq`, with gaps."""

    event: Event
    seq: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a session can be taken up from. `span_hash` names what it covers, `schema` its payload's form."""

    id: str
    kind: CheckpointKind
    span_hash: bytes
    schema: str
    payload: bytes
    created_at: float


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint in its place: newer ones have a higher `arrival`."""

    checkpoint: Checkpoint
    arrival: int


@dataclass(frozen=True, slots=True)
class Memory:
    """A text worth finding again, and the id of the compaction that it came from, if any.

    Ids must grow with time (UUIDv7): they order what is found in all sessions.
    """

    id: str
    kind: MemoryKind
    text: bytes
    compaction: str | None
    created_at: float


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory in its place: newer ones of the session have a higher `arrival`."""

    memory: Memory
    session: str
    arrival: int


@dataclass(frozen=True, slots=True)
class Also:
    """What is stored together with a compaction, or not at all; in this order, memories first."""

    memories: Sequence[Memory] = ()
    events: Sequence[Event] = ()


NOTHING = Also()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compaction written ahead of its time for conversations with `model`: not in force yet."""

    compaction: Compaction
    model: str


@dataclass(frozen=True, slots=True)
class Spending:
    """Requests to models and their tokens, as the models counted them.

    `cached_tokens` are those of the prompts that a cache of the upstream's served, as far as it says so.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Journal(Protocol):
    """See the module docstring: it is a part of the contract.

    `server` is this server's id where others may share the database. None in one that has it alone, and in
    what only looks: nobody beats there.
    """

    server: str | None

    async def add_events(self, namespace: str, session: str, events: Sequence[Event]) -> None:
        """They follow all earlier ones, in this order. None is ever changed."""

    async def events(
        self, namespace: str, session: str, after: int, limit: int, types: Sequence[str] = ()
    ) -> Sequence[StoredEvent]:
        """Oldest first, those with a `seq` above `after`; of these types (at most 32), or of all."""

    async def add_checkpoint(self, namespace: str, session: str, checkpoint: Checkpoint) -> bool:
        """False, and nothing changed, when the session has one of this kind and `span_hash`, or this id."""

    async def checkpoints(self, namespace: str, session: str, limit: int) -> Sequence[StoredCheckpoint]:
        """Newest first."""

    async def checkpoint(self, namespace: str, session: str, checkpoint_id: str) -> StoredCheckpoint | None:
        """One of the session's checkpoints."""

    async def add_memory(self, namespace: str, session: str, memory: Memory) -> None:
        """It is found from now on."""

    async def memories(
        self, namespace: str, session: str, limit: int, kinds: Sequence[MemoryKind] = ()
    ) -> Sequence[StoredMemory]:
        """The session's, newest first; of these kinds, or of all."""

    async def search_memories(
        self, namespace: str, words: Sequence[str], limit: int
    ) -> Sequence[StoredMemory]:
        """Those of all sessions that hold every word, in upper or lower case, newest first.

        A word is any text, found inside others too. The first 16 words count, of each 1000 characters;
        without a word, all memories are found.
        """

    async def replace_memory_block(
        self, namespace: str, session: str, folded: Sequence[str], block: Memory
    ) -> bool:
        """The memories with the ids `folded` (at most 256) are gone, and `block` is there, at once.

        False, and nothing changed, when one of them was gone before: somebody else has folded it, or
        this very call is repeated. A block with an id that is there takes that one's place.
        """

    async def settings_of(self, namespace: str, session: str) -> bytes | None:
        """The settings of a session, as they were put; None when it has none. One row, at once."""

    async def put_settings(self, namespace: str, session: str, payload: bytes | None) -> None:
        """Replaces the session's settings; None: it has none any more."""

    async def add_spending(self, namespace: str, day: str, spent: Spending) -> None:
        """Added to what was spent on `day`, a UTC date as YYYY-MM-DD. Repeated, it counts again."""

    async def spending(self, namespace: str, day: str) -> Spending:
        """All that was added for `day`."""

    async def undo_compaction(self, namespace: str, session: str, compaction_id: str, now: float) -> bool:
        """The compaction is marked as undone at `now`. False when there is none, or it was before."""

    async def prepare(self, namespace: str, session: str, prepared: Prepared) -> None:
        """Any server may put it into force, in place of what was prepared for the session before."""

    async def prepared(self, namespace: str, session: str) -> Prepared | None:
        """What was prepared last, until it is in force: `add_compaction` of its id takes it away."""

    async def take_lease(self, key: str, holder: str, now: float, seconds: float) -> bool:
        """`holder` has the lease until `now + seconds`, unless somebody else has it still: then False.

        Of several that ask at once, one gets it. Whoever has it gets it again. Leases belong to no
        namespace; `now` is the caller's clock, so that servers' clocks should agree within seconds.
        """

    async def renew_lease(self, key: str, holder: str, now: float, seconds: float) -> bool:
        """The lease lasts until `now + seconds`. False when `holder` has it no more: somebody took it."""

    async def release_lease(self, key: str, holder: str) -> None:
        """The lease is free, if `holder` had it."""

    async def is_leased(self, key: str, now: float, besides: str = "") -> bool:
        """True while somebody has the lease; the holder `besides` counts as nobody."""

    async def beat(self) -> None:
        """Others see that this server is there: said before it opens exchanges, and again and again."""

    async def leave(self) -> None:
        """Others do not see this server any more: it has closed its exchanges."""

    async def beats(self) -> Mapping[str, int]:
        """The other servers that are there, or have exchanges open, each with how often it beat.

        A living one's number grows from time to time; 0: it never said that it is there.
        """

    async def give_up(self, server: str, beats: int) -> bool:
        """What it has open counts as failed, its leases are free. False, and nothing done, if it beat since.

        False too where there was nothing to do.
        """
