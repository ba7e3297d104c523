"""Erasing a session, or all of a namespace: a part of the store's contract.

What is promised
----------------
* A session's rows go in one transaction: whoever reads finds all of it or nothing. Of its bodies those stay
  that another row of the namespace names.
* Whatever is written afterwards for a session that was erased, or for an exchange of it, stores nothing and
  raises nothing: requests, answers, partial answers, compactions with what comes with them, events,
  checkpoints, memories, settings, pins (rule 30). Its id is never used again.
* A namespace keeps its id, and so do the credentials and keys that lead to it: they hold no text. Were they
  gone, a request on its way would store what nobody could find or erase again.
* Deleting is not yet scrubbing: copies of deleted rows are left in a database's files until `scrub` is done.

Must not know who may erase, nor what stands outside the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

# "scrubbed": nothing of what was deleted is in the files. "overwritten": nothing but in pages between which
# rows were moved earlier, for the file is too large to be written anew. "pending": something, for now; to be
# asked again. "vacuumed": the database gave the rows up; what its files hold is up to it (PostgreSQL).
Scrub = Literal["scrubbed", "overwritten", "pending", "vacuumed"]


class Erasing(Protocol):
    """See the module docstring: it is a part of the contract."""

    async def erase_session(
        self, namespace: str, session: str, marks: Sequence[bytes], now: float
    ) -> Mapping[str, int] | None:
        """Nothing is left of the session; how many rows went, by table. None: there was none.

        The tombstones `marks` stand from the same moment on.
        """

    async def erase_namespace(self, namespace: str) -> Mapping[str, int]:
        """Nothing is left of the sessions that were there when it was asked, nor of the namespace's sums,
        tombstones and leases; how many rows went, by table. Asked again after a failure it goes on.

        Session by session: a reader may find some of them gone and others not yet.
        """

    async def sessions_before(
        self, namespace: str, before: str | None, limit: int
    ) -> Sequence[tuple[str, str | None]]:
        """Ids and the client's own names, newest first, starting after the id `before`."""

    async def digests_of(self, namespace: str, session: str) -> Sequence[bytes]:
        """The sha256 of every body that the session names."""

    async def marks_of(self, namespace: str, session: str) -> Sequence[bytes]:
        """The chains by which a client's list is known to be of this session, at most 4096.

        Those of each first answer we relayed on a path, of what the client sent in its place, of rebases,
        and of the end of an import; of a session without any, those of its requests.
        """

    async def has_tombstones(self, namespace: str) -> bool:
        """True when the namespace has any. One row, at once."""

    async def is_buried(self, namespace: str, marks: Sequence[bytes]) -> bool:
        """True when one of the tombstones is among `marks`."""

    async def scrub(self) -> Scrub:
        """What was deleted is scrubbed, as far as the database can. StoreError."""
