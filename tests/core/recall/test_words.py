"""Words as they are looked for, and the tables of irregular forms and related words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.recall.talk import query_of
from palimpsest.core.recall.words import STOP, Words, base_of, beginnings_of, forms, groups, related_of
from snowballstemmer import stemmer

WORDS = Words()
WORDS.related("warm")  # The first question takes longer than hypothesis allows.


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("We painted the fence", "Who was painting?"),
        ("She bought bread in Brno", "Where did she buy it?"),
        ("two puppies", "a puppy"),
        ("Caroline's boat", "caroline"),
        ("Caroline’s boat", "CAROLINE"),
        ("Crème brûlée", "creme brulee"),
        ("the ﬁle", "file"),
        ("Straße", "strasse"),
        ("open src/app/main.py now", "main.py"),
        ("open src/app/main.py now", "src/app/main.py"),
        ("ticket ABC-123 is done", "abc-123"),
        ("我在东京住了三年", "东京"),
    ],
)
def test_other_forms_of_a_word_are_the_same(words: Words, said: str, asked: str) -> None:
    assert set(words.of(said)) & set(words.of(asked))


def test_small_words_say_nothing(words: Words) -> None:
    assert words.of("What is it that you did there, and why?") == []


def test_numbers_names_and_times_stay_apart(words: Words) -> None:
    assert not set(words.of("port 5432")) & set(words.of("port 5433")) - {"port"}
    assert "10:30" in words.of("at 10:30")


@given(st.text(max_size=300))
def test_any_text_has_words_and_asking_again_gives_the_same(text: str) -> None:
    words = Words()
    first = words.of(text)
    assert words.of(text) == first
    assert all(word and word == word.strip() for word in first)


@given(st.text(alphabet="abdegilnstuyz' -é中", max_size=120), st.text(alphabet="adegilnsty ", max_size=40))
def test_words_that_begin_otherwise_are_only_counted(text: str, wanted: str) -> None:
    looked_for = set(WORDS.of(wanted))
    every, some = WORDS.of(text), WORDS.of(text, beginnings_of(looked_for))
    assert len(every) == len(some)
    assert [word in looked_for and word for word in every] == [word in looked_for and word for word in some]


@given(st.text(alphabet="abcdefghiklmnoprstuvyz01", min_size=1, max_size=12))
def test_stems_are_the_stemmers(word: str) -> None:
    """Also of the words that are not given to it."""
    if word not in STOP and base_of(word) not in STOP:
        assert WORDS.of(word) == [stemmer("english").stemWord(base_of(word))]


@pytest.mark.parametrize(
    "text", ["dying lying tying", "she died, he lied, it is tied", "skies flies went wives"]
)
def test_no_word_is_missed_by_its_beginning(text: str) -> None:
    looked_for = WORDS.of(text)
    assert WORDS.of(text, beginnings_of(looked_for)) == looked_for


def test_quoted_phrases_are_looked_for_as_they_stand(words: Words) -> None:
    query = query_of('who said "Kind of Blue" first?', words)
    assert query.phrases == ("kind of blue",)


@pytest.mark.parametrize("text", ["When did she leave?", "what year was that", "How long ago did they meet?"])
def test_questions_for_a_time_are_known(words: Words, text: str) -> None:
    assert "time" in query_of(text, words).asked


def test_a_long_question_keeps_the_words_that_tell_most(words: Words) -> None:
    text = " ".join(f"w{number}" for number in range(20)) + " extraordinarily"
    query = query_of(text, words)
    assert any(word.startswith("extraordin") for word in query.words)


def test_a_long_path_is_found_by_the_names_in_it(words: Words) -> None:
    path = "/home/" + "deep/" * 30 + "billing/InvoiceRounding.java"
    assert set(words.of("InvoiceRounding")) <= set(words.of(path))


STEM = stemmer("english").stemWord


def test_a_form_leads_to_a_base_that_the_stemmer_cannot_find() -> None:
    wrong = [
        (form, base)
        for form, base in forms().items()
        if base in forms() or base_of(base) != base or STEM(form) == STEM(base)
    ]
    assert wrong == []
    words = {*forms(), *forms().values()}
    assert [word for word in words if not word.isascii() or not word.isalnum() or not word.islower()] == [
        word for word in words if word.isdigit()
    ]


def test_groups_hold_stems_once_and_lead_to_few_others() -> None:
    assert [group for group in groups() if len({STEM(word) for word in group}) < len(group)] == []
    assert [word for group in groups() for word in group if base_of(word) != word or not word.islower()] == []
    related = related_of(STEM)
    assert [stem for stem, others in related.items() if stem in others or not 0 < len(others) <= 26] == []
    assert [
        stem for stem, others in related.items() if any(stem not in related[other] for other in others)
    ] == []


@pytest.mark.parametrize(
    ("word", "base"),
    [
        *[("went", "go"), ("left", "leave"), ("wives", "wife"), ("people", "person"), ("oldest", "old")],
        *[("twelfth", "12"), ("31st", "31"), ("2nd", "2"), ("sept", "september"), ("tues", "tuesday")],
        *[("colour", "color"), ("organisations", "organize"), ("kilometres", "kilometer"), ("mum", "mom")],
        # Words of two meanings stay as they are.
        *[(word, word) for word in ("rose", "bit", "ground", "may", "second", "one", "lives", "")],
    ],
)
def test_forms_of_each_kind(word: str, base: str) -> None:
    assert base_of(word) == base


@pytest.mark.parametrize(
    ("asked", "told"),
    [("purchased", "bought"), ("quitting", "resigned"), ("rollout", "deployed"), ("postgresql", "database")],
)
def test_a_question_finds_the_other_word(asked: str, told: str) -> None:
    assert STEM(base_of(told)) in related_of(STEM)[STEM(base_of(asked))]
