"""Finding messages and summaries by their words, and what stands beside them: a part of the store's contract.

What is promised
----------------
* Words are made by the caller; the store compares them whole. Any text is a word, none is an error.
* The index lags: it is caught up with outside the transactions that record, oldest first. `unindexed`
  tells what is missing, `add_indexed` adds it and moves the session's mark, at once and once, whoever else
  does the same.
* What is found is read from the rows as they are now: an answer that was rejected since says so. Whether
  it is to be shown is not decided here.
* Nothing of another namespace is found, counted or influences an order; nor, in a session, of another one.
* Where the database cannot keep an index (`has_index` is False: a SQLite before 3.43, or without FTS5),
  nothing is to be indexed and `found` finds nothing: `scanned` reads the texts themselves.

Must not know what a word is, how bodies are read as texts, or who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.core.history.known import MessageState
from app.core.recall.entry import Holdings

RecallState = MessageState | Literal["undone"]


@dataclass(frozen=True, slots=True)
class RecallRow:
    """A message, or a compaction's summary, as it is now.

    `ref` names it: a message's chain, a compaction's id. `chain` is where it stands: the message's own, or
    the compaction's watermark. `body` is the message's exact bytes, or the summary's UTF-8 (with lone
    surrogates); `tokens` are a message's. A summary has the `role` "", no `parent`, depth and tokens 0, and
    the state "live" or "undone".
    """

    session: str
    kind: Literal["message", "summary"]
    ref: bytes
    chain: bytes
    parent: bytes
    role: str
    depth: int
    arrival: int
    state: RecallState
    relayed: bool
    at: float
    tokens: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Stretch:
    """What arrived in a session after `after`, up to and including `upto`, while its epoch was `epoch`."""

    epoch: int
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Unindexed:
    """All rows of a stretch, in order of arrival. Without any the mark is to be moved all the same."""

    stretch: Stretch
    rows: Sequence[RecallRow]


@dataclass(frozen=True, slots=True)
class Indexed:
    """The words of the row that arrived at `arrival`, with repetitions: their number is its length."""

    arrival: int
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Found:
    """Rows that hold any of the words, best first; and what was searched as a whole.

    `others` hold them too and are told without their bodies: those behind the best, and those too large.
    `is_all`: nothing else holds them.
    """

    rows: Sequence[RecallRow]
    holdings: Holdings
    others: Sequence[RecallRow] = ()
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands before and after a message; `after` in order of arrival, for branches and attempts."""

    before: RecallRow | None
    after: Sequence[RecallRow]


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was wanted of the rows looked at, newest first. `is_all`: there were no more to look at."""

    rows: Sequence[RecallRow]
    is_all: bool


class Recall(Protocol):
    """See the module docstring."""

    @property
    def has_index(self) -> bool:
        """False where the database cannot keep one."""

    async def unindexed(self, namespace: str, session: str, limit: int) -> Unindexed | None:
        """The oldest rows that are not in the index: at most `limit`, and about 4 MB but for a larger one.

        None when there is nothing to do: no such session, no index, or the mark has reached the newest row.
        """

    async def lagging(self, namespace: str, limit: int) -> Sequence[str]:
        """Ids of sessions of which something is not in the index, at most `limit`, the last written first."""

    async def add_indexed(
        self, namespace: str, session: str, stretch: Stretch, entries: Sequence[Indexed]
    ) -> bool:
        """The entries are found from now on, and the mark stands at the end of the stretch.

        Rows of the stretch without an entry are not found. A stretch may be a part of one that `unindexed`
        told, from its beginning. False, and nothing changed, when the mark is not at the stretch's beginning:
        somebody else was faster; or the session has another epoch, or is gone. Others' writes wait meanwhile,
        about 50 us an entry on SQLite: some 64 at a time.
        """

    async def found(
        self,
        namespace: str,
        session: str | None,
        words: Sequence[str],
        limit: int,
        most_bytes: int = 4_000_000,
    ) -> Found:
        """The best `limit` (at most 500) rows that hold any of the words; of equals the newest.

        Better is who holds more and rarer ones, by what the session holds, or all of the namespace's sessions
        where `session` is None. The first 96 different words count. Bodies of `most_bytes` at most: a row
        that would exceed them is told without its body, but for the best one. At most 1,000 rows are told
        in all.
        """

    async def holding(self, namespace: str, session: str | None, words: Sequence[str]) -> Holdings:
        """How much the index holds of the session, or the namespace, and how many entries hold each word."""

    async def beside(self, namespace: str, session: str, chains: Sequence[bytes]) -> Mapping[bytes, Beside]:
        """What stands beside each of these messages (at most 64); those that are unknown are left out.

        Beside by what a message follows: of a list that the client put together anew, only the last message
        it kept has what follows it there.
        """

    async def path_holds(
        self, namespace: str, session: str, head: bytes, chains: Sequence[bytes]
    ) -> frozenset[bytes]:
        """Those of `chains` (any number) that are messages on the path that ends at `head`."""

    async def scanned(
        self,
        namespace: str,
        sessions: Sequence[str] | None,
        is_wanted: Callable[[RecallRow], bool],
        limit: int,
    ) -> Scanned:
        """At most `limit` rows that `is_wanted` is true of, session by session, in each the newest first.

        None: of all sessions, the newest first.

        At most 5,000 rows and about 64 MB are looked at. `is_wanted` runs on other threads, one at a time.
        """

    async def forget_session(self, namespace: str, session: str) -> int:
        """How many entries the session had: none is found now. Their bytes stay until `scrub_words`."""

    async def scrub_words(self) -> None:
        """No word of what was forgotten is in the index. Idempotent; what was broken off is continued.

        In short transactions; all of the index is written anew on SQLite, about 4 s for a million entries.
        Bytes in a write-ahead log, or in pages that PostgreSQL has not vacuumed, are not its business.
        """

    async def words_left(self) -> bool:
        """True when words of what was forgotten are in the index still: a scrub is due, or was broken off."""
