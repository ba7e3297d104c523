"""A folded message as the summary's code reads it: text without secrets and data, calls, place.

Knows nothing of what is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.core.history.message import Message
from app.core.text.secrets import without_secrets
from app.core.text.wording import Call, calls_of, worded

# Characters of a call's label.
_LABEL_CHARS = 48


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message as read: its place, its text without secrets and data, and its calls."""

    order: int
    chain: bytes
    role: str
    text: str
    calls: tuple[Call, ...]
    answers: str | None


def spoken_of(order: int, chain: bytes, message: Message) -> Spoken:
    """The message at place `order`, named by `chain`."""
    calls = tuple(replace(c, arguments=without_secrets(c.arguments)) for c in calls_of(message))
    return Spoken(order, chain, message.role, without_secrets(worded(message)), calls, message.answers)


def call_label(call: Call) -> str:
    """A call on one line, short: its name and its first values."""
    values = " ".join(" ".join(value.split()) for value in call.values())
    label = f"{call.name} {values}".strip().replace(": ", " ")
    return label if len(label) <= _LABEL_CHARS else label[:_LABEL_CHARS].rsplit(" ", 1)[0].rstrip(":,;")
