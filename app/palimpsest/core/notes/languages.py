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
KEYS = ("words", "leads", "assent", "filler", "offer", "request", "dates", "times", "intends")
_BETWEEN_WORDS = r"[\s\"':]+"
_TYPOGRAPHIC = str.maketrans("’‘＇", "'''")


def plain(text: str) -> str:
    """`text` as words are matched: lower case, straight apostrophes, no marks of emphasis."""
    text = text.lower()
    if not text.isascii():
        text = text.translate(_TYPOGRAPHIC)
    return text.replace("*", "").replace("`", "")


@lru_cache(maxsize=1)
def tables() -> dict[str, dict[str, list[str]]]:
    """The entries under each key of each table by the code of its language, English first.

    KeyError for a line with another key.
    """
    folder = files("palimpsest.core.notes").joinpath("cues")
    found: dict[str, dict[str, list[str]]] = {}
    for code in CODES:
        table: dict[str, list[str]] = {key: [] for key in KEYS}
        found[code] = table
        for line in folder.joinpath(f"{code}.txt").read_text("utf-8").splitlines():
            key, _, listed = line.partition(": ")
            if line and not line.startswith("#"):
                table[key].extend(part.strip() for part in listed.split(",") if part.strip())
    return found


@lru_cache(maxsize=32)
def entries(key: str) -> frozenset[str]:
    """The entries under a key in all tables."""
    return frozenset(entry for table in tables().values() for entry in table[key])


@lru_cache(maxsize=16)
def opening(key: str) -> re.Pattern[str]:
    """Matches one of the phrases under a key where a plain text or a clause opens with it, behind marks.

    Whole words where a language has spaces.
    """
    found = []
    for code, table in tables().items():
        phrases = (map(re.escape, phrase.split()) for phrase in sorted(table[key], key=len, reverse=True))
        if joined := "|".join(map(_BETWEEN_WORDS.join, phrases)):
            found.append(f"(?:{joined})" if code in _UNSPACED else rf"\b(?:{joined})(?!\w)")
    return re.compile(rf"\W*(?:{'|'.join(found)})")
