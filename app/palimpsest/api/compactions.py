"""Endpoints that list a session's compactions, also as a graph, and undo them, singly or to a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import reply
from palimpsest.api.sessions import place_fields, stored_fields
from palimpsest.core.recall.lineage import Lineage
from palimpsest.core.runtime.events import compaction_undone
from palimpsest.core.view.compaction import Compaction, builders, context_id, edges, restored
from palimpsest.core.view.view import applicable, applies
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import NotUndoable
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.recall.describing import lineages_in
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.journal import CheckpointRow, EventRow
from palimpsest.storage.store import Store


class _Span(msgspec.Struct, rename="camel"):
    to_id: str


class _Known(msgspec.Struct):
    """The part of a checkpoint's payload that is read here."""

    span: _Span


class CompactionPages:
    """Compactions of a session."""

    def __init__(self, archive: Archive, store: Store) -> None:
        self._archive = archive
        self._store = store

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/compactions", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/compactions/{compaction}/undo", self.undo, methods=["POST"])
        api.add_api_route(
            "/sessions/{name:path}/checkpoints/{checkpoint}/restore", self.restore, methods=["POST"]
        )

    async def listed(self, caller: Admitted, name: str, graph: bool = False) -> Response:
        """Every compaction of the session, oldest first; `graph`: with what each was made from."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._store.compactions.of_session(caller.namespace, row.id)
        if graph:
            lineages = await lineages_in(self._store.history, caller.namespace, row.id, stored)
            return reply({"session": row.id, **_graph(stored, lineages)})
        return reply({"session": row.id, "compactions": [stored_fields(one) for one in stored]})

    async def undo(self, caller: Admitted, name: str, compaction: str) -> Response:
        """Undo a compaction from the next request on; the one it was made from is in force again.

        409 when it was undone before, or when another one in force was made from it.
        """
        row = await self._archive.session(caller.namespace, name)
        stored = await self._store.compactions.of_session(caller.namespace, row.id)
        everything = [one.compaction for one in stored]
        standing = [one.compaction for one in stored if one.undone_at is None]
        found = next((one for one in everything if one.id == compaction), None)
        if found is None:
            raise missing()
        if newer := builders(found, standing):
            raise NotUndoable(f"The compaction {newer[-1].id} was made from it: undo that one first.")
        now = time.time()
        back = restored(found, everything, [one for one in standing if one is not found])
        if not await self._undone(caller.namespace, row.id, found, back, now):
            raise NotUndoable("The compaction has been undone before.")
        return reply(
            {
                "session": row.id,
                "compaction": found.id,
                "undone_at": now,
                "restored": back.id if back else None,
            }
        )

    async def restore(
        self, caller: Admitted, name: str, checkpoint: str, branch: str | None = None
    ) -> Response:
        """Undo the branch's compactions since a checkpoint; messages since then stay.

        409, and nothing undone, when a compaction in force on another branch was made from one of them.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        at = caller.namespace, place.row.id
        found = await self._store.journal.checkpoint(*at, checkpoint)
        talk = (await self._archive.branch(place, ())).conversation
        if found is None or _end_of(found.checkpoint) not in map(context_id, talk.names):
            raise missing()
        stored = await self._store.compactions.of_session(*at)
        everything = [one.compaction for one in stored]
        left = [one.compaction for one in stored if one.undone_at is None]
        since = [one.compaction for one in stored if one.created_at >= found.checkpoint.created_at]
        gone = [one for one in reversed(since) if one in left and applies(one, talk)]
        if above := [other for one in gone for other in builders(one, left) if other not in gone]:
            raise NotUndoable(f"The compaction {above[-1].id} of another branch was made from it.")
        now, back = time.time(), None
        for one in gone:
            left.remove(one)
            back = restored(one, everything, left)
            await self._undone(*at, one, back, now)
        force = applicable(left, talk)
        return reply(
            {
                **place_fields(place),
                "checkpoint": checkpoint,
                "undone": [one.id for one in gone],
                "restored": force.id if force else None,
            }
        )

    async def _undone(
        self, namespace: str, session: str, compaction: Compaction, back: Compaction | None, now: float
    ) -> bool:
        """Undo it and record an event; False when it was undone before."""
        if not await self._store.compactions.undo(namespace, session, compaction.id, now):
            return False
        await self._tell(namespace, session, compaction, back, now)
        return True

    async def _tell(
        self, namespace: str, session: str, undone: Compaction, back: Compaction | None, now: float
    ) -> None:
        said = compaction_undone(undone, back)
        # The id makes repeated calls record a single event.
        event = EventRow(f"{undone.id}:undone", said.type, encoded(said.payload), now)
        await self._store.journal.add_events(namespace, session, [event])


def _end_of(checkpoint: CheckpointRow) -> str:
    """The id of the newest message in the checkpoint; "" when it cannot be read."""
    try:
        return msgspec.json.decode(checkpoint.payload, type=_Known).span.to_id
    except msgspec.MsgspecError:
        return ""


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
    """What a summary was made from (C12); empty for masks alone."""
    if lineage is None:
        return {"node": None, "depth": None, "parents": [], "source_messages": 0}
    return {
        "node": lineage.kind,
        "depth": lineage.depth,
        "parents": list(lineage.parents),
        "source_messages": len(lineage.sources),
    }
