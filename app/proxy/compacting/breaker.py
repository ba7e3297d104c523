"""Breakers: after several failures in a row nobody is asked for a while (F05), nor for a session that is
folded again and again (F04).

Know nothing of what fails. "Nothing to do" is not a failure and is not reported here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

# So many folds within so many turns are a loop: each of them frees too little for one more turn.
LOOP_FOLDS = 3
LOOP_TURNS = 3
# Sessions come and go, so what is remembered of them is bounded.
REMEMBERED_SESSIONS = 10_000


class Breaker:
    """Opens after `failures` in a row, closes by itself after `seconds`; one success resets it."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._open_until = float("-inf")

    @property
    def is_open(self) -> bool:
        """True while nobody should be asked."""
        return self._clock() < self._open_until

    def failed(self) -> None:
        """One more failure in a row."""
        self._failures += 1
        if self._failures >= self._limit:
            self._open_until = self._clock() + self._seconds
            self._failures = 0

    def succeeded(self) -> None:
        """The row is broken."""
        self._failures = 0
        self._open_until = float("-inf")


class LoopBreaker:
    """Opens for a session that was folded in three turns out of three, closes by itself after `seconds`.

    Turns are counted by the caller, ascending along a path; a turn counts once, however often it is folded.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sessions: OrderedDict[Hashable, _Folds] = OrderedDict()

    def is_open(self, session: Hashable) -> bool:
        """True while nobody should be asked for the session."""
        folds = self._sessions.get(session)
        return folds is not None and self._clock() < folds.open_until

    def folded(self, session: Hashable, turn: int) -> None:
        """The session was folded in this turn."""
        before = self._sessions.pop(session, _Folds())
        # A lower turn is another path: what happened on the first one says nothing of it.
        turns = [earlier for earlier in before.turns if turn - LOOP_TURNS < earlier < turn]
        if before.turns and turn < before.turns[-1]:
            turns = []
        turns.append(turn)
        is_loop = len(turns) >= LOOP_FOLDS
        until = self._clock() + self._seconds if is_loop else before.open_until
        self._sessions[session] = _Folds(() if is_loop else tuple(turns), until)
        if len(self._sessions) > REMEMBERED_SESSIONS:
            self._sessions.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Folds:
    turns: tuple[int, ...] = ()
    open_until: float = float("-inf")
