"""Places for requests: how many are answered at a time, and that nobody takes them all.

A request whose body is still arriving holds a place among those that arrive; once its body is there, one
among those that are answered. So bodies that never come keep nobody from being answered. Knows nothing of
callers but that they differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from app.errors import ServerBusy


class Places:
    """`total` places, of which one caller may hold `share` while it is alone.

    A caller may hold `share / (1 - share)` times as many as are free (dynamic thresholds: Choudhury and
    Hahne, 1998): with 0.8 one caller holds 4 of 5, two hold 4 of 9 each, and a place is left for the next.
    """

    def __init__(self, total: int, share: float) -> None:
        self._total = total
        # Rounded: 0.8 / 0.2 is a little more than 4 in binary fractions.
        self._ratio = round(share / (1 - share), 9) if share < 1 else float("inf")
        self._held: Counter[Hashable] = Counter()
        self._taken = 0

    def has_room(self, caller: Hashable) -> bool:
        """True when one more request of the caller fits."""
        free = self._total - self._taken
        return free > 0 and self._held[caller] < max(1, self._ratio * free)

    def take(self, caller: Hashable) -> None:
        """One place less is free. ServerBusy when there is none for this caller."""
        if not self.has_room(caller):
            raise ServerBusy("As many requests as are allowed at a time are being answered; try again soon.")
        self._held[caller] += 1
        self._taken += 1

    def give_back(self, caller: Hashable) -> None:
        """One place more is free."""
        self._taken -= 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]


class Visit:
    """One request's place."""

    def __init__(self, arriving: Places, answered: Places, caller: Hashable) -> None:
        self._answered = answered
        self._caller = caller
        self._place = arriving
        arriving.take(caller)

    def has_arrived(self) -> None:
        """Its body is there. ServerBusy when as many are being answered as may be."""
        if self._place is not self._answered:
            self._answered.take(self._caller)
            self._place.give_back(self._caller)
            self._place = self._answered

    def ends(self) -> None:
        """Its place is free."""
        self._place.give_back(self._caller)


class Admission:
    """Both kinds of places, and how large the headers of a request may be."""

    def __init__(self, *, answered: Places, arriving: Places, header_bytes: int) -> None:
        self._answered = answered
        self._arriving = arriving
        self.header_bytes = header_bytes

    def has_room(self, caller: Hashable) -> bool:
        """True when one more request of the caller may come in."""
        return self._arriving.has_room(caller) and self._answered.has_room(caller)

    @contextmanager
    def visit(self, caller: Hashable) -> Iterator[Visit]:
        """The request's place while it lasts. ServerBusy when there is none."""
        if not self._answered.has_room(caller):
            # Not worth waiting for its body.
            self._answered.take(caller)
        visit = Visit(self._arriving, self._answered, caller)
        try:
            yield visit
        finally:
            visit.ends()
