"""What later messages settle: files, commands, failures, questions, lists."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.history.message import Message, conversation_of
from palimpsest.core.history.read import read_message
from palimpsest.core.notes.note import Kind
from palimpsest.core.notes.reader import notes_of, notes_of_fold

from tests.core.summary.talk import calls, message, result, says, user


def told(kind: Kind, *messages: Message) -> list[str]:
    return [note.text for note in notes_of(messages).of(kind)]


def bound(kind: Kind, *messages: Message) -> list[str]:
    return [note.text for note in notes_of(messages).of(kind) if note.binds]


def edit(ident: str, path: str = "a.py") -> Message:
    return calls("edit_file", ident, path=path, old_string="1", new_string="2")


FAILED = "Error: old_string not found"
DONE = "The file has been updated."


def test_an_edit_that_failed_is_settled_by_one_that_succeeds() -> None:
    assert bound("failure", edit("1"), result(FAILED, "1")) == [f"edit_file a.py: failed, {FAILED}"]
    assert bound("failure", edit("1"), result(FAILED, "1"), edit("2"), result(DONE, "2")) == []


def test_a_call_that_failed_is_settled_by_the_same_call() -> None:
    def books(ident: str, said: str, flight: str = "HAT-12") -> tuple[Message, ...]:
        return calls("book_flight", ident, flight=flight), result(said, ident)

    refused = books("1", "Error: payment refused")
    assert len(bound("failure", *refused)) == 1
    assert bound("failure", *refused, *books("2", '{"status": "booked"}')) == []
    assert len(bound("failure", *refused, *books("2", '{"status": "booked"}', "HAT-99"))) == 1


def test_what_was_refused_one_way_and_done_another_is_settled() -> None:
    def pays(ident: str, said: str, by: str) -> tuple[Message, ...]:
        return calls("update_reservation", ident, reservation_id="OBUT9V", payment=by), result(said, ident)

    refused = (*pays("1", "Error: balance too low", "gift_1"), *pays("2", "Error: balance too low", "gift_2"))
    assert len(bound("failure", *refused)) == 2
    assert bound("failure", *refused, *pays("3", '{"status": "updated"}', "card_1")) == []


def test_an_agents_announcements_and_bare_items_are_no_facts() -> None:
    narrated = calls("bash", "1", "We can use the script to reproduce the wrong total.", command="ls")
    decided = calls("bash", "2", "I go with integers of cents because floats drift in sums.", command="ls")
    assert told("fact", narrated) == []
    assert told("fact", decided) == ["I go with integers of cents because floats drift in sums."]
    assert told("fact", says("Options:\n- Arrival: 04:00 PM\n- NM1VX1\nPlease tell me which one.")) == []


def test_equal_changes_are_one_line_and_those_with_ids_of_their_own_are_not() -> None:
    def booked(ident: str, made: str) -> tuple[Message, ...]:
        said = f'{{"reservation_id": "{made}", "status": "booked"}}'
        return calls("book_flight", ident, flight="HAT-12"), result(said, ident)

    assert len(told("change", *booked("1", "R-1"), *booked("2", "R-2"))) == 2
    (twice,) = told("change", *booked("1", "R-1"), *booked("2", "R-1"))
    assert twice.endswith("(x2)")


def test_the_newest_run_of_a_command_counts() -> None:
    runs = [
        message
        for ident, said in (("1", "FAILED tests/a.py::b\n2 failed in 1s"), ("2", "3 passed"))
        for message in (calls("bash", ident, command="pytest -q"), result(said, ident))
    ]
    assert told("command", *runs) == [
        "`pytest -q`: failed, FAILED tests/a.py::b",
        "`pytest -q`: ok, 3 passed",
    ]
    assert bound("command", *runs[:2]) == ["`pytest -q`: failed, FAILED tests/a.py::b"]
    assert bound("command", *runs) == []


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("git mv a.py b.py", True),
        ("cd src && sed -i 's/a/b/' x.py", True),
        ("cat > x.py <<'EOF'\nprint(1)\nEOF", True),
        ("python fix.py > out.txt", False),
        ("sed -i 's/a/b/' x.py && pytest", False),
        ("git commit -am x", False),
        ("rm x.py", True),
    ],
)
def test_a_command_that_only_changed_files_is_told_by_these(line: str, is_told: bool) -> None:
    (note,) = notes_of([calls("bash", "1", command=line), result("", "1")]).of("command")
    assert (note.subject == "") == is_told


def test_a_question_is_open_until_the_user_speaks() -> None:
    asked = [user("Book me a flight."), says("Shall it be the morning or the evening flight?")]
    assert len(told("open", *asked)) == 1
    assert told("open", *asked, user("The morning flight.")) == []
    assert told("open", *asked, user("Where is my bag?")) == []


def test_a_rule_whose_value_was_replaced_stands_before_the_newer_one() -> None:
    first, then = user("The total budget is 4484 euros."), user("The total budget is 7196 euros.")
    assert told("rule", first) == ["The total budget is 4484 euros."]
    assert told("rule", first, then) == ["The total budget is 4484 euros.", "The total budget is 7196 euros."]


def test_a_picture_is_told_with_the_last_sentence_beside_it() -> None:
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    text = "Fix the form. Here is a screenshot of the red banner."
    (line,) = told("picture", user([{"type": "text", "text": text}, shown]))
    assert line.endswith(', with the words "Here is a screenshot of the red banner."')


def test_a_call_without_a_result_is_open_until_the_user_speaks() -> None:
    begun = [user("Book it."), calls("book_flight", "1", flight="HAT-12")]
    assert told("open", *begun) == ['no result yet: book_flight {"flight": "HAT-12"}']
    assert told("open", *begun, user("Never mind.")) == []


def test_the_newest_of_several_values_binds_and_nothing_is_called_replaced() -> None:
    said = [user("The port is 8080. Set it up."), says("Done."), user("Sorry, the port is 9090.")]
    assert told("request", *said)[0] == "The port is 8080. Set it up."
    facts = notes_of(said).of("fact")
    assert [(note.text, note.binds) for note in facts] == [
        ("The port is 8080.", False),
        ("Set it up.", False),
        ("Sorry, the port is 9090.", True),
    ]


def test_an_output_in_a_users_message_is_the_outcome_of_the_command() -> None:
    ran = [
        user("Fix it in a.py."),
        says("THOUGHT: I run it.\n\n```bash\npytest -q\n```"),
        user("<returncode>1</returncode>\n<output>\nE   KeyError: 'a'\n1 failed in 0.1s\n</output>"),
        says("I look it up.\nAction: Search[KeyError]"),
        user("Observation: A key is not in the mapping."),
    ]
    ran = list(conversation_of([read_message(one.raw, lambda _: 1) for one in ran], b"").messages)
    assert told("command", *ran) == ["`pytest -q`: failed, E   KeyError: 'a'"]
    assert told("request", *ran) == ["Fix it in a.py."]
    assert told("read", *ran) == ["", "A key is not in the mapping."]
    assert told("request", user("Output: what does that mean?")) == ["Output: what does that mean?"]


def test_what_a_speaker_said_has_the_speaker() -> None:
    cara = message({"role": "user", "name": "Cara", "content": "I cannot come on Fridays."})
    both = user("[Ben]: I bring the wine for ten.\n[Cara]: Never invite Tom.")
    facts = notes_of([cara, both]).of("fact", "rule")
    assert [(note.name, note.text) for note in facts] == [
        ("Cara", "I cannot come on Fridays."),
        ("Ben", "I bring the wine for ten."),
        ("Cara", "Never invite Tom."),
        ("Cara", "Never invite Tom."),
    ]


def test_a_short_answer_of_a_chat_and_what_it_asks_to_confirm_are_facts() -> None:
    assert told("fact", says("David has one brother.")) == ["David has one brother."]
    assert told("fact", says("Great!")) == []
    asked = "Shall I cancel NM1VX1 and KC18K6?"
    assert told("fact", says(f"I found two. {asked}"))[-1] == asked


SAID: list[Message] = [
    user("The port is 8080. Never push. Fix a.py and tell me when it is done."),
    edit("1"),
    result(FAILED, "1"),
    calls("bash", "2", command="pytest -q"),
    result("2 failed", "2"),
    calls("todo_write", "3", todos=[{"content": "fix a.py", "status": "pending"}]),
    result("ok", "3"),
    says("Shall I change b.py as well?"),
    user("Yes. And the port is 9090."),
    edit("4"),
    result(DONE, "4"),
    edit("5", "b.py"),
    result(DONE, "5"),
    calls("book_flight", "6", flight="HAT-12"),
    result('{"status": "booked"}', "6"),
    calls("book_flight", "7", flight="HAT-12"),
    result('{"status": "booked"}', "7"),
    calls("bash", "8", command="pytest -q"),
    result("3 passed", "8"),
    says("All is done."),
]


def chained(messages: list[Message], seed: str) -> list[tuple[bytes, Message]]:
    return [(sha256(f"{seed} {at}".encode()).digest(), message) for at, message in enumerate(messages)]


@given(st.lists(st.integers(0, len(SAID)), min_size=1, max_size=4), st.uuids())
def test_read_in_pieces_it_says_the_same(cuts: list[int], seed: object) -> None:
    whole = notes_of(SAID).notes
    folded = chained(SAID, str(seed))
    for cut in (*sorted(cuts), *cuts):
        assert notes_of_fold(folded[:cut], SAID[cut:]) == whole


def test_what_an_earlier_fold_read_is_not_read_again() -> None:
    folded = chained(SAID, "once")
    whole = notes_of_fold(folded[:12], SAID[12:])
    # Were they read again, they would say nothing now.
    silent = [(chain, says("")) for chain, _ in folded[:12]]
    assert notes_of_fold([*silent, *folded[12:]], []) == whole
    assert notes_of_fold(chained(SAID[:1], "another"), []) != whole
