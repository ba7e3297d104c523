"""Comparing two policies: a share of sessions keeps an older one, chosen by chance. Pure.

A session's arm follows from its id alone, so it never changes while the share stays, and a larger share only
adds sessions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Arm = Literal["policy", "holdout"]
ARMS: tuple[Arm, Arm] = ("policy", "holdout")
# With fewer sessions in an arm no interval is given: of ten, a "95 %" interval would hold 92 %.
LEAST_SESSIONS = 30
# Standard errors on each side of a 95 % interval.
_NORMAL_95 = 1.96
_DIGEST_BYTES = 8


def arm_of(session: str, share: float) -> Arm | None:
    """The arm of the session with this id; None where no session is held out (share 0)."""
    if not share:
        return None
    digest = hashlib.sha256(session.encode()).digest()[:_DIGEST_BYTES]
    return "holdout" if int.from_bytes(digest, "big") < share * 2 ** (8 * _DIGEST_BYTES) else "policy"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its standard error, None where there are too few sessions."""

    value: float
    error: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval."""
        if self.error is None:
            return None
        return self.value - _NORMAL_95 * self.error, self.value + _NORMAL_95 * self.error


def ratio_of(sessions: Sequence[tuple[float, float]]) -> Estimate | None:
    """Sum by sum of (amount, number) of each session, such as money and turns; None where nothing is counted.

    The error is that of a ratio estimator: turns of one session resemble each other, so that sessions are
    counted and not turns (Cochran, Sampling Techniques, 1977, 6.4). Sessions in which nothing was counted
    say nothing.
    """
    counted = [session for session in sessions if session[1]]
    if not counted:
        return None
    amount, number = (math.fsum(session[at] for session in counted) for at in (0, 1))
    value, count = amount / number, len(counted)
    if count < LEAST_SESSIONS:
        return Estimate(value, None)
    spread = math.fsum((given - value * times) ** 2 for given, times in counted)
    return Estimate(value, math.sqrt(spread * count / (count - 1)) / number)


def difference_of(new: Estimate | None, old: Estimate | None) -> Estimate | None:
    """How much higher `new` is than `old`, which other sessions gave."""
    if new is None or old is None:
        return None
    known = new.error is not None and old.error is not None
    error = math.hypot(new.error or 0.0, old.error or 0.0) if known else None
    return Estimate(new.value - old.value, error)
