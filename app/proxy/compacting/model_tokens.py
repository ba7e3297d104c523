"""How the prompts of each model are counted: its encoding, its tool schemas, its framing.

Knows nothing of conversations. Counters are made once a model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from app.core.wire.chat_request import ChatRequest
from app.tokenizer.counting import Counter, Tokenizer
from app.tokenizer.encodings import EncodingName

# Model names come from callers, so what is kept of them is bounded.
REMEMBERED_MODELS = 500
REMEMBERED_TOOLS = 1_000
# Every prompt is closed by the beginning of the answer: three tokens in OpenAI's framing.
PRIMING_TOKENS = 3


class ModelTokens:
    """One per application."""

    def __init__(self, tokenizer: Tokenizer, override: Callable[[str], EncodingName | None]) -> None:
        self._tokenizer = tokenizer
        self._override = override
        self._counters: OrderedDict[str, Counter] = OrderedDict()
        self._tools: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def counter_of(self, model: str) -> Counter:
        """The model's counter."""
        counter = self._counters.get(model)
        if counter is None:
            counter = self._tokenizer.counter_for(model, self._override(model))
            self._counters[model] = counter
            if len(self._counters) > REMEMBERED_MODELS:
                self._counters.popitem(last=False)
        return counter

    def fixed_tokens(self, request: ChatRequest) -> int:
        """What every view of the request carries besides messages: tool schemas, the answer's beginning."""
        return (
            PRIMING_TOKENS
            + self._schemas(request.model, request.tools)
            + self._schemas(request.model, request.response_format)
        )

    def forget_tools(self) -> None:
        """No tool schema is remembered: callers wrote them, and nobody knows in which session."""
        self._tools.clear()

    def _schemas(self, model: str, raw: bytes | None) -> int:
        if raw is None:
            return 0
        key = (model, raw)
        tokens = self._tools.get(key)
        if tokens is None:
            tokens = self._tools[key] = self.counter_of(model).count_tools(raw)
            if len(self._tools) > REMEMBERED_TOOLS:
                self._tools.popitem(last=False)
        return tokens
