"""What a block shows where there is not room for everything."""

from __future__ import annotations

from palimpsest.core.notes.choice import NoteBudget, chosen_notes, line_of
from palimpsest.core.notes.note import Note
from palimpsest.core.notes.reader import notes_of

from tests.core.histories import message


def words(text: str) -> int:
    return len(text.split())


def shown(*notes: Note, room: int = 60) -> list[str]:
    return [
        note.text
        for note in chosen_notes(notes, range(100), NoteBudget(room, room), words, lambda _: False).notes
    ]


def test_steps_with_files_do_not_push_out_the_newest_commands() -> None:
    runs = [Note("command", f"`make c{n}`: ok", n, 1, "tool", subject=f"make c{n}") for n in range(7)]
    moves = [Note("command", f"`mv a{n} b{n}`: ok", 7 + n, 1, "tool") for n in range(6)]
    told = [text for text in shown(*runs, *moves, room=58) if text.startswith("`")]
    assert sorted(told) == sorted(note.text for note in (*runs[-5:], *moves[-5:]))


def test_a_request_that_asks_or_greets_is_worth_what_it_is_about() -> None:
    vague = "Everything looks correct to me and I agree with it."
    asked = ["Could you refund the lantern of order W-7731?", "Hi, let's use the Visa that ends with 2076."]
    texts = [
        "Start.",
        *asked,
        *(f"{vague} It is number {['one', 'two', 'six'][n]}." for n in range(3)),
        "End.",
    ]
    notes = [Note("request", text, n * 2, n + 1) for n, text in enumerate(texts)]
    assert sorted(shown(*notes, room=46)) == sorted(["Start.", *asked, "End."])


def test_a_sentence_that_binds_is_not_told_again_with_its_request() -> None:
    text = "The port of the ledger is 9322. What is the code of room 1?"
    bound = Note("fact", "The port of the ledger is 9322.", 2, 2, binds=True)
    asked = [Note("request", each, n, n) for n, each in enumerate(("Begin now.", "", text, "Go on.")) if each]
    told = "\n".join(shown(*asked, bound, room=200))
    assert told.count("9322") == 1
    assert "room 1" in told


def test_runs_of_a_command_are_one_line_with_its_outcomes() -> None:
    runs = [
        Note("command", f"`make`: {said}", n, 1, "tool", subject="make")
        for n, said in enumerate(("failed, E1", "failed, E2", "ok"))
    ]
    assert shown(*runs) == ["`make`: failed, E1, then failed, E2, then ok"]


def test_the_oldest_part_has_its_share_and_room_is_used() -> None:
    facts = [
        Note("fact", f"The {name} of hall {n} has the number {n * 37}.", n * 8, n)
        for n, name in enumerate(("harbour", "lantern", "orchard", "quarry", "chapel", "meadow"))
    ]
    assert len(shown(*facts, room=200)) == len(facts)
    long = [Note("fact", f"Row {n} of the ledger holds {n * 91} crowns.", 48, 6) for n in range(30)]
    assert shown(*facts, *long, room=120)[:2] == [note.text for note in facts[:2]]


def test_what_a_record_held_is_told_where_somebody_named_it() -> None:
    asked = Note("request", "Which cabin has JX41?", 0, 1)
    held = [
        Note("read", text, 2, 1, "tool", subject="get_booking JX41")
        for text in ("cabin economy, JX41", "seat_map 11A 11B 12C 14F 15A 18B 22C 25D")
    ]
    told = shown(asked, *held, room=22)
    assert told == [asked.text, held[0].text]


def test_files_that_were_read_are_told_by_folder() -> None:
    reads = [Note("read", "", n, 1, "tool", subject=f"docs/systems/{n}.md") for n in range(12)]
    (note,) = chosen_notes(reads, range(100), NoteBudget(200, 200), words, lambda _: False).notes
    assert note.subject.startswith("docs/systems/: 12 files, the newest 4.md, ")


def test_of_two_who_talk_what_has_details_is_told_with_its_date() -> None:
    moved = "[9:02 am on 21 June, 2023] Ben: My sister Greta moved to Oslo last week with her two dogs."
    vague = "Kindness keeps everybody going and that is what matters to people who care about others."
    said = ["Ann: Hey! How is everything?", f"Ben: {vague}", f"Ann: {vague} Always.", moved]
    said += ["Ann: Wow!", "Ben: Yes.", "Ann: And?", "Ben: She does well."]
    roles = ("user", "assistant")
    talk = [message({"role": roles[n % 2], "content": text}) for n, text in enumerate(said)]
    told = chosen_notes(notes_of(talk).notes, range(10), NoteBudget(48, 48), words, lambda _: False)
    lines = [line_of(note) for note in told.notes]
    assert f"- assistant: {moved}" in lines
    assert not any(vague in line for line in lines)
