"""How much sentences say, each thing counted once, and which of several values is the newest."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from palimpsest.core.notes.facts import Information, newest_of_frames, stems_of

from tests.house.sources import ROOT

CHATTER = [
    "Thanks a lot!",
    "Sure, here is the flight you asked for.",
    "Can you help me with my flight?",
    "I would like to talk about my flight.",
    "The flight looks good to me.",
    "That flight is fine.",
] * 5
FACT = "My passport number is K7741902 and I live in Trondheim."


def chosen(sentences: list[str], room: int = 30) -> list[str]:
    best = Information(sentences).best(lambda index: len(sentences[index]) // 4 + 1, room)
    return [sentences[index] for index in best]


def test_stems_leave_out_what_says_nothing() -> None:
    assert stems_of("The flights were cancelled") == stems_of("a flight, and it was cancelled!")
    assert "2024-05-03" in stems_of("It was on 2024-05-03.")
    assert "src/foo_bar.py" in stems_of("See `src/foo_bar.py`.")
    assert stems_of("and of the") == frozenset()
    assert "北京" in stems_of("我要去北京")


def test_the_same_stem_is_not_paid_twice() -> None:
    again = "I live in Trondheim, my passport number is K7741902."
    other = "Our dog Bruno has an allergy to chicken."
    best = chosen([*CHATTER, FACT, again, other], room=40)
    assert other in best
    assert min(best.index(each) for each in (FACT, again) if each in best) < 2


def test_questions_and_small_talk_carry_little() -> None:
    said, asked = "The gearbox is a Rohloff.", "Is the gearbox a Rohloff?"
    assert chosen([asked, said, *CHATTER], room=10)[0] == said
    assert chosen(["Thanks for the gearbox, Rohloff!", said, *CHATTER], room=10)[0] == said


def test_a_factor_multiplies_what_a_sentence_is_worth() -> None:
    way, end = "Twelve crates of quinces fill the barn.", "Seven casks of perry fill the mill."
    assert Information([end, way]).worths[1] == Information([end, way]).worths[0]
    assert Information([end, way], [1.0, 2.0]).worths[1] == 2 * Information([end, way]).worths[1]


def test_room_and_least_bound_what_is_chosen() -> None:
    sentences = [FACT, *CHATTER]
    information = Information(sentences)
    costs = [len(sentence) // 4 + 1 for sentence in sentences]
    best = information.best(costs.__getitem__, 25)
    assert 0 < sum(costs[index] for index in best) <= 25
    assert information.best(costs.__getitem__, 25, least=1_000.0) == []
    assert information.best(costs.__getitem__, 0) == []


def test_what_only_a_tool_said_hardly_counts() -> None:
    said = "The lantern of Bergen is 500 crowns."
    known = stems_of("Where is the lantern of Bergen?")
    whole, part = (Information([said], (), [counted]).worths[0] for counted in (None, known))
    assert 0 < Information([said], (), [frozenset()]).worths[0] < part < whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The budget is $500.", "Actually, the budget is $600."),
        ("The API port is 80", "The API port is 8080."),
        ("The party is on May 3.", "The party is on June 14."),
        ("The meeting is at 5 pm.", "The meeting is at 17:30."),
        ("The call is on Monday.", "The call is on Tuesday."),
        ("Use Python 3.11.", "Use Python 3.12."),
        ('The project is called "Heron".', 'The project is called "Egret".'),
        ("Deploy to /srv/a.", "Deploy to /srv/b."),
        ("Das Treffen ist um 10 Uhr.", "Das Treffen ist um 11 Uhr."),
        ("预算是500元。", "预算是600元。"),
    ],
)
def test_the_same_frame_with_another_value_is_newer(old: str, new: str) -> None:
    assert newest_of_frames([old, "Thanks.", new]) == {2}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The API port is 80", "The DB port is 90"),
        ("The budget is $500.", "The budget is $500."),
        ("Is the budget $500?", "Is the budget $600?"),
        ("The budget is $500.", "The budget was never $600."),
    ],
)
def test_another_subject_or_another_frame_is_not_newer(first: str, second: str) -> None:
    assert newest_of_frames([first, second]) == frozenset()


_WORTHS = """
from palimpsest.core.notes.facts import Information
words = [f"{name}{number}" for name in ("harbour", "lantern", "orchard", "quarry") for number in range(12)]
print(Information([" ".join(words[at : at + 9]) for at in range(len(words))]).worths)
"""


def test_worths_are_the_same_in_every_process() -> None:
    """The order of a set of texts is another one in each; sums of their weights are not to be."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _WORTHS],
            env={**os.environ, "PYTHONPATH": str(ROOT / "app"), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(found) == 1
