"""What stands where something of a tool result was left out, and the plain cut around it.

Knows nothing of JSON nor of messages. The first marker says how the rest is read where its reader can (E10).
"""

from __future__ import annotations

# How much of what stays is taken from the start (A20).
_HEAD_SHARE = 0.7


def cut(text: str, limit_chars: int, reference: str) -> str:
    """The text's head, a marker, its tail, together at most `limit_chars` characters.

    Below the marker's own length the marker stands alone, even for a shorter text: in tokens it may
    still be the smaller one (a Chinese character takes as many as four English ones).
    """
    if len(text) <= limit_chars:
        return text
    head, tail = ends(max(0, limit_chars - marker_room(text, reference)))
    left_out = len(text) - head - tail
    return text[:head] + marker(left_out, len(text), reference) + text[len(text) - tail :]


def ends(limit: int) -> tuple[int, int]:
    """How much of `limit` is head and how much tail."""
    head = int(limit * _HEAD_SHARE)
    return head, limit - head


def marker_room(text: str, reference: str) -> int:
    """Characters that a marker in this text takes at most."""
    return len(marker(len(text), len(text), reference))


def marker(left_out: int, whole: int, reference: str) -> str:
    """Says how many characters are missing and, unless `reference` is empty, where they are."""
    return f"\n[... {left_out:,} of {whole:,} characters left out{_where(reference)} ...]\n"


def note(kept: int, whole: int, reference: str) -> str:
    """Says "n of m items" and, unless `reference` is empty, where the rest is."""
    return f"[... {kept:,} of {whole:,} items shown{_where(reference)} ...]"


def _where(reference: str) -> str:
    # Once only: 32 hex digits cost some 20 tokens in every marker.
    return f"; the whole result: {reference}" if reference else ""
