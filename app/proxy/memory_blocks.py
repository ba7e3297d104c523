"""The memory block of a session in the store: entries are added, the oldest folded (B16).

Knows nothing of what a fold says: that is `app.core.summary.rolling.memory_block`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol
from weakref import WeakValueDictionary

import structlog

from app.core.runtime.gist import Gist, memory_entry_of
from app.core.summary.acceptance import SummaryReply
from app.core.summary.prompt import SummaryRequest
from app.core.summary.rolling.memory_block import (
    MemoryBlock,
    MemoryFold,
    MemoryRules,
    accepted_fold,
    fold_of,
    fold_request,
    folded_by_code,
    with_entry,
)
from app.errors import Conflict, InvalidParameter, StoreError, SummaryRejected
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.scenes import Scenes
from app.proxy.memories import block_of, rows_of, text_of
from app.proxy.turn import Turn
from app.storage.contract import Store
from app.storage.journal import Memory, MemoryKind

_log = structlog.get_logger("palimpsest.memory")
_RULES = MemoryRules()
# A block is a few dozen lines; the entries since have to stand in views beside it (`memory_tokens`).
_BLOCK_TOKENS = 600
# Folds that others may win against ours before we give up.
_TRIES = 4


class Asks(Protocol):
    """Puts one question to the model that writes summaries."""

    async def replied(self, scene: Scene, request: SummaryRequest) -> SummaryReply | None:
        """Its answer; None when nobody may be asked, or none came."""


@dataclass(frozen=True, slots=True)
class Added:
    """The id of the new entry, the block now, how many entries were folded, and who wrote the fold."""

    entry: str
    block: MemoryBlock
    folded: int = 0
    author: Literal["model", "deterministic", "none"] = "none"


class MemoryBlocks:
    """One for the application. Without `asks` code folds."""

    def __init__(self, store: Store, asks: Asks | None, new_id: Callable[[], str]) -> None:
        self._store = store
        self._asks = asks
        self._new_id = new_id
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def added(self, scene: Scene, text: str) -> Added:
        """The entry is stored, and the oldest are folded when there are fifteen.

        InvalidParameter for a text that says nothing. Conflict when other servers kept folding at the
        same time; the entry is stored then.
        """
        if not with_entry(MemoryBlock(), text).entries:
            raise InvalidParameter("The entry says nothing.", param="text")
        entry = self._memory("entry", text)
        await self._store.add_memory(scene.turn.namespace, scene.turn.session, entry)
        lock = self._locks.setdefault((scene.turn.namespace, scene.turn.session), asyncio.Lock())
        async with lock:
            return await self._folded(scene, entry.id)

    async def remembers(self, scenes: Scenes, turn: Turn, gist: Gist) -> None:
        """What a span of the conversation came to is an entry, where the policy says so."""
        text = memory_entry_of(gist)
        if not text:
            return
        try:
            scene = await scenes.of(turn)
            if scene.policy.memory_entries:
                await self.added(scene, text)
        except (Conflict, StoreError) as error:
            _log.warning("memory_entry_not_folded", error=type(error).__name__, session=turn.session)

    async def _folded(self, scene: Scene, entry: str) -> Added:
        namespace, session = scene.turn.namespace, scene.turn.session
        for _ in range(_TRIES):
            blocks, rows = await rows_of(self._store, namespace, session)
            block = block_of(blocks, rows)
            fold = fold_of(block, _RULES)
            if fold is None:
                return Added(entry, block)
            told = await self._told(scene, fold)
            summary = told or folded_by_code(fold, _BLOCK_TOKENS, scene.count_text)
            folded, rest = rows[: len(fold.entries)], rows[len(fold.entries) :]
            gone = [row.memory.id for row in (*blocks, *folded)]
            new = self._memory("block", summary)
            if await self._store.replace_memory_block(namespace, session, gone, new):
                block = MemoryBlock(summary, tuple(map(text_of, rest)))
                return Added(entry, block, len(folded), "model" if told else "deterministic")
        raise Conflict("The memory is being folded by others; the entry is stored.")

    async def _told(self, scene: Scene, fold: MemoryFold) -> str | None:
        if self._asks is None:
            return None
        request = fold_request(fold, scene.budget.window_tokens, _BLOCK_TOKENS, scene.count_text)
        reply = await self._asks.replied(scene, request)
        if reply is None:
            return None
        try:
            return accepted_fold(reply, request, fold, scene.count_text).strip() or None
        except SummaryRejected as rejected:
            _log.warning("memory_fold_rejected", reason=rejected.message, session=scene.turn.session)
            return None

    def _memory(self, kind: MemoryKind, text: str) -> Memory:
        return Memory(self._new_id(), kind, text.encode("utf-8", "surrogatepass"), None, time.time())
