"""Texts for conversations: plain prose, never the same twice, reproducible from a number."""

from __future__ import annotations

from random import Random

_TEXT = (
    "harbour lantern orchard meadow copper window river market engine garden letter winter bridge "
    "captain silver morning ladder paper forest mirror kitchen village thunder pocket island candle "
    "brother engine station carpet whistle feather anchor barrel chimney dragon easel ferry glacier "
    "carries follows paints measures repairs questions answers borrows hides remembers builds opens "
    "slowly quietly twice again tomorrow yesterday nearly often behind under between without across"
)
_WORDS = _TEXT.split()


def prose(seed: int, words: int) -> str:
    """So many words in sentences of a dozen."""
    random = Random(seed)
    chosen = [random.choice(_WORDS) for _ in range(words)]
    sentences = [" ".join(chosen[start : start + 12]) for start in range(0, words, 12)]
    return ". ".join(sentence.capitalize() for sentence in sentences) + "."
