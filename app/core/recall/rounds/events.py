"""What a client is shown of a streamed answer of the Responses API that came with our tools, by event.

Pure. Of an answer that calls nothing of ours, in the first round, no byte is changed but those that repeat
our tools. Events of thoughts wait until it is known what they led to. Knows nothing of sockets, of holding
an answer's end back for its commit, nor of what a tool finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.core.recall.rounds.calls import Called, called_by
from app.core.recall.rounds.form import Form
from app.core.recall.rounds.items import Sorting
from app.core.recall.rounds.json_edits import replaced
from app.core.recall.rounds.objects import SoFar, visible_object
from app.core.wire.answered import AnsweredChoice
from app.core.wire.assembly import said_in
from app.core.wire.json_members import raw_members
from app.core.wire.responses.assembly import ResponseAssembly

_NO_CALLS = Called((), 0, is_hidden=False)
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"


@dataclass(frozen=True, slots=True)
class _Event:
    """One event, as it came and read."""

    frame: bytes
    data: bytes
    said: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.said.get("type"))


class ResponseFrames:
    """The events of one round, as the client may see them; its attributes as of `frames.RoundFrames`."""

    def __init__(self, form: Form, so_far: SoFar, *, may_hide: bool) -> None:
        self._form = form
        self._so_far = so_far
        self._may_hide = may_hide
        self._is_first = so_far.ident is None
        self._assembly = ResponseAssembly()
        self._sorting = Sorting()
        # Items by their place: those the client sees, those of known kind, events that wait, items as said.
        self._shown: set[int] = set()
        self._known: set[int] = set()
        self._waiting: dict[int, list[_Event]] = {}
        self._items: dict[int, bytes] = {}
        self.is_over = False
        self.is_hidden = False
        self.called = _NO_CALLS

    @property
    def choice(self) -> AnsweredChoice | None:
        """The answer as it stands; None before any of it."""
        return next(iter(self._assembly.choices()), None)

    @property
    def completion_tokens(self) -> int:
        """What the upstream said of the round's own; 0 while it said nothing."""
        usage = self._assembly.usage
        return (usage.completion_tokens or 0) if usage else 0

    def shown(self, frame: bytes) -> bytes:
        """What goes out for this frame; empty when nothing does."""
        data = self._form.data_of(frame)
        if data is None:
            return b"" if self.is_hidden else frame
        verdict = self._assembly.feed(data)
        if (verdict.finishes or verdict.done) and not self.is_over:
            self._end()
        if self.is_hidden:
            return b""
        said = said_in(data)
        if not isinstance(said, dict):
            return self._rest() + frame if verdict.done else frame
        event = _Event(frame, data, said)
        if verdict.opens:
            return self._opening(event)
        if verdict.finishes or verdict.error:
            return self._rest() + self._out(event)
        place = said.get("output_index")
        return self._placed(place, event) if isinstance(place, int) else self._passing(event)

    def _end(self) -> None:
        self.is_over = True
        choice = self.choice
        self.called = called_by(choice) if choice else _NO_CALLS
        self.is_hidden = self._may_hide and self.called.is_hidden
        if self.is_hidden:
            so_far = self._so_far
            so_far.items += [self._items[place] for place in sorted(self._shown) if place in self._items]
            so_far.places += len(self._shown)
            # The ends of both, what is not shown, and the beginning of the next.
            so_far.is_missing = True

    def _opening(self, event: _Event) -> bytes:
        """The news of an answer, of which the client hears once."""
        if not self._is_first:
            return b""
        response = event.said.get("response")
        if self._so_far.ident is None and isinstance(response, dict) and "id" in response:
            self._so_far.ident = raw_members(raw_members(event.data)["response"])["id"]
        return self._out(event)

    def _placed(self, place: int, event: _Event) -> bytes:
        """What goes out now that something of the item at `place` has come."""
        if event.kind == _DONE:
            self._items[place] = raw_members(event.data).get("item", b"{}")
        if place in self._sorting.hidden:
            return self._dropped([event])
        if place in self._shown:
            return self._passing(event)
        self._waiting.setdefault(place, []).append(event)
        item = _item_of(event)
        if place in self._known or item is None:
            return b""
        self._known.add(place)
        return self._released(self._sorting.take(place, item))

    def _passing(self, event: _Event) -> bytes:
        """The event goes out at once, before those that wait."""
        self._so_far.is_missing = self._so_far.is_missing or bool(self._waiting)
        return self._out(event)

    def _rest(self) -> bytes:
        """What still waits, and belongs to nothing of ours; no more comes of the answer."""
        out = self._released(self._sorting.end())
        for events in self._waiting.values():
            self._dropped(events)
        self._waiting.clear()
        return out

    def _released(self, places: Iterable[int]) -> bytes:
        for place in self._sorting.hidden & self._waiting.keys():
            self._dropped(self._waiting.pop(place))
        pieces: list[bytes] = []
        for place in places:
            self._shown.add(place)
            pieces += [self._out(event) for event in self._waiting.pop(place, ())]
        return b"".join(pieces)

    def _dropped(self, events: Iterable[_Event]) -> bytes:
        if any("sequence_number" in event.said for event in events):
            self._so_far.is_missing = True
        return b""

    def _out(self, event: _Event) -> bytes:
        """The event as the client sees it, numbered without those that it does not."""
        new, so_far = event.data, self._so_far
        if isinstance(event.said.get("response"), dict):
            new = visible_object(new, so_far, ("response",))
        place = event.said.get("output_index")
        if isinstance(place, int):
            seen = so_far.places + place - sum(hidden < place for hidden in self._sorting.hidden)
            new = _numbered(new, "output_index", place, seen)
        number = event.said.get("sequence_number")
        if isinstance(number, int):
            told = number
            if so_far.is_missing and so_far.next_number is not None:
                told = so_far.next_number
            new = _numbered(new, "sequence_number", number, told)
            so_far.next_number = told + 1
        return event.frame if new == event.data else self._form.refilled(event.frame, event.data, new)


def _numbered(data: bytes, key: str, old: int, new: int) -> bytes:
    return data if old == new else replaced(data, (key,), str(new).encode())


def _item_of(event: _Event) -> Mapping[str, Any] | None:
    """What is known of an item by one of its events; None while it may be a call of ours."""
    if event.kind in (_ADDED, _DONE):
        item = event.said.get("item")
        if not isinstance(item, dict):
            return None
        is_named = event.kind == _DONE or bool(item.get("name"))
        return item if is_named or item.get("type") != "function_call" else None
    # Some servers announce no items.
    if event.kind.startswith("response.function_call"):
        return None
    return {"type": "reasoning" if event.kind.startswith("response.reasoning") else "message"}
