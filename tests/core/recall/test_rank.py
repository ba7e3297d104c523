"""Which entries answer a question best, and what is shown of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.recall.entry import Entry, Holdings, Kind
from app.core.recall.query import query_of
from app.core.recall.quotes import FAR_CHARS, NEAR_CHARS, QUOTE_CHARS, Hit, hits_of, quoted
from app.core.recall.rank import FOUND, Weights, ranked
from app.core.recall.words import Words

WORDS = Words()


def entry(place: int, text: str, role: str = "user", kind: Kind = "message") -> Entry:
    return Entry(f"e{place}", kind, role, place, float(place), text)


def holdings_of(entries: list[Entry]) -> Holdings:
    said = [WORDS.of(each.text) for each in entries]
    holding = Counter(word for words in said for word in set(words))
    return Holdings(len(said), max(1.0, sum(map(len, said)) / len(said)), holding)


def order(question: str, entries: list[Entry], weights: Weights = FOUND) -> list[str]:
    query = query_of(question, WORDS)
    return [found.entry.id for found in ranked(query, entries, holdings_of(entries), WORDS, weights)]


def hits(question: str, entries: list[Entry], limit: int = 10) -> list[Hit]:
    query = query_of(question, WORDS)
    scored = ranked(query, entries, holdings_of(entries), WORDS)
    return hits_of(scored, {each.place: each for each in entries}, query, WORDS, limit=limit)


FILLER = [entry(place, f"We talked of the weather on walk number {place}.") for place in range(10, 40)]


def test_rare_words_tell_more_than_common_ones() -> None:
    talk = [entry(1, "The walk was long."), entry(3, "The lighthouse was closed."), *FILLER]
    assert order("Was the lighthouse on the walk open?", talk)[0] == "e3"


def test_who_covers_the_question_comes_before_who_repeats_a_word() -> None:
    talk = [entry(1, "boat boat boat boat"), entry(5, "a red boat in the harbour"), *FILLER]
    assert order("the red boat in the harbour", talk)[0] == "e5"


def test_an_answer_is_found_by_the_question_before_it() -> None:
    talk = [
        entry(1, "What did you plant in the garden?"),
        entry(2, "Sunflowers, mostly.", "assistant"),
        *FILLER,
    ]
    found = order("what was planted in the garden", talk)
    assert found.index("e2") == 1
    assert "e2" not in order(
        "what was planted in the garden", talk, replace(FOUND, before=0.0, after=0.0, further=0.0)
    )


def test_a_time_is_worth_more_where_one_is_asked_for() -> None:
    talk = [entry(1, "Maya sold the piano then."), entry(5, "Maya sold the piano last Friday."), *FILLER]
    assert order("When did Maya sell the piano?", talk)[0] == "e5"


def test_a_quoted_phrase_must_not_be_scattered() -> None:
    talk = [
        entry(1, "blue of a kind that is kind of rare, blue"),
        entry(5, "She played Kind of Blue."),
        *FILLER,
    ]
    assert order('"kind of blue"', talk)[0] == "e5"


def test_of_equal_words_the_kind_decides_then_the_time() -> None:
    """C14: summaries, what was said, other, execution wrappers, references to payloads, tools."""
    text = "Morning note: the harbour code is 4471"
    told = [
        entry(10, text, "tool"),
        entry(20, text, "", "payload"),
        entry(30, text.replace("Morning note", "Execute this step")),
        entry(40, text, "developer"),
        entry(50, text, "user"),
        entry(60, text, "assistant"),
        entry(70, text, "", "summary"),
    ]
    assert order("harbour code", told) == ["e70", "e60", "e50", "e40", "e30", "e20", "e10"]


def test_what_says_nothing_to_the_question_is_not_found() -> None:
    assert order("zeppelin", FILLER) == []
    assert order("", FILLER) == []


TEXTS = st.text(alphabet="abcde fgh\n.?", max_size=900)


@given(st.lists(TEXTS, max_size=12), TEXTS, st.integers(1, 10))
def test_quotes_are_exact_and_bounded(texts: list[str], question: str, limit: int) -> None:
    talk = [entry(place, text) for place, text in enumerate(texts)]
    if not talk:
        return
    found = hits(question, talk, limit)
    assert len(found) <= limit
    for hit in found:
        for quote in (hit.quote, *hit.before, *hit.after):
            assert quote.entry.text[quote.start : quote.start + len(quote.text)] == quote.text
            assert len(quote.text) <= QUOTE_CHARS


@given(st.lists(TEXTS, max_size=12), st.integers(1, 10))
def test_no_message_is_shown_twice_whole(texts: list[str], limit: int) -> None:
    talk = [entry(place, text) for place, text in enumerate(texts)]
    shown = [
        quote.entry.id
        for hit in (hits("abc fgh", talk, limit) if talk else [])
        for quote in (hit.quote, *hit.before, *hit.after)
        if quote.is_whole
    ]
    assert len(shown) == len(set(shown))


def test_ten_hits_are_read_for_a_thousand_tokens() -> None:
    talk = [entry(place, f"The lighthouse of island {place} is {'very ' * 40} old.") for place in range(60)]
    found = hits("old lighthouse", talk)
    shown = sum(len(quote.text) for hit in found for quote in (hit.quote, *hit.before, *hit.after))
    assert len(found) == 10
    assert shown <= 5 * NEAR_CHARS + 5 * max(FAR_CHARS, 240)


@pytest.mark.parametrize("place", [0, 4_000, 9_000])
def test_of_a_long_text_the_piece_with_the_words_is_shown(place: int) -> None:
    filler = "nothing to see here, move on. " * 400
    text = f"{filler[:place]} the needle is copper {filler[place:]}"
    quote = quoted(entry(1, text), query_of("copper needle", WORDS), WORDS, 300)
    assert "needle is copper" in quote.text
    assert len(quote.text) <= 300
