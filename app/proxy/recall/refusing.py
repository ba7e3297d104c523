"""What an upstream has refused once, such as our tools for a model: it is not tried again (rule 31).

Kept for each caller: what was refused may have been the request's fault, and nobody may switch anything off
for others. In memory: after a restart each is tried once more.
"""

from __future__ import annotations

from collections import OrderedDict

# Models are the caller's to name, so that what is remembered of them is bounded.
_REFUSED = 10_000


class Refusing:
    """One for each kind of thing; a place is a namespace, and a model or more behind it."""

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def remember(self, *place: str) -> None:
        """It was refused there."""
        self._places[place] = None
        self._places.move_to_end(place)
        if len(self._places) > _REFUSED:
            self._places.popitem(last=False)

    def __contains__(self, place: tuple[str, ...]) -> bool:
        return place in self._places
