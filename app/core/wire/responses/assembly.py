"""The answer that a stream of the Responses API adds up to, and what each event means for the relay.

Knows nothing of bytes on a socket, of frames, of holding back or recording. Nothing here raises: an upstream
may send anything.
"""

from __future__ import annotations

from typing import Any

from app.core.wire.answered import AnsweredChoice, Usage
from app.core.wire.assembly import Verdict, said_in
from app.core.wire.json_text import encoded
from app.core.wire.responses.answer import finish_reason, tokens_of

_ENDS = frozenset({"response.completed", "response.incomplete"})
_FAILS = frozenset({"response.failed", "error"})
# They say that the request has been taken, nothing of the answer.
_OPENINGS = frozenset({"response.created", "response.queued", "response.in_progress"})

_ORDINARY = Verdict()
_OPENS = Verdict(opens=True)
_FINISHES = Verdict(finishes=True)
_ERROR = Verdict(error=True)
_DONE = Verdict(done=True)


class ResponseAssembly:
    """Adds up the events of one streamed answer; its attributes are those of `assembly.Assembly`.

    An item counts when it is done, and is then what the upstream says it is. Of one that is still being said
    only words are known. `response_id` is the answer's own id.
    """

    __slots__ = (
        "_done", "_ending", "_texts", "error", "is_done", "response_id", "unreadable", "usage",
    )  # fmt: skip

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._texts: dict[int, list[str]] = {}
        self._ending: dict[str, Any] | None = None
        self.usage: Usage | None = None
        self.error: bytes | None = None
        self.is_done = False
        self.unreadable = 0
        self.response_id: str | None = None

    @property
    def is_finished(self) -> bool:
        """The upstream has said that the answer is complete, or cut short by a limit."""
        return self._ending is not None

    def choices(self) -> tuple[AnsweredChoice, ...]:
        """The answer as it stands now, finished or not; none while nothing is said."""
        ending = self._ending or {}
        items, whole = self._items(), ending.get("output")
        # Some servers announce no items, or not all; others end without repeating what they said.
        if isinstance(whole, list) and len(whole) > len(items):
            items = [item for item in whole if isinstance(item, dict)]
        if not items:
            return ()
        message = encoded(items)
        reason = finish_reason(message, ending.get("status"), ending.get("incomplete_details"))
        return (AnsweredChoice(0, message, reason),)

    def feed(self, data: bytes) -> Verdict:
        """`data` (the data of one frame) is part of the answer; the verdict says what it means."""
        if data.strip() == b"[DONE]":
            # Not of this wire; some servers send it all the same.
            self.is_done = True
            return _DONE
        event = said_in(data)
        if not isinstance(event, dict):
            self.unreadable += 1
            return _ORDINARY
        return self._event(event, data)

    def _event(self, event: dict[str, Any], data: bytes) -> Verdict:
        kind = event.get("type")
        kind = kind if isinstance(kind, str) else None
        response = event.get("response")
        if isinstance(response, dict):
            ident = response.get("id")
            self.response_id = ident if isinstance(ident, str) and ident else self.response_id
        if kind in _FAILS or (kind is None and event.get("error")):
            self.error = self.error or data
            return _ERROR
        if kind in _ENDS and isinstance(response, dict):
            self._ending = response
            self.usage = tokens_of(response.get("usage"))
            return _FINISHES
        if kind in _OPENINGS:
            return _OPENS
        self._add(kind, event)
        return _ORDINARY

    def _add(self, kind: str | None, event: dict[str, Any]) -> None:
        place = event.get("output_index")
        if not isinstance(place, int):
            return
        if kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            self._done[place] = event["item"]
            self._texts.pop(place, None)
        elif kind == "response.output_text.delta" and isinstance(event.get("delta"), str):
            self._texts.setdefault(place, []).append(event["delta"])

    def _items(self) -> list[Any]:
        said = {
            place: {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "".join(pieces)}],
            }
            for place, pieces in self._texts.items()
        }
        return [item for _, item in sorted((said | self._done).items())]
