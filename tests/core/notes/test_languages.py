"""The tables: read whole, refused when malformed, and the guess which one fits."""

from __future__ import annotations

import pytest
from palimpsest.core.notes.languages import CODES, Language, languages, languages_of, plain, words_in


def test_every_table_has_what_is_asked_of_it() -> None:
    for code, language in languages().items():
        keys = (
            "words",
            "leads",
            "asks",
            "assent",
            "filler",
            "offer",
            "request",
            "months",
            "weekdays",
            "is",
            "be",
        )
        assert [key for key in keys if not language[key]] == [], code
        assert len(language.cues) >= 15, code
        assert all(cue.triggers for cue in language.cues), code
    assert tuple(languages()) == CODES


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Please look at this file", "en"),
        ("Bitte sieh dir diese Datei an", "de"),
        ("Regarde ce fichier avec moi", "fr"),
        ("Mira este archivo con cuidado", "es"),
        ("Veja este arquivo para mim, você pode", "pt"),
        ("请看这个文件", "zh"),
        ("このファイルを見て", "ja"),
        ("이 파일을 보세요", "ko"),
        ("Посмотри этот файл", "ru"),
    ],
)
def test_the_language_is_guessed(text: str, code: str) -> None:
    low = plain(text)
    assert code in [language.code for language in languages_of(low, words_in(low))]


@pytest.mark.parametrize("table", ["verbs: run", "never (use|touch (my|your) files)"])
def test_a_malformed_table_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match=r"cues/xx\.txt"):
        Language("xx", table)
