"""Requests that go on from an answer the upstream keeps, or name its items, and upstreams that keep none.

Such a request is passed on as it came while its upstream knows what it names; else all that was said goes
with it. Knows nothing of how requests travel.
"""

from __future__ import annotations

import re
from dataclasses import replace

from app.proxy.recall.refusing import Refusing
from app.proxy.turn import Turn

# How upstreams answer that they do not know, or do not take, the id of an answer.
_STATUSES = frozenset({400, 404, 422, 501})
# And, beside the id of an item, that there is none: "Item with id '...' not found" and its like.
_MISSING = re.compile(rb"not found|exist|unknown|no such|no item|persisted|expired|deleted", re.IGNORECASE)


class KeptAnswers:
    """One for the application. `are_kept` is the operator's word.

    `forgetting` are sessions of which an answer was gone, by its client's wish or for its age: that says
    nothing of others.
    """

    def __init__(self, forgetting: Refusing, *, are_kept: bool) -> None:
        self._forgetting = forgetting
        self._are_kept = are_kept

    def goes_on(self, turn: Turn) -> bool:
        """True when the request may leave what was said to the upstream's memory, or has to."""
        if turn.begins_unseen:
            return True
        if turn.request.previous is None or not turn.is_delta or turn.goes_on_unseen:
            return False
        return self._are_kept and _place(turn) not in self._forgetting

    def worded(self, turn: Turn) -> Turn:
        """The turn; where the upstream knows no items that the request only names, with their words."""
        if self._are_named(turn) or not turn.request.as_sent:
            return turn
        return replace(turn, request=turn.request.whole)

    def _are_named(self, turn: Turn) -> bool:
        return self._are_kept and _place(turn) not in self._forgetting

    def are_forgotten(self, turn: Turn, status: int, body: bytes) -> bool:
        """True when this refusal says that the upstream has no such answer, or item: it must be told all.

        False where nobody here knows all: the rest alone would be another conversation.
        """
        if turn.begins_unseen or status not in _STATUSES:
            return False
        if not (self._lacks_answer(turn, body) or self._lacks_item(turn, body)):
            return False
        self._forgetting.remember(*_place(turn))
        return True

    def _lacks_answer(self, turn: Turn, body: bytes) -> bool:
        ident = (turn.request.previous or "").encode("utf-8", "surrogatepass")
        return self.goes_on(turn) and (b"previous_response" in body or ident in body)

    def _lacks_item(self, turn: Turn, body: bytes) -> bool:
        """Only of items that can be told: what nobody here knows is the upstream's to judge."""
        if not turn.request.as_sent or not self._are_named(turn):
            return False
        idents = (ident.encode("utf-8", "surrogatepass") for ident in turn.request.references.values())
        names = any(ident in body for ident in idents)
        return b"item_reference" in body or (names and _MISSING.search(body) is not None)


def _place(turn: Turn) -> tuple[str, str, str]:
    return turn.namespace, turn.session, turn.model
