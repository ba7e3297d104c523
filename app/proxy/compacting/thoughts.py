"""How much models think before they answer, so that a question for a summary leaves room for it.

Learned for each model and namespace from what answers took; held in memory. Knows nothing of what is asked.
"""

from __future__ import annotations

from collections import OrderedDict

from app.core.wire.answered import Usage

# Models are the caller's to name, so what is remembered is bounded.
REMEMBERED_MODELS = 10_000
# What a model may think before it answers, tokens, where the window has room for it.
THOUGHT_TOKENS = 8_192
# A model that used up its whole answer for thoughts is given so many times as much.
_MORE = 2
# Of what was known, so much stays when an answer took less: thoughts differ from one answer to the next.
_MEMORY = 0.75


class Thoughts:
    """One for the application."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], int] = OrderedDict()

    def of(self, namespace: str, model: str) -> int:
        """Tokens to leave for thoughts; 0 for a model that is not known to think."""
        return self._known.get((namespace, model), 0)

    def answered(self, namespace: str, model: str, usage: Usage) -> None:
        """An answer took so much; one that says nothing of thoughts tells nothing."""
        if usage.reasoning_tokens is None:
            return
        thought = max(usage.reasoning_tokens, int(_MEMORY * self.of(namespace, model)))
        self._remember((namespace, model), thought)

    def used_up(self, namespace: str, model: str, tokens: int) -> None:
        """An answer ended at its bound of `tokens` before it said anything."""
        self._remember((namespace, model), max(self.of(namespace, model), _MORE * tokens))

    def _remember(self, key: tuple[str, str], tokens: int) -> None:
        self._known.pop(key, None)
        if not tokens:
            return
        self._known[key] = min(THOUGHT_TOKENS, tokens)
        if len(self._known) > REMEMBERED_MODELS:
            self._known.popitem(last=False)
