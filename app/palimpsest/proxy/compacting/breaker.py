"""Guards against summary requests: repeated failures (F05), and a loop of folds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.record import is_same_fold
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.turn import Turn

# This many folds within this many turns are a loop: each frees too little for one more turn.
LOOP_FOLDS = 3
LOOP_TURNS = 3
# Bounds on what is remembered: callers create sessions, namespaces and model names.
REMEMBERED_SESSIONS = 10_000
REMEMBERED_ROWS = 10_000


# Long enough for an outage to pass, short enough to recover soon after it.
BREAKER_SECONDS = 300
Cause = Literal["server", "conversation", "key"]


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
        # By model and scope (see `_concerned`).
        self._rows: OrderedDict[tuple[str, tuple[str, ...]], _Row] = OrderedDict()

    def is_open(self, model: str, namespace: str, key: str = "") -> bool:
        """True while the model should not be asked on behalf of the namespace with this key."""
        rows = (self._rows.get((model, whose)) for whose in _concerned(namespace, key))
        return any(row is not None and self._clock() < row.open_until for row in rows)

    def failed(self, model: str, namespace: str, key: str = "", *, cause: Cause) -> None:
        """Count one more failure. `cause` "server": neither key nor conversation can have caused it."""
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
        """Reset the counts of the key, the namespace and all callers."""
        for whose in _concerned(namespace, key):
            self._rows.pop((model, whose), None)

    def _after(self, before: _Row, namespace: str, *, least: int) -> _Row:
        failures, whose = before.failures + 1, before.whose | {namespace}
        if failures >= self._limit and len(whose) >= least:
            return _Row(open_until=self._clock() + self._seconds)
        # Two namespaces are enough to know that it is not one caller's fault.
        return _Row(failures, whose if len(whose) <= least else before.whose, before.open_until)


def _concerned(namespace: str, key: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The scopes that failures count for: all callers, the namespace, the key in it."""
    return (), (namespace,), (namespace, key)


class LoopBreaker:
    """Opens for a session that was folded in three consecutive turns, closes after `seconds`.

    The caller numbers the turns, ascending along a path. A turn counts once, however often it is folded.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sessions: OrderedDict[Hashable, _Folds] = OrderedDict()

    def is_open(self, session: Hashable) -> bool:
        """True while no summary should be requested for the session."""
        folds = self._sessions.get(session)
        return folds is not None and self._clock() < folds.open_until

    def folded(self, session: Hashable, turn: int) -> None:
        """The session was folded in this turn."""
        before = self._sessions.pop(session, _Folds())
        # A lower turn is on another branch: the folds before do not count there.
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


@dataclass(frozen=True, slots=True)
class SummaryGuard:
    """The guards together: failures by model, loops by session."""

    failures: Breaker
    loops: LoopBreaker

    def reason(self, context: CompactionContext, model: str, key: str) -> str:
        """A stable word for why `model` should not be asked about this conversation; "" if it may be."""
        if context.is_ordered:
            # A manual compaction may follow a repair of the model: it is always tried (F05).
            return ""
        if self.failures.is_open(model, context.turn.namespace, key):
            return "breaker_open"
        return "looping" if self.is_looping(context) else ""

    def is_looping(self, context: CompactionContext) -> bool:
        """True for a while after the session was folded in three consecutive turns (F04)."""
        return self.loops.is_open(_session(context))

    def compacted(self, context: CompactionContext, compaction: Compaction) -> None:
        """Count a stored fold towards a loop, unless it is manual or a new text for the same fold."""
        is_fold = compaction.kind == "message_removal" and not is_same_fold(context.current, compaction)
        if isinstance(context.turn, Turn) and is_fold:
            answers = sum(message.role == "assistant" for message in context.conversation.messages)
            self.loops.folded(_session(context), answers)


def _session(context: CompactionContext) -> tuple[str, str]:
    return context.turn.namespace, context.turn.session
