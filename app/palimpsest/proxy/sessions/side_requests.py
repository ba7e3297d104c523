"""Requests that quote or summarize a conversation without continuing its list.

`core/history/quotes.py` and `core/view/clients.py` decide; this module reads what was said last for them, and
only for lists whose beginning is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.history.branches import Mark
from palimpsest.core.history.message import Conversation
from palimpsest.core.history.quotes import (
    Said,
    pieces_of,
    quotation_of,
    quoted_bytes,
    quoted_session,
    summarized_answer,
    text_of,
)
from palimpsest.core.history.rebase import jump_to_summary
from palimpsest.core.history.resolve import placement_after_summary
from palimpsest.core.history.stored_points import Placement
from palimpsest.core.view.clients import asks_for_summary, is_client_summary
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.turn import Turn
from palimpsest.storage.history import History


@dataclass(frozen=True, slots=True)
class SideRequests:
    """Recognizes side requests within the caller's namespace."""

    history: History
    in_flight: InFlight

    async def placed(
        self, namespace: str, talk: Conversation, placement: Placement, now: float, *, may_join: bool
    ) -> tuple[Placement, Mark]:
        """The placement of the request that arrived at `now` (UTC seconds), and its mark for a side request.

        A request that quotes a session joins it, whichever of the two arrives first; one that begins with a
        summary that we relayed continues from it. `may_join`: the request named no session itself.
        """
        mark: Mark = "client_compaction" if asks_for_summary(talk) else ""
        if placement.rebase is not None or placement.found_by not in ("new", "id"):
            return placement, mark
        if not mark:
            placement = await self._behind_summary(namespace, talk, placement, may_join)
        if placement.base or placement.rebase is not None:
            return placement, mark
        quoting = quotation_of(talk.preamble, talk.messages)
        if quoting is not None and (quoting.may_quote or quoting.is_short):
            kept = await self.history.said_last(namespace, just_now=not quoting.may_quote)
            said = [*kept, *self._said_in_flight(namespace)]
            session = quoted_session(quoting, said, now)
            if session is not None and may_join:
                placement = replace(placement, session=session, found_by="quote")
            if session is not None or quoting.is_tagged:
                return placement, mark or "side"
        if placement.session is None and may_join:
            placement = self._beside_its_quotation(namespace, talk, placement, now)
        return placement, mark

    async def _behind_summary(
        self, namespace: str, talk: Conversation, placement: Placement, may_join: bool
    ) -> Placement:
        new = [new.index for new in placement.new if is_client_summary(talk.messages[new.index].fields)]
        if not new:
            return placement
        if placement.session is None and not may_join:
            # The first list under a session name of the client's.
            return placement
        said = await self.history.said_last(namespace)
        found = summarized_answer(talk.messages[new[-1]], said, placement.session)
        if found is None:
            return placement
        anchors = await self.history.known(namespace, [found.chain], found.session)
        path = await self.history.path(namespace, found.session, found.chain)
        if not anchors or not path:
            return placement
        return placement_after_summary(
            talk, placement, found.session, jump_to_summary(talk, new[-1], anchors[0], path)
        )

    def _said_in_flight(self, namespace: str) -> Iterator[Said]:
        """The newest questions of sessions that begin now, and whose requests may not be stored yet."""
        for turn in self._beginning(namespace):
            if not turn.mark:
                yield from _said(turn.conversation, turn.session, turn.started_at)

    def _beside_its_quotation(
        self, namespace: str, talk: Conversation, placement: Placement, now: float
    ) -> Placement:
        """A conversation begins in the session of a request that quotes it and arrived before it."""
        for turn in self._beginning(namespace):
            quoting = quotation_of(turn.conversation.preamble, turn.conversation.messages)
            pieces = pieces_of(_said(talk, "", now)) if quoting is not None and quoting.may_quote else {}
            if quoting is not None and quoted_bytes(quoting, pieces, turn.started_at):
                return replace(placement, session=turn.session, found_by="quote")
        return placement

    def _beginning(self, namespace: str) -> Sequence[Turn]:
        """The requests in flight with which unnamed sessions begin."""
        return [
            turn
            for turn in self.in_flight.turns
            if turn.namespace == namespace and turn.is_new and not turn.carrier
        ]


def _said(talk: Conversation, session: str, at: float) -> Iterator[Said]:
    for message in talk.messages:
        if message.role in ("user", "assistant") and (text := text_of(message)):
            yield Said(session, text, message.role == "assistant", at)
