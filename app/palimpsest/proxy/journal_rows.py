"""Events and the memory block of a session as rows of the store, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import msgspec

from palimpsest.core.runtime.events import Event
from palimpsest.core.summary.memory_block import MemoryBlock, with_entry
from palimpsest.storage.journal import EventRow, Journal, MemoryRow

NewId = Callable[[], str]


def event_rows(events: Iterable[Event], at: float, new_id: NewId) -> list[EventRow]:
    """The events, in order, as rows created `at` (UTC seconds)."""
    rows = []
    for event in events:
        try:
            payload = msgspec.json.encode(event.payload)
        except UnicodeEncodeError:
            # Callers choose model names, which may contain a lone surrogate.
            payload = json.dumps(event.payload, ensure_ascii=False).encode("utf-8", "replace")
        rows.append(EventRow(new_id(), event.type, payload, at))
    return rows


# Most rows read; entries are folded at fifteen, so that there are never as many.
_MOST_ROWS = 200


async def block_in(journal: Journal, namespace: str, session: str) -> MemoryBlock:
    """The session's memory block."""
    return block_of(*await rows_of(journal, namespace, session))


async def rows_of(
    journal: Journal, namespace: str, session: str
) -> tuple[Sequence[MemoryRow], Sequence[MemoryRow]]:
    """The block rows and the entries since, both oldest first, read in one query."""
    rows = list(reversed(await journal.memories(namespace, session, _MOST_ROWS, ["entry", "block"])))
    kinds = {kind: [row for row in rows if row.kind == kind] for kind in ("block", "entry")}
    return kinds["block"], kinds["entry"]


def block_of(blocks: Sequence[MemoryRow], entries: Sequence[MemoryRow]) -> MemoryBlock:
    """The rows as a memory block."""
    block = MemoryBlock("\n".join(map(text_of, blocks)))
    for row in entries:
        block = with_entry(block, text_of(row))
    return block


def text_of(row: MemoryRow) -> str:
    """The row's text."""
    return row.text.decode("utf-8", "surrogatepass")
