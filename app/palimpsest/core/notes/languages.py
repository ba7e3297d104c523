"""The tables of words of languages in `cues/`, one file a language, read once.

The head of `cues/en.txt` explains the format.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

CODES = ("en", "de", "fr", "es", "pt", "it", "nl", "pl", "ru", "ja", "zh", "ko")
# Written without spaces between words.
_UNSPACED = ("zh", "ja")
KEYS = (
    *("words", "leads", "assent", "filler", "offer", "request", "months", "weekdays"),
    "intends",
)
_BETWEEN_WORDS = r"[\s\"':]+"
_TYPOGRAPHIC = str.maketrans("’‘＇", "'''")


def plain(text: str) -> str:
    """`text` as words are matched: lower case, straight apostrophes, no marks of emphasis."""
    text = text.lower()
    if not text.isascii():
        text = text.translate(_TYPOGRAPHIC)
    return text.replace("*", "").replace("`", "")


def table_of(code: str, text: str) -> dict[str, list[str]]:
    """The comma-separated entries of a table under each key, in order; ValueError for any other line."""
    table: dict[str, list[str]] = {key: [] for key in KEYS}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, colon, listed = line.partition(": ")
        if line.startswith("#"):
            continue
        if not colon or key not in table:
            raise ValueError(f"cues/{code}.txt: no such key: {line}")
        table[key].extend(part.strip() for part in listed.split(",") if part.strip())
    return table


@lru_cache(maxsize=1)
def tables() -> dict[str, dict[str, list[str]]]:
    """Every table by the code of its language, English first."""
    folder = files("palimpsest.core.notes").joinpath("cues")
    return {code: table_of(code, folder.joinpath(f"{code}.txt").read_text("utf-8")) for code in CODES}


@lru_cache(maxsize=32)
def entries(key: str) -> frozenset[str]:
    """The entries under a key in all tables."""
    return frozenset(entry for table in tables().values() for entry in table[key])


@lru_cache(maxsize=16)
def phrases(key: str) -> re.Pattern[str]:
    """Matches one of the phrases under a key in a plain text; whole words where a language has spaces."""
    found = []
    for code, table in tables().items():
        joined = "|".join(
            _BETWEEN_WORDS.join(map(re.escape, phrase.split()))
            for phrase in sorted(table[key], key=len, reverse=True)
        )
        if joined:
            found.append(f"(?:{joined})" if code in _UNSPACED else rf"\b(?:{joined})(?!\w)")
    return re.compile("|".join(found))


@lru_cache(maxsize=16)
def opening(key: str) -> re.Pattern[str]:
    """Matches one of these phrases behind marks: where a text or a clause opens with it."""
    return re.compile(rf"\W*(?:{phrases(key).pattern})")
