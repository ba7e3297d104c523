"""One archived entry as context_describe shows it: a summary with its sources, a message, a payload (C05).

An entry outside the scope is reported as missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from palimpsest.core.recall.lineage import FoldedSummary, Lineage, folded_on, lineages_of
from palimpsest.core.recall.searchable_text import summary_text, whole_text
from palimpsest.core.recall.tool_calls import Describe
from palimpsest.core.recall.tool_results import (
    EntryPlace,
    Json,
    SourceMessage,
    chain_digits_of,
    compaction_of,
    message_result,
    payload_id,
    payload_result,
    summary_id,
    summary_result,
)
from palimpsest.core.view.compaction import Compaction, context_id
from palimpsest.proxy.recall.searching import Where
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.history import History, MessageRow
from palimpsest.storage.store import Store


async def lineages_in(
    history: History, namespace: str, session: str, stored: Sequence[StoredCompaction]
) -> Mapping[str, Lineage]:
    """The lineage of each compaction in `stored` that removed messages, by its id. StoreError.

    `stored` are the session's, oldest first. Those that only mask are left out; as parents they are replaced
    by their own parents.
    """
    above = {one.compaction.id: one.compaction.parents for one in stored}
    summaries = [one for one in stored if one.compaction.kind == "message_removal"]
    ids = {one.compaction.id for one in summaries}
    covered: list[FoldedSummary] = []
    paths: list[tuple[bytes, ...]] = []
    # Newest first: the path of a summary mostly contains those of the older ones.
    for one in reversed(summaries):
        folded = await _folded(history, namespace, session, one, paths)
        parents = tuple(_nearest(one.compaction.parents, ids, above))
        covered.append(FoldedSummary(one.compaction.id, folded, parents, one.created_at, one.undone_at))
    covered.reverse()
    return await asyncio.to_thread(lineages_of, covered)


async def _folded(
    history: History, namespace: str, session: str, one: StoredCompaction, paths: list[tuple[bytes, ...]]
) -> tuple[bytes, ...]:
    """The chains that it folded, on one of the known `paths` or on its own, which is added to them."""
    made = one.compaction
    for path in paths:
        folded = await asyncio.to_thread(folded_on, made, path)
        # After a client dropped its oldest messages another path contains the same watermark.
        if folded is not None and len(folded) == made.messages_folded:
            return folded
    entries = await history.path(namespace, session, made.watermark)
    path = tuple(entry.chain for entry in entries)
    paths.append(path)
    return await asyncio.to_thread(folded_on, made, path) or ()


def _nearest(
    parents: Sequence[str], ids: set[str], above: Mapping[str, tuple[str, ...]], steps: int = 1_000
) -> list[str]:
    """The nearest ancestors that are summaries."""
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


_SHOWN = frozenset({"live", "incomplete"})


class Describer:
    """Describes entries. A message of more than `large_payload_tokens` is shown as head and tail."""

    def __init__(self, store: Store, large_payload_tokens: int) -> None:
        self._store = store
        self._large_payload_tokens = large_payload_tokens

    async def described(self, where: Where, asked: Describe) -> Json | None:
        """The entry; None when there is none with this id in the scope. StoreError."""
        summary = await self._summary(where, asked)
        return summary if summary is not None else await self._message(where, asked)

    async def _summary(self, where: Where, asked: Describe) -> Json | None:
        stored = await self._store.compactions.of_session(where.namespace, where.session)
        ident = compaction_of(asked.ident)
        found = next((one for one in stored if one.compaction.id == ident), None)
        if found is None or not await self._stands(where, found):
            return None
        lineage = (await lineages_in(self._store.history, where.namespace, where.session, stored))[ident]
        sources = await self._sources(where, found.compaction, lineage, asked.source_limit)
        shown_at = EntryPlace(summary_id(ident), where.session, found.created_at, "summary")
        text = summary_text(found.compaction.summary.encode("utf-8", "surrogatepass"))
        return summary_result(shown_at, text, lineage, sources, asked.page)

    async def _stands(self, where: Where, found: StoredCompaction) -> bool:
        made = found.compaction
        if made.kind != "message_removal" or found.undone_at is not None:
            return False
        return where.scope != "branch" or await self._is_on_path(where, made.watermark)

    async def _sources(
        self, where: Where, made: Compaction, lineage: Lineage, limit: int
    ) -> list[SourceMessage]:
        """The first `limit` sources; mostly only their part of the path is read."""
        wanted = lineage.sources[:limit]
        by_chain: dict[bytes, MessageRow] = {}
        for end in (*wanted[-1:], made.watermark) if wanted else ():
            rows = await self._store.history.messages(where.namespace, where.session, end, wanted[0])
            by_chain = {row.chain: row for row in rows}
            # After a rebase the sources may not be consecutive on one path.
            if by_chain.keys() >= set(wanted):
                break
        return [_source(by_chain[chain]) for chain in wanted if chain in by_chain]

    async def _message(self, where: Where, asked: Describe) -> Json | None:
        digits = chain_digits_of(asked.ident)
        if digits is None:
            return None
        found = await self._store.history.message(
            where.namespace, bytes.fromhex(digits[: len(digits) // 2 * 2])
        )
        if found is None or not found[1].chain.hex().startswith(digits):
            return None
        session, row = found
        if session != where.session:
            # Sessions with the same beginning share message ids: read this session's row.
            path = await self._store.history.messages(where.namespace, where.session, row.chain)
            if not path:
                return None
            row = path[-1]
        if row.state not in _SHOWN or not await self._is_within(where, row.chain):
            return None
        return self._shown(where, row, asked)

    def _shown(self, where: Where, row: MessageRow, asked: Describe) -> Json:
        is_large = row.tokens > self._large_payload_tokens
        ident = payload_id(row.chain) if is_large else context_id(row.chain)
        shown_at = EntryPlace(ident, where.session, row.created_at, "payload" if is_large else "message")
        text = whole_text(row.body) or row.body.decode("utf-8", "surrogatepass")
        if asked.page is None and is_large:
            return payload_result(shown_at, row.role, text, row.tokens)
        return message_result(shown_at, row.role, text, asked.page)

    async def _is_within(self, where: Where, chain: bytes) -> bool:
        if where.scope == "branch":
            return await self._is_on_path(where, chain)
        # Anywhere in the session: on the path that ends at the message itself.
        return bool(await self._store.search.on_path(where.namespace, where.session, chain, [chain]))

    async def _is_on_path(self, where: Where, chain: bytes) -> bool:
        return bool(await self._store.search.on_path(where.namespace, where.session, where.head, [chain]))


def _source(row: MessageRow) -> SourceMessage:
    return SourceMessage(context_id(row.chain), row.role, row.created_at, whole_text(row.body))
