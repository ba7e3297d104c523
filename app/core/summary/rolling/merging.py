"""A state and the changes a model reported, made one state within its caps (B09, B10).

Knows nothing of where changes come from. The same changes twice are the same as once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.summary.rolling.state import KINDS, OPEN, Entry, SessionState, StateCaps


@dataclass(frozen=True, slots=True)
class Change:
    """One reported entry of the list `kind`; "" where the report says nothing."""

    kind: str
    id: str = ""
    text: str = ""
    status: str = ""
    by: str = ""


def merged(state: SessionState, changes: Sequence[Change], caps: StateCaps) -> SessionState:
    """`state` with `changes` applied in order and every list within its cap.

    A change that names a known id, or says what an entry says, updates that entry, which then counts
    as the newest; it keeps its id. Over a cap closed entries go first, then those untouched longest.
    A change without text that names no known id is left out.
    """
    lists = {kind: list(entries) for kind, entries in state.lists()}
    issued = state.issued
    for change in changes:
        issued = _applied(lists[change.kind], change, issued)
    capped = {kind: _capped(lists[kind], getattr(caps, kind)) for kind in KINDS}
    return SessionState(**capped, issued=issued)


def _applied(entries: list[Entry], change: Change, issued: int) -> int:
    """Change the list in place; the ids issued afterwards."""
    named = next((entry for entry in entries if change.id and entry.id == change.id), None)
    alike = next((entry for entry in entries if change.text and _same(entry.text, change.text)), None)
    known = named or alike
    if known is None and not change.text:
        return issued
    if known is None:
        issued, ident = (issued, change.id) if change.id else _new_id(entries, change.kind, issued)
        known = Entry(ident, change.text)
    entries[:] = [entry for entry in entries if entry not in (named, alike)]
    entries.append(
        Entry(
            id=known.id,
            text=change.text or known.text,
            status=change.status or known.status or OPEN,
            by=change.by or known.by,
        )
    )
    return issued


def _new_id(entries: Sequence[Entry], kind: str, issued: int) -> tuple[int, str]:
    """The next count and an id that nobody in the list has, nor ever had from here."""
    taken = {entry.id for entry in entries}
    while True:
        issued += 1
        ident = f"{kind[0]}{issued}"
        if ident not in taken:
            return issued, ident


def _same(one: str, other: str) -> bool:
    return _bare(one) == _bare(other)


def _bare(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .;:!,\"'`*")


def _capped(entries: Sequence[Entry], cap: int) -> tuple[Entry, ...]:
    over = max(0, len(entries) - max(0, cap))
    # Sorting keeps the order of age among the closed and among the open.
    going = sorted(range(len(entries)), key=lambda place: not entries[place].is_closed)[:over]
    return tuple(entry for place, entry in enumerate(entries) if place not in going)
