"""The session's lists: what is read of a reply, in whatever shape, and how it is merged (B09, B10)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.summary.session_lists import CAPS, ListEntry, Lists, list_lines, merged, reply_of

from tests.core.summary.asking import sections

SUMMARY = sections("port 54329", "asked and answered", "ship it")
DELTA = {"tasks": [{"id": "t1", "text": "ship", "status": "Done", "by": "scout"}]}
CHANGE = ("tasks", ListEntry("t1", "ship", "done", "scout"))


@pytest.mark.spec("B09")
@pytest.mark.parametrize(
    "tail",
    [
        f"\n\n```json\n{json.dumps(DELTA)}\n```",
        f"\n```\n{json.dumps(DELTA, indent=2)}\n```\n",
        f"\n\n## Changes\n```json\n{json.dumps(DELTA)}\n```",
        f"\n\n**State delta:**\n```json\n{json.dumps(DELTA)}\n```",
        f"\n\n{json.dumps(DELTA, indent=2)}",
        f"\n\n```json\n{json.dumps(DELTA)}",
    ],
)
def test_changes_are_found_and_leave_the_summary(tail: str) -> None:
    assert reply_of(SUMMARY + tail) == (SUMMARY, [CHANGE], False)


@pytest.mark.spec("B09")
@pytest.mark.parametrize(
    "tail",
    [
        "",
        '\n\n```json\n{"tasks": [\n```',
        "\n\n## Changes\n```json\n{tasks: none}\n```",
        '\n\n```json\n{"tasks": "none"}\n```',
        '\n\n```json\n{"tasks": [[1]]}\n```',
        "\n\n```json\n" + '{"tasks":' * 5_000 + "\n```",
    ],
)
def test_a_broken_delta_leaves_the_summary(tail: str) -> None:
    assert reply_of(SUMMARY + tail) == (SUMMARY, [], True)


@pytest.mark.spec("B09")
def test_what_can_be_read_of_a_delta_is_read() -> None:
    delta = {
        "decisions": ["use SQLite", 7],
        "agent_contributions": [{"by": "scout", "text": "found it"}],
        "moods": ["good"],
        "risks": None,
    }
    _, changes, is_broken = reply_of(f"{SUMMARY}\n```json\n{json.dumps(delta)}\n```")
    assert [(kind, entry.text, entry.by) for kind, entry in changes] == [
        ("decisions", "use SQLite", ""),
        ("agent_contributions", "found it", "scout"),
    ]
    assert is_broken


def test_json_that_is_no_delta_stays_in_the_summary() -> None:
    said = sections('the config is\n```json\n{"port": 80}\n```', "set up", "none")
    assert reply_of(said)[0] == said
    assert reply_of(f"{said}\n```json\n{{}}\n```") == (said, [], False)


def test_an_entry_is_one_line_without_secrets() -> None:
    secret = "sk-" + "Ab1" * 8
    ((_, change),) = reply_of(f'{SUMMARY}\n```json\n{{"risks": ["a {secret}\\n\\u0000b"]}}\n```')[1]
    assert change.text == "a [secret removed] \ufffdb"
    ((_, long),) = reply_of(f'{SUMMARY}\n```json\n{{"risks": ["{"word " * 400}"]}}\n```')[1]
    assert len(long.text) <= 400


@given(st.text())
def test_any_reply_can_be_read(text: str) -> None:
    reply_of(text)
    reply_of(f"{text}\n```json\n{text}\n```")


def task(text: str = "", ident: str = "", status: str = "") -> tuple[str, ListEntry]:
    return "tasks", ListEntry(ident, text, status)


def after(*changes: tuple[str, ListEntry], before: Lists | None = None) -> Lists:
    return merged(before or {}, changes)


@pytest.mark.spec("B09")
def test_new_entries_get_an_id_and_are_open() -> None:
    made = after(task("write the tests"), task("run them"), ("decisions", ListEntry("", "use SQLite", "")))
    assert made["tasks"] == (ListEntry("t1", "write the tests", "open"), ListEntry("t2", "run them", "open"))
    assert made["decisions"] == (ListEntry("d1", "use SQLite", "open"),)


@pytest.mark.spec("B10")
def test_the_same_id_or_text_is_the_same_entry() -> None:
    made = after(task("one", "a"), task("two", "b"), task("one, said better", "a", "done"))
    assert made["tasks"] == (ListEntry("b", "two"), ListEntry("a", "one, said better", "done"))
    closed = after(task(ident="b", status="done"), before=made)
    assert closed["tasks"][-1] == ListEntry("b", "two", "done")
    again = after(task("Write the tests."), task("write  the tests", "other", "done"))
    assert [(entry.id, entry.status) for entry in again["tasks"]] == [("t1", "done")]
    both = after(task("one", "a"), task("two", "b"), task("two", "a"))
    assert both["tasks"] == (ListEntry("a", "two"),)
    assert after(task(ident="t9", status="done"))["tasks"] == ()


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
    made = after(*((kind, ListEntry("", f"entry {n}")) for n in range(cap + 3)))
    assert [entry.text for entry in made[kind]] == [f"entry {n}" for n in range(3, cap + 3)]


@pytest.mark.spec("B10")
def test_closed_entries_go_first_and_what_was_touched_counts_as_new() -> None:
    ten = [task(f"task {n}", f"t{n}") for n in range(10)]
    made = [entry.text for entry in after(*ten, task(ident="t8", status="done"), task("one more"))["tasks"]]
    assert "task 0" in made
    assert "task 8" not in made
    assert made[-1] == "one more"
    touched = after(*ten, task("task 0"), task("one more"))["tasks"]
    assert [entry.id for entry in touched][:1] == ["t2"]
    assert "task 0" in [entry.text for entry in touched]


WORD = st.sampled_from(["", "one", "two", "One.", "three", "four", "five", "six", "seven"])
CHANGES = st.lists(
    st.tuples(
        st.sampled_from([*CAPS]),
        st.builds(ListEntry, WORD, WORD, st.sampled_from(["", "open", "done", "odd"]), WORD),
    ),
    max_size=60,
)


@pytest.mark.spec("B10")
@settings(max_examples=100)
@given(CHANGES, CHANGES)
def test_caps_and_single_entries_hold_whatever_comes(
    first: list[tuple[str, ListEntry]], then: list[tuple[str, ListEntry]]
) -> None:
    for kind, entries in after(*then, before=after(*first)).items():
        assert len(entries) <= CAPS[kind]
        assert len({entry.id for entry in entries}) == len(entries)
        assert len({entry.text.lower().strip(".") for entry in entries}) == len(entries)
        assert all(entry.id and entry.text for entry in entries)


def test_lines_say_kind_status_and_who() -> None:
    made = after(task("one", status="done"), ("agent_contributions", ListEntry("", "two", "", "scout")))
    assert list_lines(made) == ["- task [done]: one", "- agent contribution: two (scout)"]
