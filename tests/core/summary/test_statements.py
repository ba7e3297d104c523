"""Which statements are worth carrying, and which a later one has overtaken."""

from __future__ import annotations

import pytest

from app.core.summary.carry.statements import (
    LEAST_SCORE,
    Statement,
    gone_values,
    is_stale,
    sentences,
    stale_values,
    statements_of,
    without_gone,
)


def talk(*said: tuple[str, str]) -> list[Statement]:
    return [s for place, (role, text) in enumerate(said) for s in statements_of(text, role, place)]


def stale_after(*said: tuple[str, str]) -> list[str]:
    """The sentences that no longer hold after all was said."""
    statements = talk(*said)
    stale = stale_values(statements)
    return [s.text for s in statements if is_stale(s, stale)]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("The kickoff is on 4 June.", "Actually, the kickoff is on 11 June."),
        ("The release branch is called harvest-7.", "The release branch is now harvest-9."),
        ("Use Postgres for the ledger.", "Switch the ledger to CockroachDB instead."),
        ("Our limit for the trip is $1,200.", "We raised it: the limit for the trip is now $1,500."),
        ("My sister's name is Ilse.", "Correction: my sister's name is Else."),
        ("Send the invoice to 4 Mill Lane.", "I moved, please send the invoice to 77 Dock Street instead."),
        ("Retry failed jobs 3 times.", "Change the retries of failed jobs to 8."),
        ("My extension is 4410.", "My extension is 4477."),
        ("The idle timeout should be 30 seconds.", "Set the idle timeout to 45 seconds."),
        ("Paint the door in green.", "Make the door blue rather than that."),
    ],
)
def test_a_later_word_of_the_user_wins(first: str, then: str) -> None:
    assert stale_after(("user", first), ("assistant", "Noted."), ("user", then)) == [first]


@pytest.mark.parametrize(
    "then", ["in CockroachDB-2 instead of Postgres-1", "in Cedar-9, rather than the Postgres-1"]
)
def test_what_is_named_as_replaced_no_longer_holds(then: str) -> None:
    first, last = (
        "We decided: the ledger is kept in Postgres-1.",
        f"I changed my mind: the ledger is kept {then}.",
    )
    assert stale_after(("user", first), ("user", last)) == [first]
    said = talk(("user", first), ("user", last))
    gone = gone_values(stale_values(said), said)
    told = f"- The ledger is kept in Postgres-1.\n- The ledger is kept {then}."
    assert without_gone(told, gone) == f"- The ledger is kept {then}."


def test_make_it_refers_to_the_newest_value_of_that_shape() -> None:
    first = "Book a table for 6 people."
    assert stale_after(("user", first), ("user", "Actually, make it 9.")) == [first]


def test_what_an_assistant_repeated_falls_with_it() -> None:
    gone = stale_after(
        ("user", "The kickoff is on 4 June."),
        ("assistant", "Understood, the kickoff is on 4 June."),
        ("user", "Change the kickoff to 11 June."),
    )
    assert len(gone) == 2


@pytest.mark.parametrize(
    "said",
    [
        (("user", "The kickoff is on 4 June."), ("user", "The dinner is on 11 June.")),
        (("user", "The kickoff is on 4 June."), ("assistant", "The kickoff is on 11 June.")),
        (("user", "The kickoff is on 4 June."), ("assistant", "The kickoff is now on 11 June.")),
        (("user", "The kickoff is on 4 June."), ("user", "What if the kickoff were on 11 June?")),
        (("user", "My user id is ana_1."), ("user", "The order id is 4471.")),
        (("assistant", "Flight 1 costs $120."), ("assistant", "Flight 2 costs $90.")),
        (("user", "Port 8080 is for the web."), ("user", "Actually, tell me a joke.")),
        (("user", "Step 1: keep the oven at 180."), ("user", "Step 2: keep the oven at 220.")),
        (("user", "Look at order ORD-1, please."), ("user", "Look at order ORD-2, please.")),
        (
            ("user", "From now on never touch archive-789 without asking me."),
            ("user", "From now on never touch cache-934 without asking me."),
        ),
        (("user", "Do not edit the vendored parser."), ("user", "Now also do not edit the vendored lexer.")),
        (("user", "I need the fastest trip."), ("user", "Could you upgrade me to business class?")),
    ],
)
def test_what_is_about_something_else_overtakes_nothing(said: tuple[tuple[str, str], ...]) -> None:
    assert stale_after(*said) == []


def test_the_new_value_itself_is_not_stale() -> None:
    statements = talk(
        ("user", "The kickoff is on 4 June."),
        ("user", "Change the kickoff to 11 June."),
        ("user", "Remind me: the kickoff is on 11 June."),
    )
    stale = stale_values(statements)
    assert [is_stale(s, stale) for s in statements] == [True, False, False]


def test_a_value_may_go_back_to_what_it_was() -> None:
    gone = stale_after(
        ("user", "The kickoff is on 4 June."),
        ("user", "Change the kickoff to 11 June."),
        ("user", "Change the kickoff back to 4 June."),
    )
    assert gone == ["The kickoff is on 4 June.", "Change the kickoff to 11 June."]


@pytest.mark.parametrize(
    "text",
    [
        "Never push to main without a review.",
        "Please always write dates as ISO 8601.",
        "Remember that the gate code is 4471.",
        "We decided to go with Kafka for the events.",
        "I prefer short answers.",
        "My dog is called Bruno.",
        "The staging host is db-stage-3.internal.",
        "The reference for the claim is CLM-88121.",
        "It stopped with TimeoutError: lock 0x7f2 held.",
    ],
)
def test_facts_rules_and_decisions_are_worth_carrying(text: str) -> None:
    (statement,) = statements_of(text, "user", 0)
    assert statement.score >= LEAST_SCORE


@pytest.mark.parametrize(
    ("role", "text"),
    [
        ("user", "Thanks, that is great!"),
        ("user", "Can you help me with that?"),
        ("user", "I am not sure about it at the moment."),
        ("assistant", "Let me know if you have any other questions."),
        ("assistant", "Flight Number: HAT084"),
        ("assistant", "You can open the file and read the lines in a loop."),
    ],
)
def test_courtesy_questions_and_labels_are_not(role: str, text: str) -> None:
    assert all(s.score < LEAST_SCORE for s in statements_of(text, role, 0))


def test_code_is_no_statement() -> None:
    text = "```python\nport = 8080  # never change\n```\nif (a == b) { return c[0]; }"
    assert statements_of(text, "assistant", 0) == []


def test_of_structured_output_only_its_texts_are_read() -> None:
    text = '{"id": 7, "note": "The customer must always be called before delivery.", "k": "v"}'
    assert [s.text for s in statements_of(text, "tool", 0)] == [
        "The customer must always be called before delivery."
    ]


def test_abbreviations_end_no_sentence() -> None:
    text = "Ask Dr. Okonkwo about it. He knows, e.g. Mr. Lee called. Done!"
    assert sentences(text) == ["Ask Dr. Okonkwo about it.", "He knows, e.g. Mr. Lee called.", "Done!"]
