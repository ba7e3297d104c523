"""How compactions build on each other: which can be undone, and what is in force again then.

Pure. Knows nothing of branches: parents alone say what a compaction was made from.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.view.compaction import Compaction


def builders(compaction: Compaction, standing: Sequence[Compaction]) -> tuple[Compaction, ...]:
    """Those of `standing` that were made from it: none of them may stand when it is undone."""
    return tuple(other for other in standing if compaction.id in other.parents)


def restored(
    compaction: Compaction, everything: Sequence[Compaction], standing: Sequence[Compaction]
) -> Compaction | None:
    """The nearest ancestor that stands; None when the conversation is shown as it was said again."""
    known = {other.id: other for other in everything}
    stand = {other.id for other in standing}
    seen: set[str] = set()
    parents = list(compaction.parents)
    while parents:
        parent = known.get(parents.pop(0))
        if parent is None or parent.id in seen:
            continue
        if parent.id in stand:
            return parent
        seen.add(parent.id)
        parents += parent.parents
    return None


def edges(everything: Sequence[Compaction]) -> tuple[tuple[str, str], ...]:
    """Every (parent, child), children in the order given."""
    return tuple((parent, child.id) for child in everything for parent in child.parents)
