"""Token counters by model, for the rest of the program.

Counting blocks the calling thread: about 0.15 us per character of English, 0.6 us of CJK. Long texts are
counted in another thread, where tiktoken releases the interpreter lock (`palimpsest.proxy.sessions.reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.tokenizer.images import price_for
from palimpsest.tokenizer.message import MessageCounter, count_tools
from palimpsest.tokenizer.text import (
    EncodingName,
    TextCounter,
    encoding_name_for,
    encoding_of,
    is_openai_model,
)


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts texts, messages and tools for one model. Thread-safe."""

    encoding: EncodingName
    count_text: Callable[[str], int]
    count_message: Callable[[Mapping[str, Any]], int]
    count_tools: Callable[[bytes], int]


class Tokenizer:
    """Makes counters. Call `load` at start, in the background, so that no request has to wait for it."""

    def __init__(self, override: EncodingName | None = None) -> None:
        self._override = override
        self._texts: dict[EncodingName, TextCounter] = {}

    def load(self) -> None:
        """Load the encoding of nearly all models (0.3 s); the other one is loaded when a model needs it."""
        encoding_of(self._override or "o200k_base")

    def counter_for(self, model: str, override: EncodingName | None = None) -> Counter:
        """The counter of `model`. The encoding is `override`, else the tokenizer's own, else the model's."""
        name = encoding_name_for(model, override or self._override)
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = TextCounter(encoding_of(name))
        messages = MessageCounter(text.count, price_for(model))
        as_typescript = is_openai_model(model)
        return Counter(
            encoding=name,
            count_text=text.count,
            count_message=messages.count,
            count_tools=lambda raw: count_tools(raw, text.count, as_typescript=as_typescript),
        )

    def forget(self) -> None:
        """Forget the texts counted last (P6)."""
        for text in self._texts.values():
            text.forget()
