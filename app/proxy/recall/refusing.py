"""What an upstream has refused once, such as our tools for a model: it is not tried again (rule 31).

Kept for each caller: what was refused may have been the request's fault, and nobody may switch anything off
for others. In memory, and for a day: then, and after a restart, each is tried once more.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

# Models are the caller's to name, so that what is remembered of them is bounded.
_REFUSED = 10_000
# A server is replaced within days; to try again costs one refused request.
LIFE_SECONDS = 86_400.0


class Refusing:
    """One for each kind of thing; a place is a namespace, and a model or more behind it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def remember(self, *place: str) -> None:
        """It was refused there."""
        self._places[place] = self._clock()
        self._places.move_to_end(place)
        if len(self._places) > _REFUSED:
            self._places.popitem(last=False)

    def __contains__(self, place: tuple[str, ...]) -> bool:
        refused_at = self._places.get(place)
        return refused_at is not None and self._clock() - refused_at < LIFE_SECONDS
