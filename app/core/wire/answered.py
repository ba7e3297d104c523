"""What an upstream answered, streamed or not: its choices and its own token counts.

Pure values. Knows nothing of how they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AnsweredChoice:
    """One choice. `message_body` is its message as JSON: the upstream's bytes, or joined from deltas.

    `finish_reason` is None while the upstream has given none.
    """

    index: int
    message_body: bytes
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the upstream stated them; None where it said nothing.

    `reasoning_tokens`: what of the completion was thought, and is not in its text.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def usage_of(value: Any) -> Usage:
    """The counts in a `usage` object, whatever else it is or holds."""
    if not isinstance(value, dict):
        return Usage()
    details = value.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached is None:
        # DeepSeek's name for it.
        cached = _count(value.get("prompt_cache_hit_tokens"))
    thought = value.get("completion_tokens_details")
    reasoning = _count(thought.get("reasoning_tokens")) if isinstance(thought, dict) else None
    return Usage(
        _count(value.get("prompt_tokens")), _count(value.get("completion_tokens")), cached, reasoning
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
