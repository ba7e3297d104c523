"""What each summary was made from: earlier summaries, and messages that it was the first to fold (C12, C13).

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.view.compaction import Compaction

# C12.
MOST_PARENTS = 12


@dataclass(frozen=True, slots=True)
class FoldedSummary:
    """A summary, the messages that it replaces in path order, and the parents in its record.

    `until`: when it was undone, UTC seconds; None while it is in force.
    """

    id: str
    folded: tuple[bytes, ...]
    parents: tuple[str, ...] = ()
    made_at: float = 0.0
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """`depth` is 0 for a summary of messages alone (a leaf), else one more than its deepest parent's.

    `sources`: the messages folded by this summary and by none of its parents, in order.
    """

    depth: int
    parents: tuple[str, ...]
    sources: tuple[bytes, ...]

    @property
    def kind(self) -> Literal["node", "leaf"]:
        """A node has parents, a leaf has none."""
        return "node" if self.parents else "leaf"


def folded_on(compaction: Compaction, path: Sequence[bytes]) -> tuple[bytes, ...] | None:
    """The messages of a path that a compaction folds; None when it does not apply to the path."""
    if not compaction.watermark or compaction.watermark not in path:
        return None
    kept = set(compaction.kept)
    return tuple(chain for chain in path[: path.index(compaction.watermark) + 1] if chain not in kept)


def lineages_of(everything: Sequence[FoldedSummary]) -> Mapping[str, Lineage]:
    """The lineage of every summary in `everything`, which is ordered oldest first.

    Parents are, newest first and at most twelve, the older summaries that the record names, or that were in
    force then and cover one of the same messages; ancestors of a parent are left out. There are no cycles,
    because only older summaries are parents.
    """
    known: dict[str, Lineage] = {}
    older: list[tuple[FoldedSummary, frozenset[bytes]]] = []
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
