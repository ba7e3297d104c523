"""What a session's structured state is: seven lists of entries, as they are kept and given back (B09).

Pure value. Knows nothing of models, of merging, nor of where it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

# Statuses that say that an entry needs no more attention; any other word means that it does.
CLOSED = frozenset(
    {
        *("closed", "done", "completed", "complete", "resolved", "answered", "cancelled", "canceled"),
        *("superseded", "obsolete", "dropped", "rejected", "removed", "deleted", "mitigated", "merged"),
        "fixed",
    }
)
OPEN = "open"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing worth knowing. `id` is unique in its list, `status` a word, `by` an agent or "".

    `text` is one line.
    """

    id: str
    text: str
    status: str = OPEN
    by: str = ""

    @property
    def is_closed(self) -> bool:
        """True when nothing is to be done about it any more."""
        return self.status in CLOSED


@dataclass(frozen=True, slots=True)
class StateCaps:
    """How many entries each list may hold (B10)."""

    decisions: int = 8
    constraints: int = 6
    tasks: int = 10
    questions: int = 5
    risks: int = 5
    artifacts: int = 10
    agent_contributions: int = 6


@dataclass(frozen=True, slots=True)
class SessionState:
    """The lists, each with what was touched last at its end. `issued` counts the ids that code gave."""

    decisions: tuple[Entry, ...] = ()
    constraints: tuple[Entry, ...] = ()
    tasks: tuple[Entry, ...] = ()
    questions: tuple[Entry, ...] = ()
    risks: tuple[Entry, ...] = ()
    artifacts: tuple[Entry, ...] = ()
    agent_contributions: tuple[Entry, ...] = ()
    issued: int = 0

    def entries(self, kind: str) -> tuple[Entry, ...]:
        """The list of that name, one of `KINDS`."""
        found: tuple[Entry, ...] = getattr(self, kind)
        return found

    def lists(self) -> Iterator[tuple[str, tuple[Entry, ...]]]:
        """Name and entries of every list, in order."""
        return ((kind, self.entries(kind)) for kind in KINDS)

    @property
    def is_empty(self) -> bool:
        """True when no list holds anything."""
        return not any(entries for _, entries in self.lists())


KINDS = tuple(field.name for field in fields(StateCaps))


def state_lines(state: SessionState) -> list[str]:
    """Each entry on a line, lists in order: kind, status unless it is open, text, who."""
    return [
        f"- {_singular(kind)}{'' if entry.status == OPEN else f' [{entry.status}]'}: {entry.text}"
        + (f" ({entry.by})" if entry.by else "")
        for kind, entries in state.lists()
        for entry in entries
    ]


def newest_entries(state: SessionState, share: float) -> SessionState:
    """`state` with that share of each list, 0 to 1, rounded down: open entries first, then the newest."""
    lists = {}
    for kind, entries in state.lists():
        ranked = sorted(range(len(entries)), key=lambda place: (entries[place].is_closed, -place))
        kept = set(ranked[: int(len(entries) * share)])
        lists[kind] = tuple(entry for place, entry in enumerate(entries) if place in kept)
    return SessionState(**lists, issued=state.issued)


def _singular(kind: str) -> str:
    return kind.removesuffix("s").replace("_", " ")
