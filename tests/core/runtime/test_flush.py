"""The flush before a compaction: when, what, and how much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.runtime.checkpoint import FLUSH_TOKENS, TITLES, flush_due, flush_of

from tests.core.histories import assistant, calls, conversation, count_text, result, user

SECRET = "sk-" + "Ab1" * 7
TALK = [
    user("We decided to use PostgreSQL 16 for the ledger."),
    calls("call_1", arguments='{"command": "make check"}'),
    result("call_1", "TypeError: cannot add str and int"),
    assistant("The issue was a wrong type in ledger.py. Next, I will fix the parser."),
    user("And port 5432?"),
]
NOTE = """\
## Decisions
- We decided to use PostgreSQL 16 for the ledger.
## Open loops
- run command=make check: failed, TypeError: cannot add str and int
- And port 5432?
## Next actions
- Answer: And port 5432?
## Key findings
- The issue was a wrong type in ledger.py."""


def due(
    slack: int = 100,
    messages: int = 10,
    at: float = 1_000.0,
    path: int = 9_000,
    last: tuple[float, int] | None = None,
) -> bool:
    return flush_due(slack, messages, at, path, last)


def note_of(fields: list[dict[str, Any]]) -> str:
    return flush_of(conversation(fields).messages, count_text)


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("slack", "wanted"), [(1_200, False), (1_199, True), (0, True), (-50, True)])
def test_only_when_little_room_is_left(slack: int, wanted: bool) -> None:
    assert due(slack=slack) is wanted


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("messages", "wanted"), [(3, False), (4, True)])
def test_only_with_four_messages(messages: int, wanted: bool) -> None:
    assert due(messages=messages) is wanted


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("at", "wanted"), [(119.9, False), (120.0, True)])
def test_no_more_than_once_in_two_minutes(at: float, wanted: bool) -> None:
    assert due(at=500.0 + at, last=(500.0, 8_000)) is wanted


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("path", "wanted"), [(8_249, False), (8_250, True), (7_751, False), (100, True)])
def test_only_when_enough_has_come_since(path: int, wanted: bool) -> None:
    assert due(path=path, last=(500.0, 8_000)) is wanted


@pytest.mark.spec("A43")
def test_the_note_has_four_sections_and_comes_without_a_model() -> None:
    assert note_of(TALK) == NOTE


@pytest.mark.spec("A43")
def test_secrets_are_not_in_the_note() -> None:
    note = note_of(
        [user(f"Remember: the key is {SECRET} for host db-7."), assistant(f"Because {SECRET}, ok.")]
    )
    assert "db-7" in note
    assert SECRET not in note


@pytest.mark.spec("A43")
def test_every_section_gets_its_share_and_the_newest_lines_win() -> None:
    rules = [
        user(f"Important: you must always deploy service{n} to region{n} before noon.") for n in range(40)
    ]
    note = note_of([*rules, *TALK])
    assert count_text(note) <= FLUSH_TOKENS
    assert all(f"## {title}\n- " in note for title in TITLES)
    assert "PostgreSQL 16" in note
    assert "service0 " not in note


@pytest.mark.spec("A43")
@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=400)), max_size=12)
)
def test_the_note_is_the_same_every_time_and_within_its_bound(said: list[tuple[str, str]]) -> None:
    fields = [result("c1", t) if r == "tool" else user(t) if r == "user" else assistant(t) for r, t in said]
    note = note_of(fields)
    assert note == note_of(fields)
    assert count_text(note) <= FLUSH_TOKENS
    note.encode()
