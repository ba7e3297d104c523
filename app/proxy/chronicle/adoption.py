"""A compaction comes into force: stored with all that belongs to it, after what must be there before it.

Knows nothing of how it was made nor of whether its view is valid.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from app.core.view.compaction import Compaction
from app.errors import Conflict, StoreError
from app.proxy.chronicle.chronicle import Chronicle
from app.proxy.compacting.scene import Scene
from app.proxy.jobs import Jobs
from app.storage.contract import Store

_log = structlog.get_logger("palimpsest.compactor")


class Adoption:
    """One for the application."""

    def __init__(self, store: Store, jobs: Jobs, chronicle: Chronicle) -> None:
        self._store = store
        self._jobs = jobs
        self._chronicle = chronicle

    async def stored(self, scene: Scene, compaction: Compaction, *, summaries: int) -> bool:
        """True when the compaction is in force; False when the session was erased meanwhile.

        StoreError when it, or its checkpoint (A36), cannot be stored: then nothing is removed. It is
        stored to the end when the caller is cancelled. `summaries`: those being written now.
        """
        turn = scene.turn
        row = await self._store.named(turn.namespace, turn.session)
        if row is None:
            return False
        try:
            chapter = await self._chronicle.before(scene, compaction, summaries=summaries)
        except Conflict:
            return False
        adding = self._store.add_compaction(
            turn.namespace, turn.session, row.epoch, compaction, chapter.at, chapter.also
        )
        try:
            stored = await self._jobs.finish(adding)
        except StoreError:
            await self.failed(scene, compaction, "not_stored")
            raise
        if stored:
            self._chronicle.adopted(chapter)
            _told(turn.session, compaction)
        return stored

    async def named(self, scene: Scene, compaction: Compaction) -> Compaction:
        """With the ids under which what it masks is stored: others behind a client's jump. StoreError."""
        if not compaction.masks:
            return compaction
        turn, talk = scene.turn, scene.turn.conversation
        names: Sequence[bytes] = talk.names
        if names == talk.chains:
            names = [point.chain for point in await self._store.path(turn.namespace, turn.session, talk.head)]
        return compaction.named(dict(zip(talk.chains, names, strict=False)))

    async def failed(self, scene: Scene, compaction: Compaction, reason: str) -> None:
        """Its event is there, if it can be stored; `reason` is a stable word."""
        await self._chronicle.failed(scene.turn, reason, compaction.trigger, compaction.watermark)


def _told(session: str, compaction: Compaction) -> None:
    _log.info(
        "compaction",
        session=session,
        id=compaction.id,
        kind=compaction.kind,
        trigger=compaction.trigger,
        author=compaction.author,
        tokens_before=compaction.tokens_before,
        tokens_after=compaction.tokens_after,
    )
