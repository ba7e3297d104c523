"""The tables of irregular forms and related words: sound, and as the stemmer needs them."""

import pytest
from palimpsest.core.recall.words import base_of, forms, groups, related_of
from snowballstemmer import stemmer

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
