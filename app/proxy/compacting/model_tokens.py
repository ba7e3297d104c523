"""How the prompts of each model are counted: its encoding, its tool schemas, its framing.

Knows nothing of conversations. Counters are made once a model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from app.core.wire.chat_request import ChatRequest
from app.core.wire.json_text import decoded
from app.tokenizer.counting import Counter

# Model names come from callers, so what is kept of them is bounded.
REMEMBERED_MODELS = 500
REMEMBERED_TOOLS = 1_000
# Every prompt is closed by the beginning of the answer: three tokens in OpenAI's framing.
PRIMING_TOKENS = 3


class ModelTokens:
    """One per application; `counter_for` makes a model's counter."""

    def __init__(self, counter_for: Callable[[str], Counter]) -> None:
        self._counter_for = counter_for
        self._counters: OrderedDict[str, Counter] = OrderedDict()
        # By the sha256 of what was counted: a schema may be as large as a request.
        self._tools: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def counter_of(self, model: str) -> Counter:
        """The model's counter."""
        counter = self._counters.get(model)
        if counter is None:
            counter = self._counter_for(model)
            self._counters[model] = counter
            if len(self._counters) > REMEMBERED_MODELS:
                self._counters.popitem(last=False)
        return counter

    def knows(self, model: str) -> bool:
        """True where the model's counter is made already; a first one may load an encoding (0.5 s)."""
        return model in self._counters

    def fixed_tokens(self, request: ChatRequest) -> int:
        """What every view of the request carries besides messages: tool schemas, the answer's beginning."""
        return (
            PRIMING_TOKENS
            + self.schema_tokens(request.model, request.tools)
            + self.schema_tokens(request.model, request.response_format)
            + self._instructions(request)
        )

    def _instructions(self, request: ChatRequest) -> int:
        """Instructions that stand outside the messages, as one more message."""
        count = self.counter_of(request.model).count_message
        return self._counted(
            request.model,
            request.instructions,
            lambda raw: count({"role": "system", "content": decoded(raw)}),
        )

    def forget_tools(self) -> None:
        """No tool schema is remembered: callers wrote them, and nobody knows in which session."""
        self._tools.clear()

    def schema_tokens(self, model: str, raw: bytes | None) -> int:
        """What a list of tool schemas adds to the model's prompts; each is counted once."""
        return self._counted(model, raw, self.counter_of(model).count_tools)

    def _counted(self, model: str, raw: bytes | None, count: Callable[[bytes], int]) -> int:
        if raw is None:
            return 0
        key = (model, sha256(raw).digest())
        tokens = self._tools.get(key)
        if tokens is None:
            tokens = self._tools[key] = count(raw)
            if len(self._tools) > REMEMBERED_TOOLS:
                self._tools.popitem(last=False)
        return tokens
