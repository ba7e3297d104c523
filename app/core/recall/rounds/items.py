"""The items of an answer of the Responses API: which the client sees where some call tools of ours.

Pure. A thought belongs to what follows it, and the API takes neither without the other (reference, "Reasoning
models", 2026-11): what led to nothing but a call of ours is as hidden as the call. Knows nothing of streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.core.recall.tool_schemas import NAMES
from app.core.wire.json_members import raw_elements
from app.core.wire.json_text import decoded, encoded
from app.core.wire.responses.items import as_chat

Json = Mapping[str, Any]
_THOUGHT = "reasoning"


class Sorting:
    """Tells the items of one answer apart as they are announced; `hidden` are places the client never sees.

    Thoughts wait until it is known what they led to.
    """

    def __init__(self) -> None:
        self.hidden: set[int] = set()
        self._thoughts: list[int] = []
        self._led_to_ours = False

    def take(self, place: int, item: Json) -> list[int]:
        """The places that the client may see now, in order: of earlier thoughts, and of this item."""
        if _is_ours(item):
            self.hidden.add(place)
            self._led_to_ours = True
            return []
        if item.get("type") == _THOUGHT:
            if self._led_to_ours:
                self._hide_thoughts()
            self._thoughts.append(place)
            return []
        shown, self._thoughts, self._led_to_ours = [*self._thoughts, place], [], False
        return shown

    def end(self) -> list[int]:
        """The answer is over: the places of thoughts that led to nothing, and not to a call of ours."""
        if self._led_to_ours:
            self._hide_thoughts()
        rest, self._thoughts = self._thoughts, []
        return rest

    def _hide_thoughts(self) -> None:
        self.hidden.update(self._thoughts)
        self._thoughts, self._led_to_ours = [], False


def visible_items(raws: Iterable[bytes]) -> list[bytes]:
    """Those of an answer's items, each as its JSON, that the client sees."""
    items = list(raws)
    sorting = Sorting()
    for place, raw in enumerate(items):
        item = decoded(raw)
        sorting.take(place, item if isinstance(item, dict) else {})
    sorting.end()
    return [raw for place, raw in enumerate(items) if place not in sorting.hidden]


def sent_back(message: bytes, *, is_kept: bool) -> bytes:
    """An answer as it stands in the next round's prompt.

    Where the upstream keeps nothing (`store: false`), a thought that is not in the item cannot be named.
    """
    if is_kept or not message.startswith(b"["):
        return message
    raws = raw_elements(message)
    known = [raw for raw in raws if not _is_mere_name(decoded(raw))]
    return message if len(known) == len(raws) else b"[" + b",".join(known) + b"]"


def unsaid(answer: bytes, before: Iterable[bytes]) -> bytes | None:
    """An answer without the items that were said in the rounds `before` it; None where that is all of it.

    A client is told the words of every round as one answer; two items of one id no upstream takes.
    """
    if not answer.startswith(b"["):
        return answer
    said = {_named(item) for message in before for item in _items_of(message)} - {None}
    raws = raw_elements(answer)
    kept = [raw for raw in raws if _named(decoded(raw)) not in said]
    if len(kept) == len(raws):
        return answer
    return b"[" + b",".join(kept) + b"]" if kept else None


def _is_ours(item: Json) -> bool:
    name = item.get("name")
    return item.get("type") == "function_call" and isinstance(name, str) and name in NAMES


def _is_mere_name(item: Json) -> bool:
    is_thought = item.get("type") == _THOUGHT
    return is_thought and not item.get("encrypted_content") and not item.get("content")


def _items_of(message: bytes) -> list[Any]:
    items = decoded(message) if message.startswith(b"[") else []
    return items if isinstance(items, list) else []


def _named(item: Any) -> tuple[str, bytes] | None:
    """What tells one item from every other: some servers give several the same id."""
    ident = item.get("id") if isinstance(item, dict) else None
    if not isinstance(ident, str):
        return None
    return ident, b"" if item.get("type") == _THOUGHT else encoded(as_chat([item]))
