"""Stored messages for the tests of this folder, with places and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palimpsest.core.runtime.evidence import ArchivedMessage
from palimpsest.core.view.compaction import Compaction, Mask

from tests.core.histories import assistant, conversation, user

# 2026-01-01T00:00:00Z, in seconds.
NEW_YEAR = 1_767_225_600.0


def entries(fields: Sequence[dict[str, Any]]) -> list[ArchivedMessage]:
    """One message a second, places from 1 on."""
    talk = conversation(fields)
    return [
        ArchivedMessage(chain, message, seq, NEW_YEAR + seq)
        for seq, (chain, message) in enumerate(zip(talk.chains, talk.messages, strict=True), 1)
    ]


def exchanges(count: int, first: int = 0) -> list[dict[str, Any]]:
    """So many questions and answers."""
    numbers = range(first, first + count)
    return [each for n in numbers for each in (user(f"question {n}?"), assistant(f"answer {n} is {n * 7}."))]


def compaction(**changes: Any) -> Compaction:
    """A fold of 40 messages by a model."""
    values: dict[str, Any] = {
        "id": "cmp_1",
        "kind": "message_removal",
        "watermark": b"\x02" * 32,
        "kept": (),
        "masks": (),
        "summary": "## 1. Primary request and intent\nShip it.",
        "policy": "auto",
        "trigger": "proactive",
        "author": "model",
        "model": "m-1",
        "tokens_before": 820_000,
        "tokens_after": 400_000,
        "messages_folded": 40,
        "reason": "820000 / 1000000 at 0.8",
    }
    return Compaction(**values | changes)


MASK = Mask(b"\x03" * 32, 600)
