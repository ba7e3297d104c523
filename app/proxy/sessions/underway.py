"""The points of history at which a request is under way, so that a twin does not sit down beside it.

Two sessions that said the same so far are told apart by nothing but who is being answered. Knows nothing of
what is decided from it; holds nothing once the requests have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from app.core.history.known import Known
from app.proxy.turn import Turn


class UnderWay:
    """One per process: two replicas may still take one twin for the other."""

    def __init__(self) -> None:
        self._points: Counter[tuple[str, bytes]] = Counter()

    @contextmanager
    def at(self, turn: Turn) -> Iterator[None]:
        """While it lasts, the point the turn goes on from and its own last message are taken."""
        points = [(turn.session, turn.placement.base), (turn.session, turn.conversation.head)]
        self._points.update(points)
        try:
            yield
        finally:
            for point in points:
                self._points[point] -= 1
                if not self._points[point]:
                    del self._points[point]

    def marked(self, known: Sequence[Known]) -> Sequence[Known]:
        """The same points, those that are taken as gone on from already: their next message is on its way."""
        if not self._points:
            return known
        return [replace(k, extended=True) if (k.session, k.chain) in self._points else k for k in known]
