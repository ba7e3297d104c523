"""Endpoints that undo a session's compactions, singly or back to a checkpoint."""

from __future__ import annotations

import time
from typing import Annotated, TypedDict

from fastapi import APIRouter, Path

from palimpsest.api.callers import Admitted, Branch, SessionName
from palimpsest.api.compactions import CompactionId
from palimpsest.api.replies import Reply, UtcTime, reply, utc_time
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.runtime.events import Event
from palimpsest.core.view.compaction import Compaction, builders, restored
from palimpsest.core.view.view import applicable, applies
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import NotUndoable
from palimpsest.proxy.archive import Archive, missing
from palimpsest.storage.journal import EventRow
from palimpsest.storage.store import Store


class UndoneCompaction(TypedDict):
    """What was undone, and the compaction that is in force again."""

    session: str
    compaction: str
    undone_at: UtcTime
    restored: str | None


class RestoredCheckpoint(PlaceFields):
    """The compactions that were undone, and the one that is in force now."""

    checkpoint: str
    undone: list[str]
    restored: str | None


class UndoPages:
    """Undoes compactions."""

    def __init__(self, archive: Archive, store: Store) -> None:
        self._archive = archive
        self._store = store

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route(
            "/sessions/{name:path}/compactions/{compaction}/undo", self.undo_compaction, methods=["POST"]
        )
        api.add_api_route(
            "/sessions/{name:path}/checkpoints/{checkpoint}/restore",
            self.restore_checkpoint,
            methods=["POST"],
        )

    async def undo_compaction(
        self, caller: Admitted, name: SessionName, compaction: CompactionId
    ) -> Reply[UndoneCompaction]:
        """Undo a compaction.

        From the next request on the one it was made from is in force again. 409 when it was undone before, or
        when another one in force was made from it.
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
                "undone_at": utc_time(now),
                "restored": back.id if back else None,
            }
        )

    async def restore_checkpoint(
        self,
        caller: Admitted,
        name: SessionName,
        checkpoint: Annotated[str, Path(description="Id of a checkpoint of the session.")],
        branch: Branch = None,
    ) -> Reply[RestoredCheckpoint]:
        """Undo the compactions since a checkpoint.

        Messages since then stay. 409, and nothing undone, when a compaction in force on another branch was
        made from one of them.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        at = caller.namespace, place.row.id
        found = await self._store.journal.checkpoint(*at, checkpoint)
        talk = (await self._archive.branch(place, ())).conversation
        if found is None or found.point not in (*talk.names, *talk.chains):
            raise missing()
        stored = await self._store.compactions.of_session(*at)
        everything = [one.compaction for one in stored]
        left = [one.compaction for one in stored if one.undone_at is None]
        since = [one.compaction for one in stored if one.arrival > found.arrival]
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
        payload = {"compactionId": compaction.id, "restoredId": back.id if back else None}
        said = Event("compaction_undone", payload)
        # The id makes repeated calls record a single event.
        event = EventRow(f"{compaction.id}:undone", said.type, encoded(said.payload), now)
        await self._store.journal.add_events(namespace, session, [event])
        return True
