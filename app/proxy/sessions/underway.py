"""The points of history at which a request is under way, so that a twin does not sit down beside it.

Two sessions that said the same so far are told apart by nothing but who is being answered. Of requests at
other servers the store tells. Knows nothing of what is decided from it; holds nothing once the requests have
ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from app.core.history.known import Known
from app.proxy.turn import Turn


class UnderWay:
    """One per process. Two servers take one twin for the other only if both ask before either is stored."""

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
        return [replace(k, extended=True) if self._is_taken(k) else k for k in known]

    def _is_taken(self, point: Known) -> bool:
        return point.open or (point.session, point.chain) in self._points
