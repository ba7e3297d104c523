"""Answers and items that upstreams keep for later requests, and a memory of what upstreams refused.

A request that references kept answers or items is forwarded as received while its upstream knows them, else
with the full history. Refusals are remembered by caller, so that no caller can switch a feature off for
others with a faulty request; in memory and for a day, after which the feature is tried again.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from palimpsest.proxy.turn import Turn

# Callers choose model names, so that what is remembered is bounded.
_REFUSED = 10_000
# Servers are replaced within days; trying again costs one refused request.
LIFE_SECONDS = 86_400.0


class RefusalMemory:
    """What was refused within the last day; one instance for each feature.

    A place is a namespace with a model, or with a session and a model.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def remember(self, *place: str) -> None:
        """Record a refusal at the place."""
        self._places[place] = self._clock()
        self._places.move_to_end(place)
        if len(self._places) > _REFUSED:
            self._places.popitem(last=False)

    def __contains__(self, place: tuple[str, ...]) -> bool:
        refused_at = self._places.get(place)
        return refused_at is not None and self._clock() - refused_at < LIFE_SECONDS


# Statuses with which upstreams refuse the id of an answer.
_STATUSES = frozenset({400, 404, 422, 501})
# Words beside the id of an item that mean that it does not exist: "Item with id '...' not found".
_MISSING = re.compile(rb"not found|exist|unknown|no such|no item|persisted|expired|deleted", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Decides whether requests may reference what upstreams keep. `are_kept`: the operator's setting.

    `forgetting`: sessions of which the upstream has lost an answer, deleted or expired; others are not
    affected.
    """

    forgetting: RefusalMemory
    are_kept: bool

    def may_continue(self, turn: Turn) -> bool:
        """True when the request may, or must, leave earlier messages to the upstream."""
        if turn.begins_unseen:
            return True
        if turn.request.previous is None or not turn.is_delta or turn.continues_hidden:
            return False
        return self._are_named(turn)

    def with_items(self, turn: Turn) -> Turn:
        """The turn, with items instead of references to them if the upstream does not keep items."""
        if self._are_named(turn) or not turn.request.as_sent:
            return turn
        return replace(turn, request=turn.request.whole)

    def _are_named(self, turn: Turn) -> bool:
        return self.are_kept and _place(turn) not in self.forgetting

    def are_forgotten(self, turn: Turn, status: int, body: bytes) -> bool:
        """True when the refusal means that the upstream lacks an answer or item: the full history is sent
        next.

        False when only the upstream knows how the conversation began: the rest would be another conversation.
        """
        if turn.begins_unseen or status not in _STATUSES:
            return False
        ident = (turn.request.previous or "").encode("utf-8", "surrogatepass")
        lacks = self.may_continue(turn) and (b"previous_response" in body or ident in body)
        if not lacks and turn.request.as_sent and self._are_named(turn):
            # A referenced item whose content is known here.
            idents = (item.encode("utf-8", "surrogatepass") for item in turn.request.references.values())
            is_named = any(item in body for item in idents)
            lacks = b"item_reference" in body or (is_named and _MISSING.search(body) is not None)
        if lacks:
            self.forgetting.remember(*_place(turn))
        return lacks


def _place(turn: Turn) -> tuple[str, str, str]:
    return turn.namespace, turn.session, turn.model
