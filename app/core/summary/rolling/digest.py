"""The three sections of this style: read from what a model wrote, written in one form, cut to size (B08).

Knows nothing of models and of what deserves to stand in a section.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.summary.source import CountText
from app.core.text.wording import cut_to

TITLES = ("KEY FACTS", "CONVERSATION FLOW", "OPEN THREADS")
STATE_TITLE = "SESSION STATE"
NOTHING = "None recorded."

_HEADING = re.compile(
    r"(?:\d[.)][\s*_]*)?("
    + "|".join(title.replace(" ", r"[ _-]") for title in (*TITLES, STATE_TITLE))
    + r")[*_]*\s*(?::[*_]*\s*(.*))?$",
    re.IGNORECASE,
)
# What models put before a heading.
_DECORATION = " \t#*_"
# Shares of a digest that does not fit; what a section leaves the others get.
_SHARES = (0.4, 0.35, 0.25)
# Facts are worth keeping from the first on, of the flow and the threads the newest count.
_HEAD_SHARES = (0.7, 0.0, 0.0)
# A line is not cut to less than this (tokens).
_LEAST_CUT = 12
# Where a search for a cut begins.
_MOST_CHARS_PER_TOKEN = 6


@dataclass(frozen=True, slots=True)
class Digest:
    """The bodies of the three sections, "" where there is none."""

    facts: str = ""
    flow: str = ""
    threads: str = ""

    @property
    def bodies(self) -> tuple[str, str, str]:
        """The bodies in the order of `TITLES`."""
        return self.facts, self.flow, self.threads

    @property
    def is_empty(self) -> bool:
        """True when no section says anything."""
        return not any(self.bodies)

    @property
    def is_only_flow(self) -> bool:
        """True for a text without sections, which is read as flow."""
        return not (self.facts or self.threads)


def digest_of(text: str) -> Digest:
    """The sections in `text`; what stands before the first heading belongs to the flow.

    A section of the session's state is left out: it is kept elsewhere.
    """
    parts: dict[str, list[str]] = {title: [] for title in (*TITLES, STATE_TITLE)}
    current = TITLES[1]
    for line in text.splitlines():
        heading = _HEADING.match(line.lstrip(_DECORATION))
        if heading is None:
            parts[current].append(line)
        else:
            current = re.sub(r"[_-]", " ", heading[1]).upper()
            parts[current] += [heading[2]] if heading[2] else []
    return Digest(*(_body(parts[title]) for title in TITLES))


def repaired(digest: Digest, fallback: Digest) -> Digest:
    """`digest` with the body of `fallback` for every section that says nothing."""
    return Digest(*(own or other for own, other in zip(digest.bodies, fallback.bodies, strict=True)))


def rendered(digest: Digest) -> str:
    """The three sections in their order, each under its heading; `digest_of` reads them back."""
    pairs = zip(TITLES, digest.bodies, strict=True)
    return "\n".join(f"## {title}\n{body or NOTHING}" for title, body in pairs)


def fitted(digest: Digest, tokens: int, count_text: CountText) -> Digest:
    """`digest` whose rendering has at most `tokens`, headings included if they fit at all.

    Sections are cut by lines: facts from the middle on, flow and threads from their beginning.
    """
    room = tokens - count_text(rendered(Digest()))
    while count_text(rendered(digest)) > tokens and not digest.is_empty:
        needs = [count_text(body) for body in digest.bodies]
        rooms = _rooms(needs, max(0, room))
        digest = Digest(
            *(
                "\n".join(lines_within(body.split("\n"), limit, count_text, head))
                for body, limit, head in zip(digest.bodies, rooms, _HEAD_SHARES, strict=True)
            )
        )
        # Joined texts may count a little more than their parts.
        room = min(room - 8, room * 9 // 10)
    return digest


def lines_within(lines: Sequence[str], tokens: int, count_text: CountText, head_share: float) -> list[str]:
    """The lines that `tokens` pay for: first ones up to `head_share` of them, then the newest, in order.

    The line at the edge is cut when enough of it would remain.
    """
    if sum(count_text(line) + 1 for line in lines) <= tokens:
        return list(lines)
    head, used = _taken(lines, int(tokens * head_share), count_text) if head_share else ([], 0)
    tail, _ = _taken(lines[len(head) :][::-1], tokens - used, count_text)
    return [line for line in (*head, *tail[::-1]) if line]


def clipped(text: str, tokens: int, count_text: CountText) -> str:
    """`text` in at most `tokens`, head and tail of it (A20); "" when there is no room."""
    if count_text(text) <= tokens:
        return text
    chars = min(len(text), max(0, tokens) * _MOST_CHARS_PER_TOKEN)
    while chars > len(" ..."):
        cut = cut_to(text, chars)
        if count_text(cut) <= tokens:
            return cut
        chars = chars * 4 // 5
    return ""


def _rooms(needs: Sequence[int], room: int) -> list[int]:
    """Tokens for each section: its need, or its share and what the modest ones leave."""
    rooms = [0] * len(needs)
    open_sections = set(range(len(needs)))
    while open_sections:
        shares = sum(_SHARES[place] for place in open_sections)
        modest = {place for place in open_sections if needs[place] + 1 <= room * _SHARES[place] / shares}
        for place in modest or open_sections:
            rooms[place] = needs[place] + 1 if modest else int(room * _SHARES[place] / shares)
        if not modest:
            break
        room -= sum(rooms[place] for place in modest)
        open_sections -= modest
    return rooms


def _taken(lines: Sequence[str], tokens: int, count_text: CountText) -> tuple[list[str], int]:
    """Leading lines within `tokens`, the last one cut, and what they cost."""
    taken: list[str] = []
    used = 0
    for line in lines:
        cost = count_text(line) + 1
        if used + cost > tokens:
            left = tokens - used - 1
            cut = clipped(line, left, count_text) if left >= _LEAST_CUT else ""
            return ([*taken, cut], used + count_text(cut) + 1) if cut else (taken, used)
        taken.append(line)
        used += cost
    return taken, used


def _body(lines: Sequence[str]) -> str:
    text = "\n".join(lines).strip("\n").rstrip()
    return "" if text.strip() == NOTHING else text
