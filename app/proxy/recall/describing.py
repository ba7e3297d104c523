"""One entry of the archive as a tool shows it: a summary with its sources, a message, a large payload (C05).

What is not within the scope is not there. Changes nothing; knows nothing of tools' wire forms.
"""

from __future__ import annotations

from app.core.recall.lineage import Lineage
from app.core.recall.reading import summary_text, whole_text
from app.core.recall.tools.arguments import Describe
from app.core.recall.tools.ids import chain_digits_of, compaction_of, payload_id, summary_id
from app.core.recall.tools.results import Json, Source, Told, message_result, payload_result, summary_result
from app.core.view.compaction import Compaction, context_id
from app.proxy.recall.lineages import lineages_in
from app.proxy.recall.searching import Where
from app.storage.contract import MessageRow, Store, StoredCompaction

_SHOWN = frozenset({"live", "incomplete"})


class Describing:
    """One for the application. A message of more than `large_payload_tokens` is shown as head and tail."""

    def __init__(self, store: Store, large_payload_tokens: int) -> None:
        self._store = store
        self._large_payload_tokens = large_payload_tokens

    async def described(self, where: Where, asked: Describe) -> Json | None:
        """The entry; None when there is none of this id within the scope. StoreError."""
        summary = await self._summary(where, asked)
        return summary if summary is not None else await self._message(where, asked)

    async def _summary(self, where: Where, asked: Describe) -> Json | None:
        stored = await self._store.compactions(where.namespace, where.session)
        ident = compaction_of(asked.ident)
        found = next((one for one in stored if one.compaction.id == ident), None)
        if found is None or not await self._stands(where, found):
            return None
        lineage = (await lineages_in(self._store, where.namespace, where.session, stored))[ident]
        sources = await self._sources(where, found.compaction, lineage, asked.source_limit)
        told = Told(summary_id(ident), where.session, found.created_at, "summary")
        text = summary_text(found.compaction.summary.encode("utf-8", "surrogatepass"))
        return summary_result(told, text, lineage, sources, asked.page)

    async def _stands(self, where: Where, found: StoredCompaction) -> bool:
        made = found.compaction
        if made.kind != "message_removal" or found.undone_at is not None:
            return False
        return where.scope != "branch" or await self._is_on_path(where, made.watermark)

    async def _sources(self, where: Where, made: Compaction, lineage: Lineage, limit: int) -> list[Source]:
        """The first `limit` of them; only the stretch of the path where they stand is read, mostly."""
        wanted = lineage.sources[:limit]
        by_chain: dict[bytes, MessageRow] = {}
        for end in (*wanted[-1:], made.watermark) if wanted else ():
            rows = await self._store.bodies(where.namespace, where.session, end, wanted[0])
            by_chain = {row.chain: row for row in rows}
            # A list that the client put together anew may hold messages that did not follow each other.
            if by_chain.keys() >= set(wanted):
                break
        return [_source(by_chain[chain]) for chain in wanted if chain in by_chain]

    async def _message(self, where: Where, asked: Describe) -> Json | None:
        digits = chain_digits_of(asked.ident)
        if digits is None:
            return None
        found = await self._store.message(where.namespace, bytes.fromhex(digits[: len(digits) // 2 * 2]))
        if found is None or not found[1].chain.hex().startswith(digits):
            return None
        session, row = found
        if session != where.session:
            # Two sessions may begin alike, and have their own fate: the row is this session's.
            path = await self._store.bodies(where.namespace, where.session, row.chain)
            if not path:
                return None
            row = path[-1]
        if row.state not in _SHOWN or not await self._is_within(where, row.chain):
            return None
        return self._shown(where, row, asked)

    def _shown(self, where: Where, row: MessageRow, asked: Describe) -> Json:
        is_large = row.tokens > self._large_payload_tokens
        ident = payload_id(row.chain) if is_large else context_id(row.chain)
        told = Told(ident, where.session, row.created_at, "payload" if is_large else "message")
        text = whole_text(row.body) or row.body.decode("utf-8", "surrogatepass")
        if asked.page is None and is_large:
            return payload_result(told, row.role, text, row.tokens)
        return message_result(told, row.role, text, asked.page)

    async def _is_within(self, where: Where, chain: bytes) -> bool:
        if where.scope == "branch":
            return await self._is_on_path(where, chain)
        # Any place of the session: the path that ends at the message itself.
        return bool(await self._store.path_holds(where.namespace, where.session, chain, [chain]))

    async def _is_on_path(self, where: Where, chain: bytes) -> bool:
        return bool(await self._store.path_holds(where.namespace, where.session, where.head, [chain]))


def _source(row: MessageRow) -> Source:
    return Source(context_id(row.chain), row.role, row.created_at, whole_text(row.body))
