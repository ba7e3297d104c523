"""What a block shows where there is not room for everything."""

from __future__ import annotations

from palimpsest.core.notes.choice import NoteBudget, chosen_notes
from palimpsest.core.notes.note import Note


def words(text: str) -> int:
    return len(text.split())


def shown(*notes: Note, room: int = 60) -> list[str]:
    return [
        note.text
        for note in chosen_notes(notes, range(100), NoteBudget(room, room), words, lambda _: False).notes
    ]


def said(place: int, by: str, *sentences: str) -> list[Note]:
    return [
        Note("fact", each, place, place // 2, "user" if by == "user" else "assistant") for each in sentences
    ]


def test_steps_with_files_do_not_push_out_the_newest_commands() -> None:
    runs = [Note("command", f"`make c{n}`: ok", n, 1, "tool", subject=f"make c{n}") for n in range(7)]
    moves = [Note("command", f"`mv a{n} b{n}`: ok", 7 + n, 1, "tool") for n in range(6)]
    told = [text for text in shown(*runs, *moves) if text.startswith("`")]
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
    assert sorted(shown(*notes, room=80)) == sorted(["Start.", *asked, "End."])


def test_a_sentence_that_binds_is_not_told_again_with_its_request() -> None:
    text = "The port of the ledger is 9322. What is the code of room 1?"
    bound = Note("fact", "The port of the ledger is 9322.", 2, 2, binds=True)
    asked = [Note("request", each, n, n) for n, each in enumerate(("Begin now.", "", text, "Go on.")) if each]
    told = "\n".join(shown(*asked, bound, room=200))
    assert told.count("9322") == 1
    assert "room 1" in told


def test_a_message_has_three_facts_at_most() -> None:
    many = said(
        3,
        "assistant",
        *(f"The {name} costs {n} crowns." for n, name in enumerate(("oak", "elm", "ash", "yew"))),
    )
    (line,) = shown(*many)
    assert line.count("costs") == 3
