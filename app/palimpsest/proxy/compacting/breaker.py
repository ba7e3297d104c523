"""Guards against summary requests: repeated failures (F05), and a loop of folds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple

from palimpsest.storage.database import Recent

# This many folds within this many turns are a loop: each frees too little for one more turn.
LOOP_FOLDS = 3
LOOP_TURNS = 3
# Bounds on what is remembered: callers create sessions, namespaces and model names.
REMEMBERED_SESSIONS = 10_000
REMEMBERED_ROWS = 10_000
# Long enough for an outage to pass, short enough to recover soon after it.
BREAKER_SECONDS = 300
Cause = Literal["server", "conversation", "key"]
_LONG_AGO = float("-inf")


class _Row(NamedTuple):
    failures: int = 0
    namespaces: frozenset[str] = frozenset()
    open_until: float = _LONG_AGO


class Breaker:
    """Opens after `failures` in a row, closes after `seconds`; one success resets it.

    Failures count for a model in a namespace; the model's name determines its upstream. Failures of a key
    (refused, out of quota) count for that key alone, and those that a conversation may have caused for its
    namespace. The breaker opens for all callers only when failures of the server (down, slow, broken) have
    met two namespaces, so that no caller can stop another's summaries.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        # By model and scope (see `_scopes`).
        self._rows: Recent[tuple[str, tuple[str, ...]], _Row] = Recent(REMEMBERED_ROWS)

    def is_open(self, model: str, namespace: str, key: str = "") -> bool:
        """True while the model should not be asked on behalf of the namespace with this key."""
        rows = (self._rows.get((model, scope)) for scope in _scopes(namespace, key))
        return any(row is not None and self._clock() < row.open_until for row in rows)

    def failed(self, model: str, namespace: str, key: str = "", *, cause: Cause) -> None:
        """Count one more failure. `cause` "server": neither key nor conversation can have caused it."""
        for_all, for_namespace, for_key = _scopes(namespace, key)
        counted = {
            "server": (for_namespace, for_all),
            "conversation": (for_namespace,),
            "key": (for_key,),
        }
        for scope in counted[cause]:
            failures, namespaces, open_until = self._rows.pop((model, scope), _Row())
            # Two namespaces are enough to know that it is not one caller's fault.
            least = 1 if scope else 2
            if len(namespaces) < least:
                namespaces |= {namespace}
            row = _Row(failures + 1, namespaces, open_until)
            if row.failures >= self._limit and len(namespaces) >= least:
                row = _Row(open_until=self._clock() + self._seconds)
            self._rows[model, scope] = row

    def succeeded(self, model: str, namespace: str, key: str = "") -> None:
        """Reset the counts of the key, the namespace and all callers."""
        for scope in _scopes(namespace, key):
            self._rows.pop((model, scope), None)


def _scopes(namespace: str, key: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The scopes that failures count for: all callers, the namespace, the key in it."""
    return (), (namespace,), (namespace, key)


class LoopBreaker:
    """Opens for a session that was folded in three consecutive turns, closes after `seconds`.

    The caller numbers the turns, ascending along a path. A turn counts once, however often it is folded.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        # By session: the turns of its newest folds, and until when it is open.
        self._sessions: Recent[Hashable, tuple[tuple[int, ...], float]] = Recent(REMEMBERED_SESSIONS)

    def is_open(self, session: Hashable) -> bool:
        """True while no summary should be requested for the session."""
        return self._clock() < self._sessions.get(session, ((), _LONG_AGO))[1]

    def folded(self, session: Hashable, turn: int) -> None:
        """The session was folded in this turn."""
        turns, until = self._sessions.pop(session, ((), _LONG_AGO))
        if turns and turn < turns[-1]:
            # A lower turn is on another branch: the folds before do not count there.
            turns = ()
        turns = (*(earlier for earlier in turns if turn - LOOP_TURNS < earlier < turn), turn)
        if len(turns) >= LOOP_FOLDS:
            turns, until = (), self._clock() + self._seconds
        self._sessions[session] = turns, until
