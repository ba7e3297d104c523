"""A complete (not streamed) chat answer: where its messages stand, byte for byte.

Knows nothing of HTTP, sessions or what a client makes of it. Nothing here raises: an upstream may
send anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from app.core.wire.answered import AnsweredChoice, Usage, usage_of
from app.core.wire.json_spans import Span, outline
from app.core.wire.json_text import decoded, verify
from app.errors import InvalidJson


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `choices` are those that carry a message object, in the upstream's order."""

    choices: tuple[AnsweredChoice, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No answer could be read from the body; nothing of it can be recorded as a message.

    `error` means that the upstream put an error in the place of an answer.
    """

    reason: Literal["invalid_json", "not_an_object", "error", "no_choices"]


def parse_answer(body: bytes, deepest: int = 128) -> Answer | Unreadable:
    """What `body` says. Of a repeated key the last one counts."""
    try:
        verify(body)
        shape = outline(body, deepest)
        if not body.lstrip().startswith(b"{"):
            return Unreadable("not_an_object")
        choices = shape.last("choices")
        usage = shape.last("usage")
        if choices is None:
            return Unreadable("no_choices" if shape.last("error") is None else "error")
        spans = enumerate(choices.elements)
        read = tuple(_choice(body, span, index, deepest) for index, span in spans)
        answered = tuple(choice for choice in read if choice is not None)
        if not answered:
            return Unreadable("no_choices")
        return Answer(answered, usage_of(usage and decoded(body[usage.start : usage.end])))
    except InvalidJson:
        return Unreadable("invalid_json")


def _choice(body: bytes, span: Span, position: int, deepest: int) -> AnsweredChoice | None:
    raw = body[span[0] : span[1]]
    shape = outline(raw, deepest)
    message = shape.last("message")
    if message is None or not raw.startswith(b"{", message.start):
        return None
    fields: dict[str, Any] = decoded(raw)
    index, reason = fields.get("index"), fields.get("finish_reason")
    return AnsweredChoice(
        index=index if isinstance(index, int) and not isinstance(index, bool) else position,
        message_body=raw[message.start : message.end],
        finish_reason=reason if isinstance(reason, str) and reason else None,
    )
