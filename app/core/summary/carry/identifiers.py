"""Identifiers in text: what they look like, where they were seen, which are worth a token (idea 7).

Knows nothing of messages or blocks. A candidate is a run of characters without white space; the
table of kinds decides what it is. Ranking is value for money: weight by kind and use, over tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.core.summary.carry.vocabulary import FILE_SUFFIXES

# Runs between blanks, quotes and brackets; a comma counts inside a number only.
_RUN = re.compile(r"[^\s\"'<>(){}\[\],;|\\`*]+(?:,\d{3}(?!\d))*")
_URL = re.compile(r"https?://\S+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+\Z")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_PATH = re.compile(r"(?:[A-Za-z]:)?[~.]{0,2}/?(?:[\w.@+-]+/)+[\w.@+-]*\Z|/[\w.@+-]+\Z")
_FILE = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}\Z")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T_ ].*)?\Z|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\Z")
_MIXED = re.compile(r"(?=[\w#.-]*\d)(?=[\w#.-]*[A-Za-z])[A-Za-z0-9#][\w.-]*\w\Z")
_NUMBER = re.compile(r"[-+#]?[$€£]?\d[\d,]*\.?\d+%?\Z|[$€£]\d+\Z")
_CAPITALS = re.compile(r"[A-Z]{2,}(?:_[A-Z]+)+\Z|[A-Z]{6}\Z")
_ADDRESS = re.compile(r"[\w.-]+:\d{2,5}\Z")
_DIGIT = re.compile(r"\d")
_TIME = re.compile(r"\d{1,2}:\d\d(?::\d\d)?(?:[+-]\d+)?\Z")
# Characters; longer runs are data.
_LONGEST = 300
# Characters of letters and digits from which a run is taken for an id of something.
_SHORTEST_ID = 5

# What one mention is worth: names one cannot guess before numbers one might not need.
_WEIGHTS: Mapping[str, float] = {
    "url": 3.0,
    "email": 2.5,
    "uuid": 3.0,
    "path": 2.5,
    "file": 2.5,
    "id": 2.5,
    "address": 2.5,
    "code": 1.5,
    # "x1", "/div", "n-2": short, and mostly variables, tags and steps.
    "short": 0.7,
    "date": 1.5,
    "number": 1.0,
}


@dataclass(slots=True)
class Sighting:
    """An identifier and where it was seen. `last` grows with the place, `origin` labels the newest one."""

    text: str
    kind: str
    origin: str
    last: int
    mentions: int
    weight: float
    roles: frozenset[str]


def kind_of(run: str) -> str | None:
    """The kind of identifier a run of characters is; None for a word."""
    if not 2 <= len(run) <= _LONGEST or (run.isalpha() and not run.isupper()):
        return None
    if "/" in run or "@" in run:
        return _compound_kind(run)
    if _DIGIT.search(run):
        return _digit_kind(run)
    if "." in run[1:-1]:
        return "file" if _FILE.match(run) and run.rpartition(".")[2].lower() in FILE_SUFFIXES else None
    return "code" if run.isupper() and _CAPITALS.match(run) else None


def identifiers_in(text: str, kinds: dict[str, tuple[str, str] | None]) -> list[tuple[str, str]]:
    """(identifier, kind) of each one in `text`, in order, once. `kinds` is the caller's cache."""
    found: dict[str, str] = {}
    for run in dict.fromkeys(_RUN.findall(text)):
        if run not in kinds:
            kinds[run] = _identifier(run)
        named = kinds[run]
        if named is not None:
            found.setdefault(*named)
            continue
        if ":" in run or "=" in run:
            for part in re.split(r"[:=]", run):
                named = _identifier(part)
                if named is not None:
                    found.setdefault(*named)
    return list(found.items())


def ranked(sightings: Iterable[Sighting], newest: int) -> list[Sighting]:
    """The best value for its tokens first; of equal ones the newest. `newest` is the last place there is.

    Tokens are guessed by length: there may be thousands, and few are chosen.
    """
    return sorted(sightings, key=lambda seen: (-_value(seen, newest), -seen.last, seen.text))


def _value(seen: Sighting, newest: int) -> float:
    used = 1.0 + math.log2(seen.mentions) + (1.5 if len(seen.roles) > 1 else 0.0)
    # An old identifier keeps half of the worth of a new one: facts are cumulative (F30).
    age = 0.5 + 0.5 * (seen.last + 1) / (newest + 1)
    # Not quite per token: a long id is not worth less because it is long.
    tokens = 1 + (len(seen.text) + 2) // 3
    return _WEIGHTS[seen.kind] * seen.weight * used * age / math.pow(tokens, 0.8)


def _identifier(run: str) -> tuple[str, str] | None:
    stripped = (
        run.strip(".:!?_-=~&#")
        if not run.startswith(("./", "../", "~/", "#", ".", "-"))
        else run.rstrip(".:!?")
    )
    kind = kind_of(stripped)
    return (stripped, kind) if kind else None


def _compound_kind(run: str) -> str | None:
    if _URL.match(run):
        return "url"
    if _EMAIL.match(run):
        return "email"
    if "://" in run:
        return "url" if run[0].isalpha() else None
    if not _PATH.match(run):
        return "date" if _DATE.match(run) else None
    # "and/or" is prose, "src/app" and "/etc" are paths.
    telling = run.count("/") > 1 or run[0] in "/.~" or any(c in "._-" or c.isdigit() for c in run)
    if not telling:
        return None
    return "path" if run.count("/") > 1 or "." in run else "short"


def _digit_kind(run: str) -> str | None:
    if _NUMBER.match(run):
        return "number"
    if _TIME.match(run):
        return None
    for kind, pattern in (("date", _DATE), ("uuid", _UUID), ("address", _ADDRESS), ("id", _MIXED)):
        if pattern.match(run):
            return _mixed_kind(run) if kind == "id" else kind
    return None


def _mixed_kind(run: str) -> str:
    if "." in run and run.rpartition(".")[2].lower() in FILE_SUFFIXES:
        return "file"
    return "id" if len(run) >= _SHORTEST_ID else "short"
