"""The memory block of a session as the store has it (B16).

Only reads. Knows nothing of folding, nor of what a view shows of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.summary.rolling.memory_block import MemoryBlock, with_entry
from app.storage.contract import Store
from app.storage.journal import StoredMemory

# Entries and blocks looked at; with a fold at fifteen there are never so many.
_MOST_ROWS = 200


async def block_in(store: Store, namespace: str, session: str) -> MemoryBlock:
    """The block as it is now."""
    return block_of(*await rows_of(store, namespace, session))


async def rows_of(
    store: Store, namespace: str, session: str
) -> tuple[Sequence[StoredMemory], Sequence[StoredMemory]]:
    """The folded part and the entries since, both oldest first, read at once."""
    rows = list(reversed(await store.memories(namespace, session, _MOST_ROWS, ["entry", "block"])))
    kinds = {kind: [row for row in rows if row.memory.kind == kind] for kind in ("block", "entry")}
    return kinds["block"], kinds["entry"]


def block_of(blocks: Sequence[StoredMemory], entries: Sequence[StoredMemory]) -> MemoryBlock:
    """The rows as one value."""
    block = MemoryBlock("\n".join(map(text_of, blocks)))
    for row in entries:
        block = with_entry(block, text_of(row))
    return block


def text_of(row: StoredMemory) -> str:
    """What was kept."""
    return row.memory.text.decode("utf-8", "surrogatepass")
