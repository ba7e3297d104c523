"""The tables, read whole."""

from __future__ import annotations

from palimpsest.core.notes.languages import CODES, KEYS, opening, tables


def test_every_table_has_what_is_asked_of_it() -> None:
    for code, table in tables().items():
        assert [key for key in KEYS if not table[key] and key != "intends"] == [], code
    assert tuple(tables()) == CODES


def test_a_phrase_is_whole_words_and_opens_behind_marks() -> None:
    assert opening("filler").match("**great, it works")
    assert not opening("filler").match("greatest of all")
