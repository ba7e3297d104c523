"""A text that a model wrote under given titles, read back whatever the spelling of its headings.

Knows nothing of which titles there are. The nine of a handoff are numbered and have a reader of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

NOTHING = "None recorded."


class Headings:
    """`titles`: those that are looked for. `others`: further spellings, lower case, of a title; of "" for a
    section that is left out. `first`: whose is what stands before the first heading.
    """

    def __init__(self, titles: Sequence[str], others: Mapping[str, str], first: str) -> None:
        self._titles, self._first = tuple(titles), first
        self._names = {title.lower(): title for title in titles} | dict(others)
        spelled = "|".join(re.escape(name).replace(r"\ ", "[ _-]") for name in self._names)
        self._line = re.compile(
            rf"(?P<mark>[\s#*_]*(?:\d{{1,2}}[.):][\s*_]*)?)(?P<title>{spelled})[*_]*\s*(?::[*_]*\s*(?P<rest>.*))?",
            re.IGNORECASE,
        )

    def bodies(self, text: str) -> dict[str, str]:
        """What stands under each title, in their order; titles without content are left out."""
        parts: dict[str, list[str]] = {}
        current = self._first
        for line in text.splitlines():
            heading = self._heading(line)
            current, said = heading or (current, line)
            parts.setdefault(current, []).extend([said] if said or not heading else [])
        bodies = {title: "\n".join(parts.get(title, ())).strip("\n").rstrip() for title in self._titles}
        return {title: body for title, body in bodies.items() if body.strip("- \n") not in ("", NOTHING)}

    def _heading(self, line: str) -> tuple[str, str] | None:
        """The title a line opens and what it says behind it; None for prose."""
        match = self._line.fullmatch(line.rstrip())
        if match is None:
            return None
        # "Files: a.py and b.py" is prose, "## Files: a.py" is not.
        if match["rest"] and not match["mark"].strip() and match["title"] not in self._titles:
            return None
        return self._names[re.sub("[_-]", " ", match["title"].lower())], match["rest"] or ""
