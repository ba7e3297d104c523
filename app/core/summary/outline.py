"""A summary as somebody reads it: its sections apart, or one text where it has too few (A24).

Knows nothing of pages, markup nor of who reads. Blocks of our own are read exactly, others as far as
their headings are numbered.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.summary.headings import NOTHING
from app.core.summary.sections import (
    ADDED_TITLE,
    TITLES,
    Sections,
    block_sections,
    numbered_heading,
    own_heading,
    sections_of,
)
from app.core.text.fence import unfenced

# With fewer headings than this a text is not made of sections.
LEAST_HEADINGS = 3
# The request, what is pending, where things stand, what comes next: what a reader looks for first.
OPEN_AT_FIRST = frozenset({1, 7, 8, 9})


@dataclass(frozen=True, slots=True)
class OutlineSection:
    """One section. `number` is 1 to 9, None for what code added; `is_open`: shown unfolded at first."""

    number: int | None
    title: str
    body: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class Outline:
    """`sections` in their order, with what stood before the first in `lead`; or no section and `text`."""

    sections: tuple[OutlineSection, ...] = ()
    lead: str = ""
    text: str = ""


def outline_of(summary: str) -> Outline:
    """The summary without its fence, in sections where at least three numbered headings stand in it.

    Sections whose heading is missing are left out; an empty one says "None recorded.".
    """
    body = unfenced(summary)
    lines = body.split("\n")
    own = {index for line in lines if (index := own_heading(line)) is not None}
    if _is_enough(own):
        return _outline(block_sections(body), own)
    told = {index for line in body.splitlines() if (index := numbered_heading(line)) is not None}
    if _is_enough(told):
        return _outline(sections_of(body), told)
    return Outline(text=body.strip("\n"))


def _is_enough(headings: set[int]) -> bool:
    """What code added has no number, so it does not count."""
    return len(headings - {len(TITLES)}) >= LEAST_HEADINGS


def _outline(read: Sections, headings: set[int]) -> Outline:
    numbered = [
        OutlineSection(index + 1, TITLES[index], read.bodies[index] or NOTHING, index + 1 in OPEN_AT_FIRST)
        for index in range(len(TITLES))
        if index in headings or read.bodies[index]
    ]
    if read.added:
        numbered.append(OutlineSection(None, ADDED_TITLE, read.added, is_open=False))
    return Outline(tuple(numbered), lead=read.lead)
