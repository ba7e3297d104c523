"""Breakers: after several failures in a row nobody is asked for a while (F05), nor for a session that is
folded again and again (F04).

Know nothing of what fails. "Nothing to do" is not a failure and is not reported here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

# So many folds within so many turns are a loop: each of them frees too little for one more turn.
LOOP_FOLDS = 3
LOOP_TURNS = 3
# Sessions come and go, so what is remembered of them is bounded.
REMEMBERED_SESSIONS = 10_000
# So do namespaces and the names of models.
REMEMBERED_ROWS = 10_000


Cause = Literal["server", "conversation", "key"]


class Breaker:
    """Opens after `failures` in a row, closes by itself after `seconds`; one success resets it.

    Kept for each model, whose name says which upstream it is asked of, in each namespace. What a key causes
    (refused, out of quota) counts for that key alone; what a conversation may cause for its namespace. A
    model rests for all only when failures of its server (down, slow, broken) have met two namespaces or more:
    nobody can stop another's summaries.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        # By model and whom it concerns.
        self._rows: OrderedDict[tuple[str, tuple[str, ...]], _Row] = OrderedDict()

    def is_open(self, model: str, namespace: str, key: str = "") -> bool:
        """True while the model should not be asked for the namespace with this key."""
        rows = (self._rows.get((model, whose)) for whose in _concerned(namespace, key))
        return any(row is not None and self._clock() < row.open_until for row in rows)

    def failed(self, model: str, namespace: str, key: str = "", *, cause: Cause) -> None:
        """One more failure in a row. `cause` "server": no key and no conversation can have caused it."""
        everybody, everyone_of_it, this_key = _concerned(namespace, key)
        counted = {
            "server": (everyone_of_it, everybody),
            "conversation": (everyone_of_it,),
            "key": (this_key,),
        }
        for whose in counted[cause]:
            before = self._rows.pop((model, whose), _Row())
            self._rows[model, whose] = self._after(before, namespace, least=1 if whose else 2)
            if len(self._rows) > REMEMBERED_ROWS:
                self._rows.popitem(last=False)

    def succeeded(self, model: str, namespace: str, key: str = "") -> None:
        """The row is broken, everybody's as well."""
        for whose in _concerned(namespace, key):
            self._rows.pop((model, whose), None)

    def _after(self, before: _Row, namespace: str, *, least: int) -> _Row:
        failures, whose = before.failures + 1, before.whose | {namespace}
        if failures >= self._limit and len(whose) >= least:
            return _Row(open_until=self._clock() + self._seconds)
        # Two names tell as much as a hundred.
        return _Row(failures, whose if len(whose) <= least else before.whose, before.open_until)


def _concerned(namespace: str, key: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Everybody, the namespace, one key in it."""
    return (), (namespace,), (namespace, key)


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


@dataclass(frozen=True, slots=True)
class _Row:
    failures: int = 0
    whose: frozenset[str] = frozenset()
    open_until: float = float("-inf")
