"""Which entries answer a question best, and what is shown of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.recall.quotes import QUOTE_CHARS, READ_BY_PEOPLE, Hit, hits_of, quoted
from palimpsest.core.recall.rank import APART, FOUND, Weights, ranked
from palimpsest.core.recall.talk import query_of, speakers_in
from palimpsest.core.recall.words import CorpusStatistics, Kind, SearchEntry, Words

WORDS = Words()


def entry(place: int, text: str, role: str = "user", kind: Kind = "message") -> SearchEntry:
    return SearchEntry(f"e{place}", kind, role, place, float(place), text)


def holdings_of(entries: list[SearchEntry]) -> CorpusStatistics:
    said = [WORDS.of(each.text) for each in entries]
    holding = Counter(word for words in said for word in set(words))
    return CorpusStatistics(len(said), max(1.0, sum(map(len, said)) / len(said)), holding)


def order(question: str, entries: list[SearchEntry], weights: Weights = FOUND) -> list[str]:
    query = query_of(question, WORDS)
    return [entry.id for entry in ranked(query, entries, holdings_of(entries), WORDS, weights)]


def hits(question: str, entries: list[SearchEntry], limit: int = 10) -> list[Hit]:
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
    assert order("what was planted in the garden", talk)[:2] == ["e2", "e1"]
    assert "e2" not in order("what was planted in the garden", talk, APART)


def test_who_asks_does_not_answer() -> None:
    """What a question says is worth more to the message behind it than to the question."""
    talk = [
        entry(1, "Did the harbour festival have fireworks this time? How was the festival in the harbour?"),
        entry(2, "It rained, so they only had a brass band.", "assistant"),
        *FILLER,
        entry(50, "The harbour festival had fireworks.", "assistant"),
    ]
    assert order("fireworks at the harbour festival", talk)[:3] == ["e50", "e2", "e1"]
    said = [replace(each, text=each.text.replace("?", ".")) for each in talk]
    assert order("fireworks at the harbour festival", said)[:2] == ["e1", "e50"]


@pytest.mark.parametrize("mark", ["?", "？", "؟"])
def test_questions_are_known_by_their_mark_in_any_language(mark: str) -> None:
    talk = [entry(1, f"Wo steht der Leuchtturm{mark}"), entry(2, "Auf Rügen.", "assistant"), *FILLER]
    assert order("Leuchtturm", talk)[:2] == ["e2", "e1"]


def test_who_speaks_is_told_from_who_is_spoken_to() -> None:
    talk = [
        entry(1, "Nora: Tobias, I sold my kayak, Tobias! You know it, Tobias."),
        entry(6, "Tobias: Nora, I sold my kayak.", "assistant"),
        *(entry(place, f"Nora: We walked {place} miles.") for place in range(20, 30)),
        *(entry(place, f"Tobias: It rained {place} times.", "assistant") for place in range(30, 40)),
    ]
    assert order("Whose kayak did Tobias sell?", talk)[0] == "e6"
    assert order("Whose kayak did Nora sell?", talk)[0] == "e1"
    assert order("Whose kayak did Tobias sell?", talk, replace(FOUND, speaker=0.0))[0] == "e1"


def called(*, by_whom: tuple[str, str] = ("assistant", "user")) -> list[SearchEntry]:
    """A talk whose messages do not say who speaks: one calls Nora by name, the other Tobias."""
    nora, tobias = by_whom
    return [
        entry(20, "Hey Nora, how was the long walk around the lake?", nora),
        entry(23, "It rained the whole afternoon, Nora!", nora),
        entry(26, "Thanks, Tobias. We walked home through the mud.", tobias),
        entry(29, "Good to hear from you, Tobias!", tobias),
    ]


def test_who_speaks_is_told_from_who_calls_whom_where_no_message_says_it() -> None:
    talk = [
        entry(1, "Tobias, I sold my kayak, Tobias, you know it.", "user"),
        entry(8, "Nora, I sold my kayak.", "assistant"),
        *called(),
    ]
    assert order("Whose kayak did Tobias sell?", talk)[0] == "e8"
    assert order("Whose kayak did Nora sell?", talk)[0] == "e1"
    swapped = [*talk[:2], *called(by_whom=("user", "assistant"))]
    assert order("Whose kayak did Nora sell?", swapped)[0] == "e8"


@pytest.mark.parametrize("both", [True, False])
def test_nobody_speaks_where_both_call_a_name_or_one_calls_none(both: bool) -> None:
    silent = [replace(each, text=each.text.replace("Tobias", "dear")) for each in called()]
    mixed = [*called(), *called(by_whom=("user", "assistant"))]
    assert speakers_in(mixed if both else silent) == {}
    assert {each.role: speakers_in(called())[each.id] for each in called()} == {
        "user": "Nora",
        "assistant": "Tobias",
    }


LABELLED = [
    entry(place, f"{who}: We walked {place} miles along the coast and back.")
    for place, who in enumerate(["Nora", "Tobias"] * 6, 40)
]


def test_who_says_little_tells_little_where_people_talk() -> None:
    talk = [
        entry(1, "Nora: A kayak, wow."),
        entry(8, "Nora: The kayak is an old one with a blue stripe, and we paddled in it along the coast."),
        *LABELLED,
    ]
    assert order("kayak", talk)[0] == "e8"
    assert order("kayak", talk, replace(FOUND, brief=0.0))[0] == "e1"
    nobodys = [replace(each, text=each.text.partition(": ")[2]) for each in talk]
    assert order("kayak", nobodys)[0] == "e1"


def test_who_goes_on_is_found_by_what_was_said_before_the_other_spoke() -> None:
    """An entry hears more of the one two before it than of the one two behind it."""
    talk = [
        entry(3, "Nothing much."),
        entry(4, "So I see."),
        entry(5, "The lighthouse was painted."),
        entry(6, "Was it."),
        entry(7, "It took all week."),
        *FILLER,
    ]
    found = order("lighthouse", talk)
    assert found.index("e7") < found.index("e3")
    assert order("lighthouse", talk, replace(FOUND, earlier=0.0)).count("e7") == 0


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("How many lamps does the tower have?",
         "The tower has forty-two, 42 lamps.", "The tower has lamps, lots of them."),
        ("Who lit the lamps of the tower?",
         "The tower and its lamps: by old Magnus.", "The tower and its lamps: by the old man."),
    ],
)  # fmt: skip
def test_a_number_or_a_name_is_worth_more_where_one_is_asked_for(
    question: str, answer: str, other: str
) -> None:
    talk = [entry(1, answer), entry(6, other), *FILLER]
    assert order(question, talk)[0] == "e1"
    assert order(question, talk, replace(FOUND, specifics=0.0))[0] == "e6"


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
    """C14: what was said, other, execution wrappers, references to payloads, tools; summaries."""
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
    assert order("harbour code", told) == ["e60", "e50", "e40", "e30", "e20", "e10", "e70"]


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


def test_beside_a_hit_those_are_shown_that_answer_the_question() -> None:
    around = {
        at: f"Nothing of note happened on day {at}, and nobody minded that. " * 3 for at in range(1, 12)
    }
    around[6] = "The lighthouse of the northern island was painted red in spring."
    around[2] = "The paint of the lighthouse had to be red, said the island's council."
    talk = [entry(at, text) for at, text in around.items()]
    hit = hits("what colour is the lighthouse of the island painted", [*talk, *FILLER])[0]
    shown = [quote.entry.id for quote in (*hit.before, hit.quote, *hit.after)]
    assert {"e2", "e6"} <= set(shown)
    assert shown == sorted(shown, key=lambda ident: int(ident[1:]))


def test_ten_hits_are_read_for_a_thousand_tokens() -> None:
    talk = [entry(place, f"The lighthouse of island {place} is {'very ' * 40} old.") for place in range(60)]
    found = hits("old lighthouse", talk)
    shown = sum(len(quote.text) for hit in found for quote in (hit.quote, *hit.before, *hit.after))
    assert len(found) == 10
    assert shown <= 5 * READ_BY_PEOPLE.near + 5 * READ_BY_PEOPLE.far


@pytest.mark.parametrize("place", [0, 4_000, 9_000])
def test_of_a_long_text_the_piece_with_the_words_is_shown(place: int) -> None:
    filler = "nothing to see here, move on. " * 400
    text = f"{filler[:place]} the needle is copper {filler[place:]}"
    quote = quoted(entry(1, text), query_of("copper needle", WORDS), WORDS, 300)
    assert "needle is copper" in quote.text
    assert len(quote.text) <= 300
