"""The nine sections of a summary (A15): reading them from any spelling, repairing, writing them.

Knows nothing of messages, models or budgets. Reading is tolerant (markdown levels, bold, missing
numbers, another order); writing has one form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.summary.headings import NOTHING

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
# What code adds behind a record that a model wrote.
ADDED_TITLE = "Kept from the messages themselves"

# What a title must start with, in lower case, to be taken for the section; models vary the rest.
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
# A heading line longer than this is prose that happens to start like one (characters).
_HEADING_CHARS = 120


@dataclass(frozen=True, slots=True)
class Sections:
    """Nine section bodies in order, "" where one is missing.

    `lead` is what stood before the first heading, `added` the part that code appends after section 9 (""
    when absent).
    """

    bodies: tuple[str, ...]
    lead: str = ""
    added: str = ""

    @property
    def found(self) -> int:
        """How many sections have a body."""
        return sum(1 for body in self.bodies if body)


def sections_of(text: str) -> Sections:
    """The sections found in `text`; a repeated heading adds to its section, unknown ones are prose."""
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
    """The numbered sections that have a body as markdown, then what code added.

    A line of a body that looks like one of our headings gets a backslash, which reading removes:
    content can never pass for structure.
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
    """`text` whose lines cannot be read as a heading of ours."""
    return _OWN_HEADING.sub(r"\1\\", text)


def block_sections(body: str) -> Sections:
    """The sections of a body that `rendered` wrote, exactly; for blocks of our own."""
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
    """Index of the section whose heading `line` is, exactly as `rendered` writes it; None for prose."""
    if not line.startswith("## "):
        return None
    if line == f"## {ADDED_TITLE}":
        return len(TITLES)
    number = line[3:4]
    if number.isdigit() and number != "0" and line[3:] == f"{number}. {TITLES[int(number) - 1]}":
        return int(number) - 1
    return None


def numbered_heading(line: str) -> int | None:
    """Index of the section whose heading `line` is, in any spelling that has its number; else None."""
    heading = _heading(line)
    return heading[0] if heading and _NUMBER.match(_DECORATION.sub("", line.strip())) else None


def _unguarded(line: str) -> str:
    if line.startswith("\\") and own_heading(line.lstrip("\\")) is not None:
        return line[1:]
    return line


def _heading(line: str) -> tuple[int, str] | None:
    """Section index and the text after the title on the same line; None for prose."""
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
