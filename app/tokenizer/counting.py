"""The counter of a model: what the rest of the program asks for tokens.

Knows nothing of requests, caches or the loop's other work. Counting holds the thread that asks: about
0.15 us a character of English, 0.6 us of CJK. Whoever has much to count does it in another thread, where
tiktoken lets the loop run (`app.proxy.sessions.reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.tokenizer.encodings import EncodingName, Encodings, encoding_name_for, is_openai_model
from app.tokenizer.images import price_for
from app.tokenizer.message import MessageCounter
from app.tokenizer.text import TextCounter
from app.tokenizer.tools import count_tools


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts texts, messages and tools for one model. Safe from several threads."""

    encoding: EncodingName
    count_text: Callable[[str], int]
    count_message: Callable[[Mapping[str, Any]], int]
    count_tools: Callable[[bytes], int]


class Tokenizer:
    """Hands out counters. `load` at start, so that no request pays for it."""

    def __init__(self, override: EncodingName | None = None) -> None:
        self._override = override
        self._encodings = Encodings()

    def load(self) -> None:
        """Load the encoding nearly every model uses (0.5 s); the other is loaded when a model needs it."""
        self._encodings.get(self._override or "o200k_base")

    def counter_for(self, model: str, override: EncodingName | None = None) -> Counter:
        """The counter of `model`; `override` wins over the tokenizer's own, which wins over the name."""
        name = encoding_name_for(model, override or self._override)
        text = TextCounter(self._encodings.get(name))
        messages = MessageCounter(text.count, price_for(model))
        as_typescript = is_openai_model(model)
        return Counter(
            encoding=name,
            count_text=text.count,
            count_message=messages.count,
            count_tools=lambda raw: count_tools(raw, text.count, as_typescript=as_typescript),
        )
