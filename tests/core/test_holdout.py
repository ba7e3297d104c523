"""Sessions are held out by chance, and figures of two arms are told apart only where they differ."""

from __future__ import annotations

import random
import uuid

import pytest
from palimpsest.core.holdout import LEAST_SESSIONS, Estimate, arm_of, difference_of, ratio_of

SESSIONS = [str(uuid.UUID(int=number)) for number in range(4_000)]


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_about_the_share_is_held_out_and_a_larger_share_only_adds(share: float) -> None:
    held = {session for session in SESSIONS if arm_of(session, share) == "holdout"}
    deviation = (len(SESSIONS) * share * (1 - share)) ** 0.5
    assert len(held) == pytest.approx(share * len(SESSIONS), abs=5 * deviation)
    assert held <= {session for session in SESSIONS if arm_of(session, share + 0.1) == "holdout"}
    assert {arm_of(session, 0.0) for session in SESSIONS} == {None}


def test_a_ratio_is_sum_by_sum_and_its_error_counts_sessions() -> None:
    assert ratio_of([]) is None
    assert ratio_of([(1.0, 0.0)] * 20) is None
    few = ratio_of([(2.0, 4.0)] * (LEAST_SESSIONS - 1))
    assert few == Estimate(0.5, None)
    assert few.interval is None
    assert ratio_of([(2.0, 4.0)] * LEAST_SESSIONS) == Estimate(0.5, 0.0)
    # Sessions in which nothing was counted make no interval.
    assert ratio_of([*[(2.0, 4.0)] * (LEAST_SESSIONS - 1), *[(0.0, 0.0)] * 20]) == few
    # Ten times the turns in the same sessions say nothing more about the spread between them.
    once = ratio_of([(1.0, 1.0), (3.0, 1.0)] * 20)
    often = ratio_of([(10.0, 10.0), (30.0, 10.0)] * 20)
    assert once is not None
    assert once == often
    assert once.error == pytest.approx((40 / 39) ** 0.5 / 40**0.5)


@pytest.mark.parametrize("count", [LEAST_SESSIONS, 60])
def test_intervals_hold_the_truth_as_often_as_they_say(count: int) -> None:
    """Sessions of a few to many turns, whose costs resemble each other within a session."""
    chance, held, trials = random.Random(7), 0, 400
    for _ in range(trials):
        arms = []
        for _ in range(2):
            sessions = []
            for _ in range(count):
                turns, level = chance.randint(1, 40), chance.gauss(1.0, 0.4)
                sessions.append((sum(chance.gauss(level, 0.2) for _ in range(turns)), float(turns)))
            arms.append(ratio_of(sessions))
        found = difference_of(*arms)
        assert found is not None
        assert found.interval is not None
        low, high = found.interval
        held += low <= 0.0 <= high
    # 95 % within four standard deviations of so many trials.
    assert held / trials == pytest.approx(0.95, abs=0.045)


def test_a_difference_needs_both_sides() -> None:
    known = Estimate(3.0, 4.0)
    assert difference_of(known, None) is None
    assert difference_of(None, known) is None
    assert difference_of(known, Estimate(1.0, None)) == Estimate(2.0, None)
    assert difference_of(known, Estimate(1.0, 3.0)) == Estimate(2.0, 5.0)
