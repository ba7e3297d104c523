"""A record that grows: old lines stay, corrections are exact, and what has no room goes in whole lines."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.summary.record import (
    Entry,
    Record,
    RecordAnswer,
    answer_of,
    cut_to_room,
    decoded,
    record_of,
    rule_line,
    settled,
    with_entry,
)

from tests.core.summary.talk import count, says, source, user

_LINES = st.lists(st.text("abc 123-#<>", min_size=1, max_size=30).map("- {}".format), min_size=1, max_size=6)
_ENTRIES = st.lists(_LINES.map("\n".join), min_size=1, max_size=6)


def grown(texts: list[str]) -> Record:
    record = Record(())
    for place, text in enumerate(texts):
        record = with_entry(record, RecordAnswer(entry=text), 10 * place + 1, 10 * place + 10, ())
    return record


@settings(max_examples=100, deadline=None)
@given(_ENTRIES, _LINES.map("\n".join))
def test_an_entry_leaves_the_bytes_before_it_as_they_were(texts: list[str], newest: str) -> None:
    before = grown(texts)
    after = with_entry(before, RecordAnswer(entry=newest), before.last + 1, before.last + 3, ())
    assert after.text.startswith(before.text + "\n")
    assert after.entries[:-1] == before.entries
    assert decoded(after.encoded()) == after


@settings(max_examples=100, deadline=None)
@given(_ENTRIES, st.integers(min_value=0, max_value=300))
def test_a_record_is_cut_in_whole_lines_the_newest_entry_last(texts: list[str], room: int) -> None:
    record = grown(texts)
    cut = cut_to_room(record, room, count)
    *whole, last = cut.text.split("\n")
    known = {*record.text.split("\n"), ""}
    assert set(whole) <= known
    # One line that is longer than all the room is the only one that is shortened.
    assert last in known or (len(whole) == 1 and last.endswith(" ..."))
    if cut.entries[:-1]:
        assert cut.entries[-1] == record.entries[-1]
    if count(record.text) <= room:
        assert cut == record


def test_a_correction_replaces_the_line_it_names_and_no_other() -> None:
    record = grown(["- the port of the ledger is 9322", "- the tram takes 40 minutes"])
    answer = answer_of(
        "## Entry\n- the port was changed\n## Corrections\n"
        "< - the port of the ledger is 9322\n> - the port of the ledger: now 4711 (was 9322)\n"
        "< 40\n> 50"
    )
    after = with_entry(record, answer, 21, 22, ())
    assert "- the port of the ledger: now 4711 (was 9322)" in after.text
    assert "- the tram takes 40 minutes" in after.text


def test_headings_in_an_entry_stand_below_its_own() -> None:
    answer = answer_of("## Entry\n### 7. Omar (messages 1 to 2)\n- asked\n## Sophia\n- cancelled\n")
    text = with_entry(Record(()), answer, 3, 9, ()).text
    assert text == "### 1. Omar (messages 3 to 9)\n- asked\n#### Sophia\n- cancelled"


@pytest.mark.parametrize("spelled", ["## {}", "**## {}**", "# **{}**", "### {}:"])
def test_parts_are_read_in_the_spellings_of_models(spelled: str) -> None:
    names = ("State", "Rules", "Entry", "Corrections")
    text = "\n".join(f"{spelled.format(name).replace('**## ', '## **')}\n- of {name}" for name in names)
    assert answer_of(text) == RecordAnswer("- of Entry", "- of State", "- of Rules", "- of Corrections")


def test_rules_are_quotations_of_users_each_once() -> None:
    said = ["Please never push\nto main before noon."]
    rules = '- "never push to main"\n- "never push to main"\n- "always push"\nno quotation'
    record = with_entry(Record(()), RecordAnswer(entry="- x", rules=rules), 1, 2, said)
    assert record.rules == ("never push to main",)
    assert with_entry(record, RecordAnswer(entry="- y", rules=rules), 3, 4, said).rules == record.rules


def test_a_rule_keeps_whom_it_is_about_where_a_user_named_them() -> None:
    said = ["I am Noah Muller. I don't need travel insurance.", "Keep it short."]
    lines = '- "I don\'t need travel insurance." (Noah Muller)\n- "Keep it short."'
    record = with_entry(Record(()), RecordAnswer("- a", rules=f"{lines} (taken back later)"), 1, 2, said)
    assert "\n".join(map(rule_line, record.rules)) == lines
    again = RecordAnswer(entry="- b", rules='- "I don\'t need travel insurance."')
    assert with_entry(record, again, 3, 4, said).rules == record.rules


def test_settled_pieces_name_the_messages_of_their_entries() -> None:
    record = grown(["- a", "- b", "- c", "- d"])
    text = "### 1. A\n- a\n### 1-2. Both\n- b\n### 3. C\n- c"
    pieces = settled(record, answer_of(f"## Record\n{text}")).entries
    assert [(each.first, each.last) for each in pieces] == [(1, 10), (1, 20), (21, 30), (31, 40)]
    assert pieces[1].text.startswith("### 1-2. Both (messages 1 to 20)\n")


def test_a_settled_record_covers_what_it_covered() -> None:
    record = grown(["- one", "- two", "- three", "- four"])
    done = settled(record, answer_of("## Record\n### 1-3. Before\n- one, two, three"))
    assert [(entry.first, entry.last) for entry in done.entries] == [(1, 30), (31, 40)]
    assert settled(record, answer_of("## Record\nprose alone")) == record
    following = with_entry(done, RecordAnswer(entry="- five"), 41, 42, ())
    assert following.entries[-1].text.startswith("### 5. ")


def test_what_a_model_had_nothing_to_say_of_is_not_asked_for_again() -> None:
    record = grown(["- one"]).without_entry(11, 14)
    assert (record.last, record.text) == (14, grown(["- one"]).text)
    following = with_entry(record, RecordAnswer(entry="- two"), 15, 16, ())
    assert following.text.split("\n")[2] == "### 2. (messages 15 to 16)"


def test_what_an_earlier_version_or_another_preset_wrote_is_one_entry() -> None:
    talk = [user("Hello."), says("Hi."), user("Go on.")]
    state = msgspec.json.encode({"record": "## 3. Work completed\nall of it", "taken_out": 1})
    (earlier,) = record_of(replace(source(talk, since=2, previous="a block"), state=state)).entries
    assert earlier == Entry(1, 2, "## 3. Work completed\nall of it")
    assert record_of(source(talk, since=2, previous="what was said")).entries == (
        Entry(1, 2, "what was said"),
    )
    assert record_of(source(talk)) == Record(())
