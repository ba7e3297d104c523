"""Compactions of a session: listed, as a graph, and undone.

Knows nothing of how a compaction is made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Response

from app.api.callers import Admitted
from app.api.replies import reply
from app.api.sessions import compaction_fields
from app.core.recall.lineage import Lineage
from app.core.runtime.events import compaction_undone
from app.core.view.compaction import Compaction
from app.core.view.descent import builders, edges, restored
from app.core.wire.json_text import encoded
from app.errors import NotUndoable
from app.proxy.archive import Archive, missing
from app.proxy.recall.lineages import lineages_in
from app.storage.contract import Store, StoredCompaction
from app.storage.journal import Event


class CompactionPages:
    """What was compacted, and taking it back."""

    def __init__(self, archive: Archive, store: Store) -> None:
        self._archive = archive
        self._store = store

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/compactions", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/compactions/{compaction}/undo", self.undo, methods=["POST"])

    async def listed(self, caller: Admitted, name: str, graph: bool = False) -> Response:
        """Every compaction of the session, oldest first; with `graph` what each was made from."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._store.compactions(caller.namespace, row.id)
        if graph:
            lineages = await lineages_in(self._store, caller.namespace, row.id, stored)
            return reply({"session": row.id, **_graph(stored, lineages)})
        return reply({"session": row.id, "compactions": [_fields(one) for one in stored]})

    async def undo(self, caller: Admitted, name: str, compaction: str) -> Response:
        """It is not in force from the next request on; what it was made from is again, if that stands.

        NotUndoable when it was undone before, or another that stands was made from it.
        """
        row = await self._archive.session(caller.namespace, name)
        stored = await self._store.compactions(caller.namespace, row.id)
        everything = [one.compaction for one in stored]
        standing = [one.compaction for one in stored if one.undone_at is None]
        found = next((one for one in everything if one.id == compaction), None)
        if found is None:
            raise missing()
        if newer := builders(found, standing):
            raise NotUndoable(f"The compaction {newer[-1].id} was made from it: undo that one first.")
        now = time.time()
        if not await self._store.undo_compaction(caller.namespace, row.id, found.id, now):
            raise NotUndoable("The compaction has been undone before.")
        back = restored(found, everything, [one for one in standing if one is not found])
        await self._tell(caller.namespace, row.id, found, back, now)
        return reply(
            {
                "session": row.id,
                "compaction": found.id,
                "undone_at": now,
                "restored": back.id if back else None,
            }
        )

    async def _tell(
        self, namespace: str, session: str, undone: Compaction, back: Compaction | None, now: float
    ) -> None:
        said = compaction_undone(undone, back)
        # One undo is one event, however often it is told.
        event = Event(f"{undone.id}:undone", said.type, encoded(said.payload), now)
        await self._store.add_events(namespace, session, [event])


def _fields(stored: StoredCompaction) -> dict[str, Any]:
    times = {"created_at": stored.created_at, "undone_at": stored.undone_at}
    return {**compaction_fields(stored.compaction), **times}


def _graph(stored: Sequence[StoredCompaction], lineages: Mapping[str, Lineage]) -> dict[str, Any]:
    nodes = [
        {
            "id": one.compaction.id,
            "kind": one.compaction.kind,
            "trigger": one.compaction.trigger,
            "policy": one.compaction.policy,
            "tokens_before": one.compaction.tokens_before,
            "tokens_after": one.compaction.tokens_after,
            "created_at": one.created_at,
            "undone_at": one.undone_at,
            **_lineage(lineages.get(one.compaction.id)),
        }
        for one in stored
    ]
    pairs = edges([one.compaction for one in stored])
    return {"nodes": nodes, "edges": [{"from": parent, "to": child} for parent, child in pairs]}


def _lineage(lineage: Lineage | None) -> dict[str, Any]:
    """What a summary was made from (C12); of masks alone there is nothing to say."""
    if lineage is None:
        return {"node": None, "depth": None, "parents": [], "source_messages": 0}
    return {
        "node": lineage.kind,
        "depth": lineage.depth,
        "parents": list(lineage.parents),
        "source_messages": len(lineage.sources),
    }
