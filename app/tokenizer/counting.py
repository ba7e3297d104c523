"""The counter of a model: what the rest of the program asks for tokens.

Knows nothing of requests, caches or the loop's other work. Counting holds the thread that asks;
`count_off_loop` is for what would hold the loop too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.tokenizer.encodings import EncodingName, Encodings, encoding_name_for, is_openai_model
from app.tokenizer.images import price_for
from app.tokenizer.message import MessageCounter
from app.tokenizer.text import TextCounter
from app.tokenizer.tools import count_tools

# Counting takes about 0.15 us a character of English and 0.6 us of CJK: 100,000 characters are 15 to
# 60 ms. Below, a thread costs more than it spares the loop.
OFF_LOOP_CHARS = 50_000


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


async def count_off_loop(count: Callable[[str], int], texts: Sequence[str]) -> list[int]:
    """`count` of every text, in order; in a thread when together they are long (50,000 characters).

    tiktoken lets other threads run while it counts: a 3 MB text that held the loop for 278 ms holds
    it for 43 ms this way.
    """
    if sum(map(len, texts)) < OFF_LOOP_CHARS:
        return [count(text) for text in texts]
    return await asyncio.to_thread(lambda: [count(text) for text in texts])
