"""Tokens guessed from characters, for policies that would rather guess than count (B04).

Knows no encoding. Both round up: a text of one character is a token, never none, and a guess that
is high by less than a token starts a compaction early instead of late. "" is 0.
"""

from __future__ import annotations


def chars3(text: str) -> int:
    """A token for every three characters (code points), rounded up: 7 characters are 3 tokens."""
    return -(-len(text) // 3)


def chars4(text: str) -> int:
    """A token for every four characters (code points), rounded up: 9 characters are 3 tokens."""
    return -(-len(text) // 4)
