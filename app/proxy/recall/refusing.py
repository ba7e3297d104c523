"""Models whose upstream will not have our tools: they are not offered again (rule 31).

In memory: after a restart each is tried once more.
"""

from __future__ import annotations

from collections import OrderedDict

# Models are the caller's to name, so that what is remembered of them is bounded.
_MODELS = 1_000


class Refusing:
    """One for the application."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, None] = OrderedDict()

    def remember(self, model: str) -> None:
        """The model was refused with our tools and accepted without."""
        self._models[model] = None
        self._models.move_to_end(model)
        if len(self._models) > _MODELS:
            self._models.popitem(last=False)

    def __contains__(self, model: str) -> bool:
        return model in self._models
