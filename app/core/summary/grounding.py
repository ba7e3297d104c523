"""What a model wrote, held against the messages it was written from.

A line that names what nobody ever named (a path, an id, an amount) is invented, and a line that gives the
reader orders is somebody's trick: both are taken out whole, and counted. Knows nothing of sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# What cannot be right by chance: addresses, paths, names of files, words with an underscore, words that mix
# letters and digits, amounts of money, numbers of three digits and more.
_NAMED = re.compile(
    r"https?://[^\s)\"'<>\]]+|(?:[\w.-]*/)+[\w.-]*\w|\b[\w-]+\.[a-z]{1,5}\b(?!\.)|\b\w+_\w+\b"
    r"|\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w[\w-]{3,}\b|[$€£¥]\d[\d.,]*|\b\d[\d,.]{2,}\b"
)
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget)\b.{0,40}\b(?:instruction|message|rule|request|above|previous|prior|later)"
    r"|\b(?:reply|respond|answer) (?:only )?with\b.{0,40}\bonly\b|\byou (?:must|are to) now\b"
    r"|\b(?:do not|don't|never) (?:tell|inform|mention)\b.{0,30}\buser\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\s*(?:#|\*\*[^*]+\*\*\s*$)")


@dataclass(frozen=True, slots=True)
class Grounded:
    """The text that may stand, and how many lines were taken out of it."""

    text: str
    taken_out: int = 0


def grounded(text: str, said: Iterable[str]) -> Grounded:
    """`text` without lines that name what stands nowhere in `said`, or that give the reader orders."""
    lines = text.split("\n")
    named = {place: _names_in(line) for place, line in enumerate(lines) if not _HEADING.match(line)}
    missing = set().union(*named.values())
    for each in said:
        if not missing:
            break
        low = _plain(each)
        missing = {name for name in missing if name not in low}
    kept = [
        line
        for place, line in enumerate(lines)
        if not (named.get(place, frozenset()) & missing or (place in named and _ORDERS.search(line)))
    ]
    return Grounded("\n".join(kept), len(lines) - len(kept))


def _names_in(line: str) -> frozenset[str]:
    return frozenset(_bare(_plain(name)) for name in _NAMED.findall(line))


def _bare(name: str) -> str:
    """As results of tools write it: an amount without its currency and empty cents."""
    return name.lstrip("$€£¥").rstrip(".,;:").removesuffix(".00")


def _plain(text: str) -> str:
    """Spelled alike: 1,500 is 1500, and capitals say nothing."""
    return text.lower().replace(",", "")
