"""The order in which a conversation's messages stand, worked out from its points. Pure.

Must not know SQL nor bodies. A path is what the client's list was; a lineage is everything that
was ever said on the way, what the client dropped included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from app.core.history.known import Rebase

# A message by its chain digest, or the end of a rebased list, on the way to some chain.
Point: TypeAlias = bytes | Rebase


def path_of(points: Iterable[Point]) -> list[bytes]:
    """The messages of a path, given its points oldest first (rebases continued at their bases)."""
    path: list[bytes] = []
    for point in points:
        if isinstance(point, bytes):
            path.append(point)
        else:
            path.extend(point.members)
    return path


def bases_of(points: Iterable[Point]) -> Iterator[bytes]:
    """Bases whose paths `lineage_of` needs: those that do not stand on the lineage themselves."""
    passed: set[bytes] = set()
    for point in points:
        if isinstance(point, bytes):
            passed.add(point)
            continue
        if point.base and point.base not in passed:
            yield point.base
        passed.add(point.chain)
        passed.update(point.members)


def lineage_of(points: Iterable[Point], paths: Mapping[bytes, Sequence[bytes]]) -> list[bytes]:
    """Every message of a lineage, given its points oldest first (rebases continued at their anchors).

    At each rebase the messages the client kept stay where they are, those it dropped too, and those
    it brought stand before the next one it kept. `paths` are the paths of `bases_of`.
    """
    line: list[bytes] = []
    passed: set[bytes] = set()
    for point in points:
        if isinstance(point, bytes):
            line.append(point)
            passed.add(point)
            continue
        listed = [*paths.get(point.base, ()), *point.members]
        if any(chain not in passed for chain in listed):
            line = merged(line, listed)
        passed.update(listed)
        passed.add(point.chain)
    return line


def merged(line: Sequence[bytes], listed: Sequence[bytes]) -> list[bytes]:
    """`line` in its order, with what only `listed` has put before the next entry both have."""
    have = set(line)
    place = {chain: i for i, chain in enumerate(listed)}
    result: list[bytes] = []
    done = 0
    for chain in line:
        at = place.get(chain, -1)
        if at >= done:
            result.extend(new for new in listed[done:at] if new not in have)
            done = at + 1
        result.append(chain)
    result.extend(new for new in listed[done:] if new not in have)
    return result
