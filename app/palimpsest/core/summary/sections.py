"""The nine sections of `handoff`, and the sections of any summary for a page (A15, A24)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from palimpsest.core.text.fence import unfenced

NOTHING = "None recorded."


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
