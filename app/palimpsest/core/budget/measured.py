"""What is measured of conversations and models: growth, seconds of summaries, reasoning. Kept in memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from palimpsest.core.wire.chat_answers import Usage

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

    def summary_took(self, namespace: str, model: str, seconds: float) -> None:
        """A summary has been written."""
        key = namespace, model
        self._took[key] = max(seconds, _MEMORY * self._took.pop(key, 0.0))
        _bound(self._took)

    def lead(self, namespace: str, session: str, model: str, tokens: int) -> int:
        """Tokens below the trigger at which a summary is asked for, so that it arrives in time; 0: unknown.

        `tokens`: those of the whole prompt. At least the largest of the latest steps: none may jump over both
        marks.
        """
        key, now = (namespace, session), self._clock()
        seen = self._seen.pop(key, None) or deque(maxlen=_TURNS)
        self._seen[key] = seen
        _bound(self._seen)
        if seen and tokens < seen[-1][1]:
            # Edited, or another branch.
            seen.clear()
        if not seen or tokens > seen[-1][1]:
            seen.append((now, tokens))
        seconds = self._took.get((namespace, model))
        if seconds is None or len(seen) < 2:
            return 0
        steps = [after[1] - before[1] for before, after in zip(list(seen), list(seen)[1:], strict=False)]
        grown, during = seen[-1][1] - seen[0][1], max(1e-3, now - seen[0][0])
        return max(*steps, round(_MARGIN * seconds * grown / during))


def _bound(kept: OrderedDict[tuple[str, str], Any]) -> None:
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)


# Most reasoning tokens before an answer, where the window has room for them.
THOUGHT_TOKENS = 8_192
# A model that spent its whole answer on reasoning gets this many times as much.
_MORE = 2
# Share of the known value that stays when an answer took less: reasoning varies between answers.
_KEPT = 0.75


class ReasoningTokens:
    """The reasoning tokens to expect, by namespace and model."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], int] = OrderedDict()

    def of(self, namespace: str, model: str) -> int:
        """Tokens to reserve for reasoning; 0 for a model that is not known to reason."""
        return self._known.get((namespace, model), 0)

    def answered(self, namespace: str, model: str, usage: Usage) -> None:
        """Learn from an answer's usage; one without `reasoning_tokens` is ignored."""
        if usage.reasoning_tokens is None:
            return
        thought = max(usage.reasoning_tokens, int(_KEPT * self.of(namespace, model)))
        self._remember((namespace, model), thought)

    def used_up(self, namespace: str, model: str, tokens: int) -> None:
        """Learn that an answer reached its limit of `tokens` without any text."""
        self._remember((namespace, model), max(self.of(namespace, model), _MORE * tokens))

    def _remember(self, key: tuple[str, str], tokens: int) -> None:
        self._known.pop(key, None)
        if not tokens:
            return
        self._known[key] = min(THOUGHT_TOKENS, tokens)
        _bound(self._known)
