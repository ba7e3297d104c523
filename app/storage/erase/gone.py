"""What was erased lately, by id: work that was begun before must not bring anything of it back.

In memory. Ids are never used twice, so what is forgotten here is missed by work of hours ago only.
"""

from __future__ import annotations

from collections import OrderedDict

# Ids remembered, of about 200 bytes: the newest.
REMEMBERED = 50_000


class Gone:
    """Sessions, each named with its namespace; a namespace as a whole is named with the session ""."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __contains__(self, place: tuple[str, str]) -> bool:
        return place in self._ids

    def add(self, place: tuple[str, str]) -> None:
        """It is gone."""
        self._ids[place] = None
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)

    def discard(self, place: tuple[str, str]) -> None:
        """It is there still."""
        self._ids.pop(place, None)
