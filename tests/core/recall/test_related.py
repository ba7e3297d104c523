from collections import Counter

import pytest
from palimpsest.core.recall.english import base_of, groups, related_of
from snowballstemmer import stemmer

STEM = stemmer("english").stemWord


def test_a_word_stands_in_three_groups_at_most() -> None:
    times = Counter(stem for group in groups() for stem in {STEM(word) for word in group})
    assert {stem: count for stem, count in times.items() if count > 3} == {}


def test_groups_are_neither_pairs_nor_topics() -> None:
    assert [group for group in groups() if not 3 <= len(group) <= 14] == []
    assert 300 <= len(groups()) <= 350


def test_no_two_words_of_a_group_have_one_stem() -> None:
    assert [group for group in groups() if len({STEM(word) for word in group}) < len(group)] == []


def test_no_group_stands_twice() -> None:
    sets = [frozenset(group) for group in groups()]
    assert [set(group) for group in sets if any(group <= other for other in sets if other is not group)] == []


def test_words_stand_in_the_form_they_are_looked_for_by() -> None:
    assert [word for group in groups() for word in group if base_of(word) != word or not word.isalpha()] == []
    assert [word for group in groups() for word in group if word != word.lower()] == []


def test_the_relation_is_symmetric_and_never_to_itself() -> None:
    related = related_of(STEM)
    assert [
        (one, other) for one, others in related.items() for other in others if one not in related[other]
    ] == []
    assert [stem for stem, others in related.items() if stem in others or not others] == []


def test_every_word_is_related_to_the_others_of_all_its_groups() -> None:
    related = related_of(STEM)
    assert related["dog"] >= {STEM("puppy"), STEM("hamster")}
    assert STEM("parrot") not in related["puppi"]


def test_a_word_leads_to_few_others() -> None:
    """More would find everything."""
    assert {stem: len(others) for stem, others in related_of(STEM).items() if len(others) > 26} == {}


def test_the_caller_decides_what_a_stem_is() -> None:
    assert "puppy" in related_of(str)["dog"]
    assert related_of(lambda word: word[0])["d"] >= {"p", "h"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("purchased", "bought"),
        ("physician", "doctors"),
        ("quitting", "resigned"),
        ("pottery", "ceramics"),
        ("holidays", "travelled"),
        ("bikes", "cyclist"),
        ("rollout", "deployed"),
        ("crashes", "bugs"),
        ("postgresql", "database"),
    ],
)
def test_a_question_finds_the_other_word(asked: str, told: str) -> None:
    assert STEM(base_of(told)) in related_of(STEM)[STEM(base_of(asked))]
