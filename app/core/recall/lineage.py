"""What each summary was made from: earlier summaries, and the messages that it alone took up (C12, C13).

Pure. Knows nothing of how paths are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.core.view.compaction import Compaction

# C12.
MOST_PARENTS = 12


@dataclass(frozen=True, slots=True)
class Covered:
    """A summary: the messages it stands for, in the order of its path, and what its record says of parents.

    `until`: when it was undone, UTC seconds; None while it stands.
    """

    id: str
    folded: tuple[bytes, ...]
    parents: tuple[str, ...] = ()
    made_at: float = 0.0
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """`depth` is 0 for a summary of messages alone (a leaf), else one more than its deepest parent's.

    `sources`: messages that were removed by this summary and by none of its parents, in order.
    """

    depth: int
    parents: tuple[str, ...]
    sources: tuple[bytes, ...]

    @property
    def kind(self) -> Literal["node", "leaf"]:
        """A node stands on other summaries."""
        return "node" if self.parents else "leaf"


def folded_on(compaction: Compaction, path: Sequence[bytes]) -> tuple[bytes, ...] | None:
    """The messages of a path that a compaction took out of the view; None when it does not apply there."""
    if not compaction.watermark or compaction.watermark not in path:
        return None
    kept = set(compaction.kept)
    return tuple(chain for chain in path[: path.index(compaction.watermark) + 1] if chain not in kept)


def lineages_of(everything: Sequence[Covered]) -> Mapping[str, Lineage]:
    """The lineage of every summary; oldest first. Only older ones are parents, so that no cycle is possible.

    Parents are those that the record names and, newest first, those that stood then and cover one of the same
    messages; not those that another parent was made from already. At most twelve.
    """
    known: dict[str, Lineage] = {}
    older: list[tuple[Covered, frozenset[bytes]]] = []
    above: dict[str, frozenset[str]] = {}
    for one in everything:
        covers = frozenset(one.folded)
        parents: list[str] = []
        before: set[str] = set()
        for other, others in reversed(older):
            stood = other.until is None or other.until > one.made_at
            is_named = other.id in one.parents
            if other.id in before or not (is_named or (stood and not covers.isdisjoint(others))):
                continue
            if len(parents) < MOST_PARENTS:
                parents.append(other.id)
                before |= {other.id} | above[other.id]
        taken = frozenset[bytes]().union(*(others for other, others in older if other.id in parents))
        depth = max((known[parent].depth for parent in parents), default=-1) + 1
        sources = tuple(chain for chain in one.folded if chain not in taken)
        known[one.id] = Lineage(depth, tuple(parents), sources)
        above[one.id] = frozenset(before)
        older.append((one, covers))
    return known
