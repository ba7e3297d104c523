import pytest
from palimpsest.core.recall.english import base_of, forms
from snowballstemmer import stemmer

STEM = stemmer("english").stemWord


def test_no_form_leads_to_another_form() -> None:
    assert [(form, base) for form, base in forms().items() if base in forms()] == []


def test_a_base_is_found_by_itself() -> None:
    assert {base for base in forms().values() if base_of(base) != base} == set()


def test_words_are_written_as_they_are_looked_for() -> None:
    written = {*forms(), *forms().values()}
    assert [
        word for word in written if not (word.isascii() and word.isalnum() and word == word.lower())
    ] == []


def test_every_form_does_what_the_stemmer_cannot() -> None:
    assert [(form, base) for form, base in forms().items() if STEM(form) == STEM(base)] == []


def test_the_table_is_neither_torn_nor_swollen() -> None:
    assert 1_500 <= len(forms()) <= 2_500


@pytest.mark.parametrize(
    ("word", "base"),
    [
        ("went", "go"),
        ("taught", "teach"),
        ("bought", "buy"),
        ("left", "leave"),
        ("children", "child"),
        ("wives", "wife"),
        ("people", "person"),
        ("better", "good"),
        ("oldest", "old"),
        ("three", "3"),
        ("twelfth", "12"),
        ("31st", "31"),
        ("sept", "september"),
        ("tues", "tuesday"),
        ("colour", "color"),
        ("organisations", "organize"),
        ("kilometres", "kilometer"),
        ("mum", "mom"),
        ("tv", "television"),
        ("repos", "repository"),
    ],
)
def test_forms_of_each_kind(word: str, base: str) -> None:
    assert base_of(word) == base


@pytest.mark.parametrize(
    "word", ["rose", "bit", "ground", "may", "sun", "second", "one", "lives", "dove", ""]
)
def test_words_of_two_meanings_stay_as_they_are(word: str) -> None:
    assert base_of(word) == word


@pytest.mark.parametrize("number", range(1, 32))
def test_every_day_of_a_month(number: int) -> None:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    assert base_of(f"{number}{ending}") == str(number)


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("organising", "organizing"),
        ("neighbours", "neighbors"),
        ("theatres", "theaters"),
        ("analysed", "analyzed"),
    ],
)
def test_two_spellings_are_one_word(british: str, american: str) -> None:
    assert STEM(base_of(british)) == STEM(base_of(american))
