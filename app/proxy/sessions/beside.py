"""Requests that belong to a conversation they do not continue: those that quote it, and those that sum it up.

The decisions are `app.core.history.quotes` and `app.core.view.clients`; here what was answered last is read.
Asked only of lists that begin with nothing that is known: the turns of a conversation pass by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.history.branches import Mark
from app.core.history.conversation import Conversation
from app.core.history.known import Placement
from app.core.history.quotes import Exchanged, is_set_off, quotation_in, quoted_session, summed_up, text_of
from app.core.history.rebase import seam_of
from app.core.history.resolve import behind_seam
from app.core.view.clients import asks_for_summary, is_client_summary
from app.proxy.sessions.reader import MessageReader
from app.storage.contract import Store


class Beside:
    """One for the application; every look is into the caller's own namespace."""

    def __init__(self, store: Store, reader: MessageReader) -> None:
        self._store = store
        self._reader = reader

    async def placed(
        self, namespace: str, talk: Conversation, placement: Placement, model: str, *, may_join: bool
    ) -> tuple[Placement, Mark]:
        """Where it belongs, and what it is beside a conversation. `may_join`: it named no session of its own.

        A request that quotes the newest turn of one session hangs on that one; one that begins with a summary
        that we relayed goes on from it.
        """
        if asks_for_summary(talk):
            return placement, "client_compaction"
        if placement.rebase is not None or placement.found_by not in ("new", "id"):
            return placement, ""
        if not placement.base and (text := quotation_in(talk)) is not None:
            session = quoted_session(text, await self._exchanged(namespace, model))
            if session is not None and may_join:
                placement = replace(placement, session=session, found_by="quote")
            is_side = session is not None or is_set_off(text)
            return placement, "side" if is_side else ""
        return await self._behind_summary(namespace, talk, placement, model, may_join), ""

    async def _behind_summary(
        self, namespace: str, talk: Conversation, placement: Placement, model: str, may_join: bool
    ) -> Placement:
        new = [new.index for new in placement.new if is_client_summary(talk.messages[new.index].fields)]
        if not new:
            return placement
        if placement.session is None and not may_join:
            # The first list of a name of the client's own.
            return placement
        exchanged = await self._exchanged(namespace, model)
        found = summed_up(talk.messages[new[-1]], exchanged, placement.session)
        if found is None:
            return placement
        anchors = await self._store.known(namespace, [found.chain], found.session)
        path = await self._store.path(namespace, found.session, found.chain)
        if not anchors or not path:
            return placement
        return behind_seam(talk, placement, found.session, seam_of(talk, new[-1], anchors[0], path))

    async def _exchanged(self, namespace: str, model: str) -> Sequence[Exchanged]:
        said = await self._store.said_last(namespace)
        raws = [raw for each in said for raw in (each.question, each.answer)]
        messages = await self._reader.read_stored(raws, model)
        words = [text_of(message) or "" for message in messages]
        return [
            Exchanged(each.session, each.chain, each.answers, question, answer)
            for each, question, answer in zip(said, words[::2], words[1::2], strict=True)
        ]
