"""One answer of several rounds as its client is told it, on each of the wires, streamed or whole.

Pure. Knows nothing of how rounds are asked for.
"""

from __future__ import annotations

from typing import Protocol

from app.core.recall.rounds.calls import Called
from app.core.recall.rounds.events import ResponseFrames
from app.core.recall.rounds.form import Form
from app.core.recall.rounds.frames import RoundFrames, SoFar
from app.core.recall.rounds.objects import SoFar as ItemsSoFar
from app.core.recall.rounds.objects import hidden_output, visible_object
from app.core.recall.rounds.visible import visible_answer
from app.core.wire.answered import AnsweredChoice
from app.core.wire.chat_request import Wire
from app.errors import InvalidJson


class Frames(Protocol):
    """The frames of one round; see `frames.RoundFrames`."""

    is_over: bool
    is_hidden: bool
    called: Called

    @property
    def choice(self) -> AnsweredChoice | None:
        """The answer as it stands."""

    @property
    def completion_tokens(self) -> int:
        """The round's own."""

    def shown(self, frame: bytes) -> bytes:
        """What goes out for this frame."""


class Told(Protocol):
    """What a client has been told of its answer, and is told next."""

    def hidden(self, tokens: int, body: bytes | None) -> None:
        """A round is over that is not the last: its completion tokens, its answer where that was whole."""

    def frames(self, form: Form, *, may_hide: bool) -> Frames:
        """Those of the next round, which is streamed."""

    def whole(self, body: bytes, called: Called) -> bytes:
        """The last round's answer as the client sees it."""


class _Chat:
    def __init__(self) -> None:
        self._so_far = SoFar()

    def hidden(self, tokens: int, body: bytes | None) -> None:
        del body
        self._so_far.hidden_tokens += tokens

    def frames(self, form: Form, *, may_hide: bool) -> Frames:
        return RoundFrames(form, self._so_far, may_hide=may_hide)

    def whole(self, body: bytes, called: Called) -> bytes:
        return visible_answer(body, called, self._so_far.hidden_tokens)


class _Responses:
    def __init__(self) -> None:
        self._so_far = ItemsSoFar()

    def hidden(self, tokens: int, body: bytes | None) -> None:
        self._so_far.hidden_tokens += tokens
        if body is not None:
            self._so_far.items += hidden_output(body)

    def frames(self, form: Form, *, may_hide: bool) -> Frames:
        return ResponseFrames(form, self._so_far, may_hide=may_hide)

    def whole(self, body: bytes, called: Called) -> bytes:
        del called
        try:
            return visible_object(body, self._so_far)
        except InvalidJson:
            # No answer at all: it passes as it came.
            return body


def told_on(wire: Wire) -> Told:
    """Nothing so far."""
    return _Responses() if wire == "responses" else _Chat()
