"""What a model wrote, held against the messages it was written from.

A line that names what nobody ever named (a path, an id, an amount) is invented, and a line that gives the
reader orders is somebody's trick: both are taken out whole, and counted. Knows nothing of sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass

# What cannot be right by chance: addresses, paths, names of files, words with an underscore, words that mix
# letters and digits, amounts of money, numbers of three digits and more.
_NAMED = re.compile(
    r"https?://[^\s)\"'<>\]]+|(?:[\w.-]*/)+[\w.-]*\w|\b[\w-]+\.[a-z]{1,5}\b(?!\.)|\b\w+_\w+\b"
    r"|(?<![:\w^])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w[\w-]{3,}\b|[$€£¥]\d[\d.,]*|\b\d[\d,.]{2,}\b"
)
# Said in the writer's own way: "5h30", "9x-14"; and what is no name between slashes: "yes/no", "35/36".
_MEASURE = re.compile(r"\d{1,4}[a-z]{1,3}-?\d{0,2}")
# No name between slashes: "yes/no", "35/36".
_NO_NAME = re.compile(r"-?(?:[^\W\d_]*|\d{1,2})")
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
    missing = set().union(*named.values(), *map(_parts, set().union(*named.values())))
    for each in said:
        if not missing:
            break
        low = _plain(each)
        missing = {name for name in missing if name not in low}
    kept = [
        line
        for place, line in enumerate(lines)
        if not (
            any(_is_invented(name, missing) for name in named.get(place, ()))
            or (place in named and _ORDERS.search(line))
        )
    ]
    return Grounded("\n".join(kept), len(lines) - len(kept))


def _is_invented(name: str, missing: Set[str]) -> bool:
    """True where nobody named it; of "HAT134/HAT045" each part may have been named by itself."""
    return name in missing and ("/" not in name or "://" in name or not _parts(name).isdisjoint(missing))


def _names_in(line: str) -> frozenset[str]:
    names = (_bare(_plain(name)) for name in _NAMED.findall(line))
    return frozenset(name for name in names if not _MEASURE.fullmatch(name))


def _parts(name: str) -> frozenset[str]:
    if "/" not in name or "://" in name:
        return frozenset()
    return frozenset(part for part in name.split("/") if not _NO_NAME.fullmatch(part))


def _bare(name: str) -> str:
    """As results of tools write it: an amount without its currency and empty cents."""
    return name.lstrip("$€£¥").rstrip(".,;:").removesuffix(".00")


def _plain(text: str) -> str:
    """Spelled alike: 1,500 is 1500, and capitals say nothing."""
    return text.lower().replace(",", "")
