"""Requests that go on from an answer the upstream keeps, and upstreams that keep none.

Such a request is passed on as it came while its upstream knows the answer; else all that was said goes with
it. Knows nothing of how requests travel.
"""

from __future__ import annotations

from app.proxy.recall.refusing import Refusing
from app.proxy.turn import Turn

# How upstreams answer that they do not know, or do not take, the id of an answer.
_STATUSES = frozenset({400, 404, 422, 501})


class KeptAnswers:
    """One for the application. `are_kept` is the operator's word.

    `forgetting` are sessions of which an answer was gone, by its client's wish or for its age: that says
    nothing of others.
    """

    def __init__(self, forgetting: Refusing, *, are_kept: bool) -> None:
        self._forgetting = forgetting
        self._are_kept = are_kept

    def goes_on(self, turn: Turn) -> bool:
        """True when the request may leave what was said to the upstream's memory."""
        if turn.request.previous is None or not turn.is_delta:
            return False
        return self._are_kept and _place(turn) not in self._forgetting

    def are_forgotten(self, turn: Turn, status: int, body: bytes) -> bool:
        """True when this refusal says that the upstream has no such answer: it must be told all of it."""
        if status not in _STATUSES or not self.goes_on(turn):
            return False
        ident = (turn.request.previous or "").encode()
        if b"previous_response" not in body and ident not in body:
            return False
        self._forgetting.remember(*_place(turn))
        return True


def _place(turn: Turn) -> tuple[str, str, str]:
    return turn.namespace, turn.session, turn.model
