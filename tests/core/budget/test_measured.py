"""How far ahead of its trigger a conversation's summary is asked for, by the speed of both."""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.core.budget.measured import Paces


@dataclass(frozen=True)
class Turn:
    """What is measured of a turn."""

    tokens: int = 0
    model: str = "m"
    namespace: str = "n"
    session: str = "s"


class Clock:
    """Shows the seconds that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def grown(paces: Paces, clock: Clock, *, step: int, seconds: float, turns: int = 8) -> int:
    for turn in range(turns):
        clock.seconds = turn * seconds
        lead = paces.lead(Turn(step * (turn + 1)))
    return lead


def test_nothing_is_known_before_a_summary_and_a_second_turn() -> None:
    clock = Clock()
    assert grown(Paces(clock), clock, step=500, seconds=2) == 0
    paces = Paces(clock)
    paces.summary_took(Turn(), 3)
    assert grown(paces, clock, step=500, seconds=2, turns=1) == 0


def test_a_slow_summary_is_asked_for_earlier_and_a_quick_one_a_turn_ahead() -> None:
    clock = Clock()
    slow, quick = Paces(clock), Paces(clock)
    slow.summary_took(Turn(), 24)
    quick.summary_took(Turn(), 0.5)
    # 250 tokens a second, for half as long again as the summary takes.
    assert grown(slow, clock, step=500, seconds=2) == 24 * 250 * 1.5
    assert grown(quick, clock, step=500, seconds=2) == 500


def test_another_model_and_an_edited_conversation_are_measured_anew() -> None:
    clock = Clock()
    paces = Paces(clock)
    paces.summary_took(Turn(), 24)
    assert paces.lead(Turn(9_000, "other")) == 0
    grown(paces, clock, step=500, seconds=2)
    assert paces.lead(Turn(100)) == 0
