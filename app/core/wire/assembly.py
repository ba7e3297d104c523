"""The answer that a stream of chunks adds up to, and what each chunk means for the relay.

Knows nothing of bytes on a socket, of frames (see `sse`), of holding back or recording. Nothing
here raises: an upstream may send anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.core.wire.answered import AnsweredChoice, Usage, usage_of
from app.core.wire.deltas import DeltaSum
from app.core.wire.json_spans import refuse_deeper
from app.core.wire.json_text import decoded
from app.errors import InvalidJson


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one frame's data means.

    `finishes`: it gives the last choice its finish_reason; it and all that follows is held until
    the commit (rule 15). `usage`: it carries counts and no choice, and is meant only for a client that
    asked for it. `done`: it is `[DONE]`. `error`: it tells of a failure; the answer is no finished turn.
    `opens`: it says that an answer begins and nothing of it.
    """

    finishes: bool = False
    usage: bool = False
    done: bool = False
    error: bool = False
    opens: bool = False


# As in requests: no answer is nested deeper than what a client may send back.
_LEVELS = 128

_ORDINARY = Verdict()
_FINISHES = Verdict(finishes=True)
_USAGE = Verdict(usage=True)
_DONE = Verdict(done=True)
_ERROR = Verdict(error=True)


@dataclass(slots=True)
class _Choice:
    message: DeltaSum = field(default_factory=DeltaSum)
    finish_reason: str | None = None


def said_in(data: bytes) -> Any:
    """What the data of one frame says; None where it is not JSON, or nested too deeply."""
    try:
        said = decoded(data)
        refuse_deeper(data, _LEVELS)
    except InvalidJson:
        return None
    return said


class Assembly:
    """Adds up the chunks of one streamed answer.

    `usage` are the newest counts the upstream stated. `error` is the data of the first frame that told
    of a failure. `unreadable` counts data that was no JSON object: with any, the sum may lack text.
    `is_done` is true after `[DONE]`.
    """

    __slots__ = (
        "_choices",
        "_expected",
        "_finished",
        "error",
        "is_done",
        "response_id",
        "unreadable",
        "usage",
    )

    def __init__(self, n: int = 1) -> None:
        """`n` is the number of choices the client asked for."""
        self._expected = n
        self._choices: dict[int, _Choice] = {}
        self._finished = 0
        self.usage: Usage | None = None
        self.error: bytes | None = None
        self.is_done = False
        self.unreadable = 0
        # Nobody goes on from a chat completion by its id.
        self.response_id: str | None = None

    @property
    def is_finished(self) -> bool:
        """Every choice has a finish_reason: all that were asked for, or after `[DONE]` all that came."""
        complete = 0 < len(self._choices) == self._finished
        return complete and (self._finished >= self._expected or self.is_done)

    def choices(self) -> tuple[AnsweredChoice, ...]:
        """The choices as they stand now, by index; finished or not."""
        return tuple(
            AnsweredChoice(index, choice.message.message(), choice.finish_reason)
            for index, choice in sorted(self._choices.items())
        )

    def feed(self, data: bytes) -> Verdict:
        """`data` (the data of one frame) is part of the answer; the verdict says what it means."""
        if data.strip() == b"[DONE]":
            self.is_done = True
            return _DONE
        chunk = said_in(data)
        if not isinstance(chunk, dict):
            return self._strange(chunk, data)
        if chunk.get("error") or chunk.get("object") == "error":
            return self._failed(data)
        return self._chunk(chunk)

    def _chunk(self, chunk: dict[str, Any]) -> Verdict:
        counts = chunk.get("usage")
        if isinstance(counts, dict):
            self.usage = usage_of(counts)
        choices = chunk.get("choices")
        if not choices or not isinstance(choices, list):
            return _USAGE if isinstance(counts, dict) else _ORDINARY
        was_finished = self._finished > 0 and self.is_finished
        for position, choice in enumerate(choices):
            if isinstance(choice, dict):
                self._add(choice, position)
        return _FINISHES if self._finished and self.is_finished and not was_finished else _ORDINARY

    def _add(self, part: dict[str, Any], position: int) -> None:
        index = part.get("index")
        place = index if isinstance(index, int) else position
        choice = self._choices.get(place)
        if choice is None:
            choice = self._choices[place] = _Choice()
        delta = part.get("delta")
        if delta is None and choice.message.is_empty:
            # Servers that cannot stream send the whole message in one chunk.
            delta = part.get("message")
        if isinstance(delta, dict):
            choice.message.add(delta)
        reason = part.get("finish_reason")
        # Some servers send "" until the end.
        if isinstance(reason, str) and reason:
            if choice.finish_reason is None:
                self._finished += 1
            choice.finish_reason = reason

    def _strange(self, chunk: Any, data: bytes) -> Verdict:
        # Gemini wraps an error in an array.
        first = chunk[0] if isinstance(chunk, list) and chunk else None
        if isinstance(first, dict) and first.get("error"):
            return self._failed(data)
        self.unreadable += 1
        return _ORDINARY

    def _failed(self, data: bytes) -> Verdict:
        if self.error is None:
            self.error = data
        return _ERROR
