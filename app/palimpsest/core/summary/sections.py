"""Parsers of a model's text under titles, and of the nine numbered sections of a summary (A15).

Parsing is tolerant (markdown levels, bold, missing numbers, another order); rendering has one form. Our own
blocks are parsed exactly, others as far as their headings are numbered.
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
# The title of the notes that code adds after a model's record.
ADDED_TITLE = "Kept from the messages themselves"

# Beginnings of each section's title, in lower case; models vary the rest.
_ALIASES = (
    ("primary request", "main request", "request and intent"),
    ("user messages", "all user messages", "user message"),
    ("work completed", "completed work", "completed"),
    ("errors and fixes", "errors & fixes", "errors", "problems and fixes"),
    ("key technical", "technical details", "technical concepts"),
    ("decisions made", "key decisions", "decisions"),
    ("pending", "incomplete", "open items", "remaining work"),
    ("current state", "current status", "current work"),
    ("recommended next", "next step", "suggested next"),
)
_DECORATION = re.compile(r"^[\s#*_>]+|[\s*_:]+$")
_NUMBER = re.compile(r"^(?:section\s+)?(\d{1,2})\s*[.):\u2013-]?\s*(?:\*\*|__)?\s*", re.IGNORECASE)
_OWN_HEADING = re.compile(
    r"^(\\*)(?=## (?:[1-9]\. (?:" + "|".join(map(re.escape, TITLES)) + r")|" + ADDED_TITLE + r")\s*$)",
    re.MULTILINE,
)
# Characters of a heading; a longer line is prose that begins like one.
_HEADING_CHARS = 120


@dataclass(frozen=True, slots=True)
class Sections:
    """The nine section bodies in order, "" for a missing one.

    `lead` is the text before the first heading, `added` the part that code appends after section 9; "" when
    absent.
    """

    bodies: tuple[str, ...]
    lead: str = ""
    added: str = ""

    @property
    def found(self) -> int:
        """The number of sections with a body."""
        return sum(1 for body in self.bodies if body)


def sections_of(text: str) -> Sections:
    """The sections in `text`; a repeated heading adds to its section, an unknown one is prose."""
    parts: dict[int, list[str]] = {}
    current = -1
    for line in text.splitlines():
        heading = _heading(line)
        if heading is None:
            parts.setdefault(current, []).append(line)
            continue
        current, rest = heading
        parts.setdefault(current, []).extend([rest] if rest else [])
    bodies = tuple(_body(parts.get(number, ())) for number in range(len(TITLES)))
    return Sections(bodies, lead=_body(parts.get(-1, ())), added=_body(parts.get(len(TITLES), ())))


def rendered(sections: Sections) -> str:
    """The numbered sections with a body as markdown, then what code added.

    A line of a body that looks like one of our headings gets a backslash, which parsing removes, so that
    content never passes for structure.
    """
    lines = [sections.lead] if sections.lead else []
    lines += [
        f"## {number}. {title}\n{guarded(body)}"
        for number, (title, body) in enumerate(zip(TITLES, sections.bodies, strict=True), 1)
        if body
    ]
    if sections.added:
        lines.append(f"## {ADDED_TITLE}\n{guarded(sections.added)}")
    return "\n".join(lines)


def guarded(text: str) -> str:
    """`text` with a backslash before each line that would read as one of our headings."""
    return _OWN_HEADING.sub(r"\1\\", text)


def block_sections(body: str) -> Sections:
    """The sections of a body that `rendered` wrote, parsed exactly."""
    parts: dict[int, list[str]] = {}
    current = -1
    for line in body.split("\n"):
        number = own_heading(line)
        if number is None:
            parts.setdefault(current, []).append(_unguarded(line))
        else:
            current = number
    bodies = [_body(parts.get(number, ())) for number in range(len(TITLES))]
    return Sections(
        bodies=tuple("" if body == NOTHING else body for body in bodies),
        lead=_body(parts.get(-1, ())),
        added=_body(parts.get(len(TITLES), ())),
    )


def own_heading(line: str) -> int | None:
    """The index of the section whose heading `line` is, exactly as `rendered` writes it; None for prose."""
    if not line.startswith("## "):
        return None
    if line == f"## {ADDED_TITLE}":
        return len(TITLES)
    number = line[3:4]
    if number.isdigit() and number != "0" and line[3:] == f"{number}. {TITLES[int(number) - 1]}":
        return int(number) - 1
    return None


def numbered_heading(line: str) -> int | None:
    """The index of the section whose heading `line` is, in any spelling with its number; else None."""
    heading = _heading(line)
    return heading[0] if heading and _NUMBER.match(_DECORATION.sub("", line.strip())) else None


def _unguarded(line: str) -> str:
    if line.startswith("\\") and own_heading(line.lstrip("\\")) is not None:
        return line[1:]
    return line


def _heading(line: str) -> tuple[int, str] | None:
    """The section's index and the text after the title on the same line; None for prose."""
    stripped = line.strip()
    if not stripped or (len(stripped) > _HEADING_CHARS and ":" not in stripped[:_HEADING_CHARS]):
        return None
    marked = stripped[0] in "#*_"
    plain = _DECORATION.sub("", stripped)
    numbered = _NUMBER.match(plain)
    title = plain[numbered.end() :] if numbered else plain
    if marked and not numbered and title.lower() == ADDED_TITLE.lower():
        return len(TITLES), ""
    head, _, rest = title.partition(":")
    number = _section_number(head)
    if number is None or not (marked or numbered or (not rest and len(head) <= len(max(TITLES, key=len)))):
        return None
    if not numbered and not marked and head.lower() != TITLES[number].lower():
        return None
    return number, rest.strip(" *_")


def _section_number(title: str) -> int | None:
    low = title.strip(" *_").lower()
    # "Errors and fixes" and its longer spellings, never a sentence that begins alike.
    if len(low) > 60:
        return None
    for number, aliases in enumerate(_ALIASES):
        if low.startswith(aliases):
            return number
    return None


def _body(lines: Sequence[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


# Numbered headings from which on a text is made of sections.
LEAST_HEADINGS = 3
# The sections a reader needs first: the request, pending work, the current state, the next step.
OPEN_AT_FIRST = frozenset({1, 7, 8, 9})


@dataclass(frozen=True, slots=True)
class OutlineSection:
    """One section. `number` is 1 to 9, None for what code added; `is_open`: shown expanded at first."""

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
    """The summary without its fence, in sections if it has at least three numbered headings.

    Sections without a heading are left out; an empty one says "None recorded.".
    """
    body = unfenced(summary)
    lines = body.split("\n")
    own = {index for line in lines if (index := own_heading(line)) is not None}
    if _is_enough(own):
        return _outline(block_sections(body), own)
    numbered = {index for line in body.splitlines() if (index := numbered_heading(line)) is not None}
    if _is_enough(numbered):
        return _outline(sections_of(body), numbered)
    return SummaryOutline(text=body.strip("\n"))


def _is_enough(headings: set[int]) -> bool:
    """True for enough numbered headings; the one of what code added has no number."""
    return len(headings - {len(TITLES)}) >= LEAST_HEADINGS


def _outline(read: Sections, headings: set[int]) -> SummaryOutline:
    numbered = [
        OutlineSection(index + 1, TITLES[index], read.bodies[index] or NOTHING, index + 1 in OPEN_AT_FIRST)
        for index in range(len(TITLES))
        if index in headings or read.bodies[index]
    ]
    if read.added:
        numbered.append(OutlineSection(None, ADDED_TITLE, read.added, is_open=False))
    return SummaryOutline(tuple(numbered), lead=read.lead)
