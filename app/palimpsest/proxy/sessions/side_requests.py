"""Requests that quote or summarize a conversation without continuing its list.

`core/history/quotes.py` and `core/view/clients.py` decide; this module reads the newest answers for them, and
only for lists whose beginning is not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palimpsest.core.history.branches import Mark
from palimpsest.core.history.message import Conversation
from palimpsest.core.history.quotes import (
    Exchanged,
    is_tagged_quotation,
    quotation_in,
    quoted_session,
    summarized_answer,
    text_of,
)
from palimpsest.core.history.rebase import jump_to_summary
from palimpsest.core.history.resolve import placement_after_summary
from palimpsest.core.history.stored_points import Placement
from palimpsest.core.view.clients import asks_for_summary, is_client_summary
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.storage.history import History


class SideRequests:
    """Recognizes side requests within the caller's namespace."""

    def __init__(self, history: History, reader: MessageReader) -> None:
        self._history = history
        self._reader = reader

    async def placed(
        self, namespace: str, talk: Conversation, placement: Placement, model: str, *, may_join: bool
    ) -> tuple[Placement, Mark]:
        """The placement of the request, and its mark if it is a side request.

        A request that quotes the newest turn of one session joins that session; one that begins with a
        summary that we relayed continues from it. `may_join`: the request named no session itself.
        """
        if asks_for_summary(talk):
            return placement, "client_compaction"
        if placement.rebase is not None or placement.found_by not in ("new", "id"):
            return placement, ""
        if not placement.base and (text := quotation_in(talk)) is not None:
            session = quoted_session(text, await self._exchanged(namespace, model))
            if session is not None and may_join:
                placement = replace(placement, session=session, found_by="quote")
            is_side = session is not None or is_tagged_quotation(text)
            return placement, "side" if is_side else ""
        return await self._behind_summary(namespace, talk, placement, model, may_join), ""

    async def _behind_summary(
        self, namespace: str, talk: Conversation, placement: Placement, model: str, may_join: bool
    ) -> Placement:
        new = [new.index for new in placement.new if is_client_summary(talk.messages[new.index].fields)]
        if not new:
            return placement
        if placement.session is None and not may_join:
            # The first list under a session name of the client's.
            return placement
        exchanged = await self._exchanged(namespace, model)
        found = summarized_answer(talk.messages[new[-1]], exchanged, placement.session)
        if found is None:
            return placement
        anchors = await self._history.known(namespace, [found.chain], found.session)
        path = await self._history.path(namespace, found.session, found.chain)
        if not anchors or not path:
            return placement
        return placement_after_summary(
            talk, placement, found.session, jump_to_summary(talk, new[-1], anchors[0], path)
        )

    async def _exchanged(self, namespace: str, model: str) -> Sequence[Exchanged]:
        said = await self._history.last_answers(namespace)
        raws = [raw for each in said for raw in (each.question, each.answer)]
        messages = await self._reader.read_stored(raws, model)
        words = [text_of(message) or "" for message in messages]
        return [
            Exchanged(each.session, each.chain, each.answers, question, answer)
            for each, question, answer in zip(said, words[::2], words[1::2], strict=True)
        ]
