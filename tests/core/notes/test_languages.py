"""The tables: read whole, and refused when malformed."""

from __future__ import annotations

import pytest
from palimpsest.core.notes.languages import CODES, KEYS, opening, table_of, tables


def test_every_table_has_what_is_asked_of_it() -> None:
    for code, table in tables().items():
        assert [key for key in KEYS if not table[key] and key != "intends"] == [], code
    assert tuple(tables()) == CODES


@pytest.mark.parametrize("line", ["verbs: run", "never (use|touch (my|your) files)"])
def test_a_malformed_table_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"cues/xx\.txt"):
        table_of("xx", line)


def test_a_phrase_is_whole_words_and_opens_behind_marks() -> None:
    assert opening("filler").match("**great, it works")
    assert not opening("filler").match("greatest of all")
