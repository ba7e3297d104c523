"""The memory block of a session in the store: entries are added, the oldest are folded (B16)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal
from weakref import WeakValueDictionary

import structlog

from palimpsest.core.history.message import Message
from palimpsest.core.runtime.checkpoint import gist_of, memory_entry_of
from palimpsest.core.summary.memory_block import (
    MemoryBlock,
    accepted_fold,
    fold_of,
    fold_request,
    folded_by_code,
    with_entry,
)
from palimpsest.errors import BackgroundFailed, Conflict, InvalidParameter, StoreError, SummaryRejected
from palimpsest.proxy.background import Background
from palimpsest.proxy.compacting.summary_writer import SummaryWriter
from palimpsest.proxy.compaction_context import CompactionContext, ContextLoader
from palimpsest.proxy.journal_rows import block_of, rows_of, text_of
from palimpsest.proxy.turn import Turn
from palimpsest.storage.journal import Journal, MemoryKind, MemoryRow

_log = structlog.get_logger("palimpsest.memory")
# A block is a few dozen lines; views show it together with the entries since (`memory_tokens`).
_BLOCK_TOKENS = 600
# Attempts, each lost to a fold by another server, before we give up.
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Added:
    """The id of the new entry, the resulting block, the number of entries folded, and the fold's author."""

    entry: str
    block: MemoryBlock
    folded: int = 0
    author: Literal["model", "deterministic", "none"] = "none"


class MemoryBlocks:
    """Adds entries to memory blocks; the model that writes summaries folds them, or else code."""

    def __init__(self, journal: Journal, asks: SummaryWriter, new_id: Callable[[], str]) -> None:
        self._journal = journal
        self._asks = asks
        self._new_id = new_id
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def added(self, context: CompactionContext, text: str) -> Added:
        """Store the entry, and fold the oldest ones when there are fifteen.

        InvalidParameter for an empty text. Conflict when other servers kept folding at the same time; the
        entry is stored then.
        """
        if not with_entry(MemoryBlock(), text).entries:
            raise InvalidParameter("The entry says nothing.", param="text")
        entry = self._memory("entry", text)
        await self._journal.add_memory(*context.key, entry)
        lock = self._locks.setdefault(context.key, asyncio.Lock())
        async with lock:
            for _ in range(_TRIES):
                blocks, rows = await rows_of(self._journal, *context.key)
                block = block_of(blocks, rows)
                fold = fold_of(block)
                if fold is None:
                    return Added(entry.id, block)
                by_model = await self._fold_by_model(context, fold)
                summary = by_model or folded_by_code(fold, _BLOCK_TOKENS, context.count_text)
                folded, rest = rows[: len(fold.entries)], rows[len(fold.entries) :]
                gone = [row.id for row in (*blocks, *folded)]
                new = self._memory("block", summary)
                if await self._journal.replace_memory_block(*context.key, gone, new):
                    block = MemoryBlock(summary, tuple(map(text_of, rest)))
                    return Added(entry.id, block, len(folded), "model" if by_model else "deterministic")
        raise Conflict("The memory is being folded by others; the entry is stored.")

    async def remembers(
        self, contexts: ContextLoader, background: Background, turn: Turn, span: Sequence[Message]
    ) -> None:
        """Add the gist of a span of the conversation as an entry, if the policy says so."""
        try:
            context = await contexts.of(turn)
            if context.policy.is_off or not context.policy.memory_entries:
                return
            weight = sum(len(message.raw) for message in span)
            if text := memory_entry_of(await background.run(weight, gist_of, span)):
                await self.added(context, text)
        except (BackgroundFailed, Conflict, StoreError) as error:
            _log.warning("memory_entry_not_folded", error=type(error).__name__, session=turn.session)

    async def _fold_by_model(self, context: CompactionContext, fold: MemoryBlock) -> str | None:
        request = fold_request(fold, context.budget.window_tokens, _BLOCK_TOKENS, context.count_text)
        reply = await self._asks.replied(context, request)
        if reply is None:
            return None
        try:
            return accepted_fold(reply, request, fold, context.count_text).strip() or None
        except SummaryRejected as rejected:
            _log.warning("memory_fold_rejected", reason=rejected.message, session=context.turn.session)
            return None

    def _memory(self, kind: MemoryKind, text: str) -> MemoryRow:
        return MemoryRow(self._new_id(), kind, text.encode("utf-8", "surrogatepass"), None, time.time())
