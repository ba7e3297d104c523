"""A parser of a model's text under titles, and the sections of a summary for a page (A15, A24).

Parsing is tolerant: markdown levels, bold, missing numbers, another order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palimpsest.core.text.fence import unfenced

NOTHING = "None recorded."


class Headings:
    """A parser of sections.

    `others` maps further spellings, in lower case, to a title, or to "" for a section that is dropped. Text
    before the first heading belongs to the section `first`.
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
        """The text under each title, in the order of `titles`; titles without content are left out."""
        parts: dict[str, list[str]] = {}
        current = self._first
        for line in text.splitlines():
            heading = self._heading(line)
            current, said = heading or (current, line)
            parts.setdefault(current, []).extend([said] if said or not heading else [])
        bodies = {title: "\n".join(parts.get(title, ())).strip("\n").rstrip() for title in self._titles}
        return {title: body for title, body in bodies.items() if body.strip("- \n") not in ("", NOTHING)}

    def _heading(self, line: str) -> tuple[str, str] | None:
        """The title in a heading and the text after it; None for prose."""
        match = self._line.fullmatch(line.rstrip())
        if match is None:
            return None
        # "Files: a.py and b.py" is prose, "## Files: a.py" is not.
        if match["rest"] and not match["mark"].strip() and match["title"] not in self._titles:
            return None
        return self._names[re.sub("[_-]", " ", match["title"].lower())], match["rest"] or ""


TITLES = (
    "Primary request and intent",
    "User messages",
    "Work completed",
    "Errors and fixes",
    "Key technical details",
    "Decisions made",
    "Pending/incomplete",
    "Current state",
    "Recommended next step",
)
# Headings from which on a text is made of sections; the numbers of those that a reader needs first: the
# request, pending work, the current state, the next step.
LEAST_HEADINGS, OPEN_AT_FIRST = 3, frozenset({1, 7, 8, 9})
_SECTION = re.compile(r"(?:#{1,2}\s+\**|\**(?=\d\.))(?:(\d{1,2})[.):]\s*)?(.{1,120}?)\**\s*:?")


@dataclass(frozen=True, slots=True)
class OutlineSection:
    """One section; `number` is None where its heading has none. `is_open`: shown expanded at first."""

    number: int | None
    title: str
    body: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class SummaryOutline:
    """`sections` in their order, with the text before them in `lead`; or no sections, and `text`."""

    sections: tuple[OutlineSection, ...] = ()
    lead: str = ""
    text: str = ""


def outline_of(summary: str) -> SummaryOutline:
    """The summary without its fence, in sections if it has at least three headings."""
    body = unfenced(summary)
    lead: list[str] = []
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in body.split("\n"):
        heading = _SECTION.fullmatch(line.strip())
        if heading:
            found.append((heading, []))
        else:
            (found[-1][1] if found else lead).append(line)
    if len(found) < LEAST_HEADINGS:
        return SummaryOutline(text=body.strip("\n"))
    sections = []
    for heading, lines in found:
        number = int(heading[1]) if heading[1] else None
        said = "\n".join(lines).strip("\n") or NOTHING
        sections.append(OutlineSection(number, heading[2], said, number is None or number in OPEN_AT_FIRST))
    return SummaryOutline(tuple(sections), lead="\n".join(lead).strip("\n"))
