"""Hides recall calls and hidden rounds from the client on the Responses API: in whole answers and in events.

A reasoning item belongs to the item after it, and the API accepts neither without the other (reference,
"Reasoning models", 2026-11): reasoning that leads to a recall call is hidden with the call. Events of
reasoning are held back until the next item is known.

Answers repeat the request's tools and `tool_choice`: ours are removed. Otherwise an answer in the first round
without a recall call is not changed by a byte. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palimpsest.core.recall.rounds.calls import Called
from palimpsest.core.recall.rounds.frames import FrameForm, Frames, with_tokens
from palimpsest.core.recall.rounds.offer import is_named_as_ours
from palimpsest.core.recall.tool_calls import NAMES
from palimpsest.core.wire.chat_answers import Verdict, said_in
from palimpsest.core.wire.json_spans import raw_elements, raw_members, replaced
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.core.wire.responses.answers import ResponseAssembly
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import InvalidJson

Json = Mapping[str, Any]
_REASONING = "reasoning"


class ItemVisibility:
    """Decides which items of one answer the client sees, in order of arrival.

    `hidden` are the places of hidden items. Reasoning is undecided until the next item is known.
    """

    def __init__(self) -> None:
        self.hidden: set[int] = set()
        self._reasoning: list[int] = []
        self._after_recall_call = False

    def take(self, place: int, item: Json) -> list[int]:
        """The places that may be shown now, in order: of earlier reasoning, and of this item."""
        if item.get("type") == "function_call" and str(item.get("name")) in NAMES:
            self.hidden.add(place)
            self._after_recall_call = True
            return []
        if item.get("type") == _REASONING:
            if self._after_recall_call:
                self._hide_reasoning()
            self._reasoning.append(place)
            return []
        shown, self._reasoning, self._after_recall_call = [*self._reasoning, place], [], False
        return shown

    def end(self) -> list[int]:
        """Ends the answer. Returns the places of trailing reasoning that no recall call follows."""
        if self._after_recall_call:
            self._hide_reasoning()
        rest, self._reasoning = self._reasoning, []
        return rest

    def _hide_reasoning(self) -> None:
        self.hidden.update(self._reasoning)
        self._reasoning, self._after_recall_call = [], False


def visible_items(raws: Iterable[bytes]) -> list[bytes]:
    """The items of an answer (raw JSON) that the client sees."""
    items = list(raws)
    visibility = ItemVisibility()
    for place, raw in enumerate(items):
        item = decoded(raw)
        visibility.take(place, item if isinstance(item, dict) else {})
    visibility.end()
    return [raw for place, raw in enumerate(items) if place not in visibility.hidden]


def answer_for_prompt(message: bytes, *, is_kept: bool) -> bytes:
    """An answer as the next round's prompt repeats it.

    Unless the upstream keeps it (`is_kept`), reasoning items without content are left out: the upstream
    could not resolve their ids.
    """
    if is_kept or not message.startswith(b"["):
        return message
    raws = raw_elements(message)
    known = []
    for raw in raws:
        item = decoded(raw)
        if item.get("type") != _REASONING or item.get("encrypted_content") or item.get("content"):
            known.append(raw)
    return message if len(known) == len(raws) else array_of(known)


def without_repeated_items(answer: bytes, before: Iterable[bytes]) -> bytes | None:
    """An answer without the items that the rounds `before` it hold already; None if no item is left.

    The client's answer joins the items of every round, and no upstream accepts an item id twice.
    """
    if not answer.startswith(b"["):
        return answer
    arrays = (raw_elements(message) for message in before if message.startswith(b"["))
    said = {_identity_of(decoded(raw)) for raws in arrays for raw in raws} - {None}
    raws = raw_elements(answer)
    kept = [raw for raw in raws if _identity_of(decoded(raw)) not in said]
    if len(kept) == len(raws):
        return answer
    return array_of(kept) if kept else None


def _identity_of(item: Any) -> tuple[str, bytes] | None:
    """What identifies an item. The id alone does not: some servers give several items the same."""
    ident = item.get("id") if isinstance(item, dict) else None
    if not isinstance(ident, str):
        return None
    return ident, b"" if item.get("type") == _REASONING else encoded(as_chat([item]))


@dataclass(slots=True)
class ResponsesClientAnswer:
    """What the client has of its answer from earlier rounds.

    `hidden_tokens` are the completion tokens of those rounds. `ident` is the answer's id as JSON, None until
    it is known. `items` are the items shown, `places` the number of output indexes used by streamed ones.
    `next_number` is the next sequence number, None if events have none; events are renumbered once one
    `is_missing`.
    """

    hidden_tokens: int = 0
    ident: bytes | None = None
    items: list[bytes] = field(default_factory=list)
    places: int = 0
    next_number: int | None = None
    is_missing: bool = False

    def hidden(self, tokens: int, body: bytes | None) -> None:
        """See `ClientAnswer`. The round's visible items become part of the answer."""
        self.hidden_tokens += tokens
        if body is not None:
            self.items += visible_items(raw_elements(raw_members(body).get("output", b"[]")))

    def frames(self, form: FrameForm, *, may_hide: bool) -> Frames:
        """See `ClientAnswer`."""
        return ResponseFrames(form, self, may_hide=may_hide)

    def whole(self, body: bytes, called: Called) -> bytes:
        """See `ClientAnswer`. A body that is not JSON is returned unchanged."""
        del called
        try:
            return visible_object(body, self)
        except InvalidJson:
            return body


def visible_object(text: bytes, so_far: ResponsesClientAnswer) -> bytes:
    """An answer, which is an object, as that of all rounds: one id, all items, summed usage."""
    fields = raw_members(text)
    new: dict[str, bytes] = {}
    if so_far.ident is not None and "id" in fields:
        new["id"] = so_far.ident
    if "tools" in fields:
        tools = raw_elements(fields["tools"])
        kept = [tool for tool in tools if not is_named_as_ours(decoded(tool))]
        new["tools"] = fields["tools"] if len(kept) == len(tools) else array_of(kept)
    if fields.get("tool_choice") == b'"none"':
        # The "none" is ours: tools are offered only to requests with the choice "auto".
        new["tool_choice"] = b'"auto"'
    # Without items the answer has only begun, or the server does not repeat them at the end.
    if said := raw_elements(fields.get("output", b"[]")):
        seen = visible_items(said)
        if so_far.items or len(seen) < len(said):
            new["output"] = array_of([*so_far.items, *seen])
    for key, value in new.items():
        if fields[key] != value:
            text = replaced(text, (key,), value)
    return with_tokens(text, so_far.hidden_tokens, "output_tokens")


_ADDED, _DONE = "response.output_item.added", "response.output_item.done"


@dataclass(frozen=True, slots=True)
class _Event:
    """One event: its frame, its data, and its data decoded."""

    frame: bytes
    data: bytes
    said: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.said.get("type"))


class ResponseFrames(Frames):
    """Filters the events of one round of an answer of the Responses API."""

    def __init__(self, form: FrameForm, so_far: ResponsesClientAnswer, *, may_hide: bool) -> None:
        super().__init__(form, ResponseAssembly(), may_hide=may_hide)
        self._so_far = so_far
        self._is_first = so_far.ident is None
        self._visibility = ItemVisibility()
        # By output index: items shown, items of known kind, events held back, and finished items.
        self._shown: set[int] = set()
        self._known: set[int] = set()
        self._waiting: dict[int, list[_Event]] = {}
        self._items: dict[int, bytes] = {}

    def _visible(self, frame: bytes, data: bytes, verdict: Verdict) -> bytes:
        if self.is_hidden:
            return b""
        said = said_in(data)
        if not isinstance(said, dict):
            return self._flushed() + frame if verdict == "done" else frame
        event = _Event(frame, data, said)
        if verdict == "opens":
            # The events that announce an answer are shown in the first round only.
            if not self._is_first:
                return b""
            response = said.get("response")
            if self._so_far.ident is None and isinstance(response, dict) and "id" in response:
                self._so_far.ident = raw_members(raw_members(data)["response"])["id"]
            return self._out(event)
        if verdict in ("finishes", "error"):
            return self._flushed() + self._out(event)
        place = said.get("output_index")
        return self._placed(place, event) if isinstance(place, int) else self._sent_ahead(event)

    def _end(self) -> None:
        super()._end()
        if self.is_hidden:
            so_far = self._so_far
            so_far.items += [self._items[place] for place in sorted(self._shown) if place in self._items]
            so_far.places += len(self._shown)
            # The end of this round and the beginning of the next are not shown.
            so_far.is_missing = True

    def _placed(self, place: int, event: _Event) -> bytes:
        """The bytes to send for an event of the item at `place`."""
        if event.kind == _DONE:
            self._items[place] = raw_members(event.data).get("item", b"{}")
        if place in self._visibility.hidden:
            return self._dropped([event])
        if place in self._shown:
            return self._sent_ahead(event)
        self._waiting.setdefault(place, []).append(event)
        item = _item_of(event)
        if place in self._known or item is None:
            return b""
        self._known.add(place)
        return self._released(self._visibility.take(place, item))

    def _sent_ahead(self, event: _Event) -> bytes:
        """Sends an event at once, ahead of those held back."""
        self._so_far.is_missing = self._so_far.is_missing or bool(self._waiting)
        return self._out(event)

    def _flushed(self) -> bytes:
        """Ends the items: releases the events held back, except those of hidden items."""
        out = self._released(self._visibility.end())
        for events in self._waiting.values():
            self._dropped(events)
        self._waiting.clear()
        return out

    def _released(self, places: Iterable[int]) -> bytes:
        for place in self._visibility.hidden & self._waiting.keys():
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
        """The event as the client sees it: numbers and places do not count what is hidden."""
        new, so_far = event.data, self._so_far
        if isinstance(event.said.get("response"), dict):
            raw = raw_members(new)["response"]
            if (seen := visible_object(raw, so_far)) != raw:
                new = replaced(new, ("response",), seen)
        place = event.said.get("output_index")
        if isinstance(place, int):
            index = so_far.places + place - sum(hidden < place for hidden in self._visibility.hidden)
            new = _numbered(new, "output_index", place, index)
        number = event.said.get("sequence_number")
        if isinstance(number, int):
            shown = number
            if so_far.is_missing and so_far.next_number is not None:
                shown = so_far.next_number
            new = _numbered(new, "sequence_number", number, shown)
            so_far.next_number = shown + 1
        return event.frame if new == event.data else self._form.refilled(event.frame, event.data, new)


def _numbered(data: bytes, key: str, old: int, new: int) -> bytes:
    return data if old == new else replaced(data, (key,), str(new).encode())


def _item_of(event: _Event) -> Mapping[str, Any] | None:
    """What one event reveals of its item; None while the item may be a call of ours."""
    if event.kind in (_ADDED, _DONE):
        item = event.said.get("item")
        if not isinstance(item, dict):
            return None
        is_named = event.kind == _DONE or bool(item.get("name"))
        return item if is_named or item.get("type") != "function_call" else None
    # Some servers do not send `output_item.added`.
    if event.kind.startswith("response.function_call"):
        return None
    return {"type": "reasoning" if event.kind.startswith("response.reasoning") else "message"}
