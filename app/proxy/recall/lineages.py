"""The lineages of a session's summaries, read from the store.

Decides nothing: `app.core.recall.lineage` does. Changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from app.core.recall.lineage import Covered, Lineage, folded_on, lineages_of
from app.storage.contract import Store, StoredCompaction


async def lineages_in(
    store: Store, namespace: str, session: str, stored: Sequence[StoredCompaction]
) -> Mapping[str, Lineage]:
    """The lineage of each of `stored` that removed messages, by its id; they are the session's, oldest first.

    StoreError. One that masks alone is left out, as parent too: its own parents stand for it.
    """
    above = {one.compaction.id: one.compaction.parents for one in stored}
    summaries = [one for one in stored if one.compaction.kind == "message_removal"]
    ids = {one.compaction.id for one in summaries}
    covered: list[Covered] = []
    paths: list[tuple[bytes, ...]] = []
    # The newest first: the path that a summary stands on holds what the older ones stand on too, mostly.
    for one in reversed(summaries):
        folded = await _folded(store, namespace, session, one, paths)
        parents = tuple(_nearest(one.compaction.parents, ids, above))
        covered.append(Covered(one.compaction.id, folded, parents, one.created_at, one.undone_at))
    covered.reverse()
    return await asyncio.to_thread(lineages_of, covered)


async def _folded(
    store: Store, namespace: str, session: str, one: StoredCompaction, paths: list[tuple[bytes, ...]]
) -> tuple[bytes, ...]:
    """What it folded, on one of the known paths or on its own, which is known then."""
    made = one.compaction
    for path in paths:
        folded = await asyncio.to_thread(folded_on, made, path)
        # A client that dropped its oldest messages has another path that holds the same watermark.
        if folded is not None and len(folded) == made.messages_folded:
            return folded
    entries = await store.path(namespace, session, made.watermark)
    path = tuple(entry.chain for entry in entries)
    paths.append(path)
    return await asyncio.to_thread(folded_on, made, path) or ()


def _nearest(
    parents: Sequence[str], ids: set[str], above: Mapping[str, tuple[str, ...]], steps: int = 1_000
) -> list[str]:
    """The parents that are summaries; in the place of others, theirs."""
    found: list[str] = []
    waiting = list(parents)
    while waiting and steps:
        steps -= 1
        parent = waiting.pop(0)
        if parent in ids:
            found.append(parent)
        else:
            waiting += above.get(parent, ())
    return found
