"""How fast conversations grow, and how long summaries take: when to ask for one ahead. Kept in memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

from palimpsest.proxy.turn import Subject

T = TypeVar("T")
# Callers choose sessions and model names, so that what is remembered is bounded.
_REMEMBERED = 10_000
# Turns by which a conversation's growth is measured.
_TURNS = 8
# A summary is asked for when the conversation is so many times as far from its trigger as it grows meanwhile.
_MARGIN = 1.5
# Share of the longest known time that stays when an answer took less: they vary.
_MEMORY = 0.8


class Paces:
    """The growth of conversations and the seconds of summaries, as measured here; `clock` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # By session: when it was seen, with how many tokens.
        self._seen: OrderedDict[tuple[str, str], deque[tuple[float, int]]] = OrderedDict()
        # By namespace and model.
        self._took: OrderedDict[tuple[str, str], float] = OrderedDict()

    def summary_took(self, turn: Subject, seconds: float) -> None:
        """A model has answered a question about this conversation."""
        key = turn.namespace, turn.model
        self._took[key] = max(seconds, _MEMORY * self._took.pop(key, 0.0))
        _bound(self._took)

    def lead(self, turn: Subject) -> int:
        """Tokens below the trigger at which a summary is asked for, so that it arrives in time; 0: unknown.

        At least the largest of the conversation's latest steps: none may jump over both marks.
        """
        key, now = (turn.namespace, turn.session), self._clock()
        seen = self._seen.pop(key, None) or deque(maxlen=_TURNS)
        self._seen[key] = seen
        _bound(self._seen)
        if seen and turn.tokens < seen[-1][1]:
            # Edited, or another branch.
            seen.clear()
        if not seen or turn.tokens > seen[-1][1]:
            seen.append((now, turn.tokens))
        seconds = self._took.get((turn.namespace, turn.model))
        if seconds is None or len(seen) < 2:
            return 0
        steps = [after[1] - before[1] for before, after in zip(list(seen), list(seen)[1:], strict=False)]
        grown, during = seen[-1][1] - seen[0][1], max(1e-3, now - seen[0][0])
        return max(*steps, round(_MARGIN * seconds * grown / during))


def _bound(kept: OrderedDict[tuple[str, str], T]) -> None:
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)
