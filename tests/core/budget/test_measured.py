"""How far ahead of its trigger a conversation's summary is asked for, by the speed of both."""

from __future__ import annotations

from palimpsest.core.budget.measured import Paces


class Clock:
    """Shows the seconds that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def grown(paces: Paces, clock: Clock, *, step: int, seconds: float, turns: int = 8) -> int:
    for turn in range(turns):
        clock.seconds = turn * seconds
        lead = paces.lead("n", "s", "m", step * (turn + 1))
    return lead


def test_nothing_is_known_before_a_summary_and_a_second_turn() -> None:
    clock = Clock()
    assert grown(Paces(clock), clock, step=500, seconds=2) == 0
    paces = Paces(clock)
    paces.summary_took("n", "m", 3)
    assert grown(paces, clock, step=500, seconds=2, turns=1) == 0


def test_a_slow_summary_is_asked_for_earlier_and_a_quick_one_a_turn_ahead() -> None:
    clock = Clock()
    slow, quick = Paces(clock), Paces(clock)
    slow.summary_took("n", "m", 24)
    quick.summary_took("n", "m", 0.5)
    # 250 tokens a second, for half as long again as the summary takes.
    assert grown(slow, clock, step=500, seconds=2) == 24 * 250 * 1.5
    assert grown(quick, clock, step=500, seconds=2) == 500


def test_another_model_and_an_edited_conversation_are_measured_anew() -> None:
    clock = Clock()
    paces = Paces(clock)
    paces.summary_took("n", "m", 24)
    assert paces.lead("n", "s", "other", 9_000) == 0
    grown(paces, clock, step=500, seconds=2)
    assert paces.lead("n", "s", "m", 100) == 0
