"""A complete (not streamed) chat answer: where its messages stand, byte for byte.

Knows nothing of HTTP, sessions or what a client makes of it. Nothing here raises: an upstream may
send anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.core.wire.answered import AnsweredChoice, Usage, usage_of
from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_spans import refuse_deeper
from app.core.wire.json_text import decoded, verify
from app.errors import InvalidJson


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `choices` are those that carry a message object, in the upstream's order.

    `response_id`: the id by which a later request may go on from it; None of chat completions.
    """

    choices: tuple[AnsweredChoice, ...]
    usage: Usage
    response_id: str | None = None


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
        refuse_deeper(body, deepest)
        if not body.lstrip().startswith(b"{"):
            return Unreadable("not_an_object")
        said = raw_members(body)
        if "choices" not in said:
            return Unreadable("error" if "error" in said else "no_choices")
        read = [_choice(raw, index) for index, raw in enumerate(raw_elements(said["choices"]))]
        answered = tuple([choice for choice in read if choice is not None])
        if not answered:
            return Unreadable("no_choices")
        return Answer(answered, usage_of(decoded(said.get("usage", b"null"))))
    except InvalidJson:
        return Unreadable("invalid_json")


def _choice(raw: bytes, position: int) -> AnsweredChoice | None:
    fields = raw_members(raw)
    message = fields.get("message", b"")
    if not message.startswith(b"{"):
        return None
    index, reason = (decoded(fields.get(key, b"null")) for key in ("index", "finish_reason"))
    return AnsweredChoice(
        index=index if isinstance(index, int) and not isinstance(index, bool) else position,
        message_body=message,
        finish_reason=reason if isinstance(reason, str) and reason else None,
    )
