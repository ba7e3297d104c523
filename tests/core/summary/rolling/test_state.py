"""The session's state: merging, caps, and its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.summary.rolling.record import RollingRecord, decoded_record, encoded
from palimpsest.core.summary.rolling.state import (
    KINDS,
    Change,
    SessionState,
    StateCaps,
    StateEntry,
    merged,
    state_lines,
)

CAPS = StateCaps()


def state(*changes: Change, before: SessionState | None = None, caps: StateCaps = CAPS) -> SessionState:
    return merged(before or SessionState(), changes, caps)


def task(text: str = "", ident: str = "", status: str = "") -> Change:
    return Change("tasks", ident, text, status)


@pytest.mark.spec("B09")
def test_new_entries_get_an_id_and_are_open() -> None:
    made = state(task("write the tests"), Change("decisions", text="use SQLite", by="planner"))
    assert made.tasks == (StateEntry("t1", "write the tests", "open"),)
    assert made.decisions == (StateEntry("d2", "use SQLite", "open", "planner"),)


@pytest.mark.spec("B09")
def test_an_id_is_given_once() -> None:
    caps = StateCaps(tasks=1)
    made = state(task("one"), task("two"), caps=caps)
    assert [entry.id for entry in state(task("three"), before=made, caps=caps).tasks] == ["t3"]


@pytest.mark.spec("B10")
def test_the_same_id_is_the_same_entry() -> None:
    made = state(task("one", "a"), task("two", "b"), task("one, said better", "a", "done"))
    assert made.tasks == (StateEntry("b", "two"), StateEntry("a", "one, said better", "done"))
    closed = state(task(ident="b", status="done"), before=made)
    assert [(entry.id, entry.text, entry.status) for entry in closed.tasks][-1] == ("b", "two", "done")


@pytest.mark.spec("B10")
def test_the_same_text_is_the_same_entry() -> None:
    made = state(task("Write the tests."), task("write  the tests", "other", "done"))
    assert [(entry.id, entry.status) for entry in made.tasks] == [("t1", "done")]


def test_an_id_and_a_text_of_two_entries_make_them_one() -> None:
    made = state(task("one", "a"), task("two", "b"), task("two", "a"))
    assert made.tasks == (StateEntry("a", "two"),)


def test_an_unknown_id_without_a_text_is_left_out() -> None:
    assert state(task(ident="t9", status="done")).is_empty


@pytest.mark.spec("B10")
@pytest.mark.parametrize(
    ("kind", "cap"),
    [
        ("decisions", 8),
        ("constraints", 6),
        ("tasks", 10),
        ("questions", 5),
        ("risks", 5),
        ("artifacts", 10),
        ("agent_contributions", 6),
    ],
)
def test_each_list_has_its_cap_and_the_oldest_go(kind: str, cap: int) -> None:
    made = state(*(Change(kind, text=f"entry {n}") for n in range(cap + 3)))
    assert [entry.text for entry in made.entries(kind)] == [f"entry {n}" for n in range(3, cap + 3)]


@pytest.mark.spec("B10")
def test_closed_entries_go_before_open_ones() -> None:
    made = state(
        *(task(f"task {n}", f"t{n}") for n in range(10)),
        task(ident="t8", status="done"),
        task("one more"),
    )
    texts = [entry.text for entry in made.tasks]
    assert "task 0" in texts
    assert "task 8" not in texts
    assert texts[-1] == "one more"


@pytest.mark.spec("B10")
def test_what_was_touched_counts_as_new() -> None:
    made = state(*(task(f"task {n}", f"t{n}") for n in range(10)))
    made = state(task("task 0"), task("one more"), before=made)
    assert [entry.id for entry in made.tasks][:1] == ["t2"]
    assert "task 0" in [entry.text for entry in made.tasks]


WORD = st.sampled_from(["", "one", "two", "One.", "three", "four", "five", "six", "seven"])
CHANGES = st.lists(
    st.builds(Change, st.sampled_from(KINDS), WORD, WORD, st.sampled_from(["", "open", "done", "odd"]), WORD),
    max_size=60,
)
SMALL = StateCaps(2, 1, 3, 2, 0, 2, 1)


@pytest.mark.spec("B10")
@settings(max_examples=150)
@given(CHANGES, CHANGES)
def test_caps_and_single_entries_hold_whatever_comes(first: list[Change], then: list[Change]) -> None:
    made = state(*then, before=state(*first, caps=SMALL), caps=SMALL)
    for kind, entries in made.lists():
        assert len(entries) <= getattr(SMALL, kind)
        assert len({entry.id for entry in entries}) == len(entries)
        assert len({entry.text.lower().strip(".") for entry in entries}) == len(entries)
        assert all(entry.id and entry.text for entry in entries)


@given(CHANGES)
def test_the_bytes_give_the_state_back(changes: list[Change]) -> None:
    kept = RollingRecord("the summary", state(*changes))
    assert decoded_record(encoded(kept)) == kept


@pytest.mark.spec("B09")
@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"summary":5}',
        b'{"summary":"x","state":{"tasks":"none"}}',
        b'{"rolling":99,"summary":"x","state":{}}',
        b'{"version":1,"summary":"of another style"}',
        b"[" * 100_000,
    ],
)
def test_damaged_bytes_are_an_empty_state(damaged: bytes) -> None:
    assert decoded_record(damaged) == RollingRecord()


def test_lines_say_kind_status_and_who() -> None:
    made = state(task("one", status="done"), Change("agent_contributions", text="two", by="scout"))
    assert state_lines(made) == ["- task [done]: one", "- agent contribution: two (scout)"]
