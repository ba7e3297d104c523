"""How the deltas of one streamed choice add up to a message.

Knows nothing of chunks, choices or streams. The rules are those by which the openai SDK adds up
deltas (`accumulate_delta`), except where a comment says otherwise.
"""

from __future__ import annotations

from typing import Any

from app.core.wire.json_text import encoded

# Stated, not streamed: a later value replaces the first, it is not appended to it.
_STATED = frozenset({"index", "type", "format", "expires_at"})
# Stated in the first delta; some servers repeat it, or send "" or another one, in those after it.
_FIRST = frozenset({"id", "role"})
# Streamed by some servers in pieces, repeated whole by others.
_NAMES = frozenset({"name"})
# Padding against traffic analysis.
_DROPPED = frozenset({"obfuscation"})
# What is streamed under any other name is appended as it comes.
_NOT_APPENDED = _STATED | _FIRST | _NAMES


class DeltaSum:
    """The sum of the deltas of one choice.

    Strings are appended, objects merged, lists merged by the `index` of their items (items without
    one are appended), everything else replaced; null says nothing. Unknown fields obey the same.
    """

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}

    @property
    def is_empty(self) -> bool:
        """No delta said anything."""
        return not self._fields

    def add(self, delta: dict[str, Any]) -> None:
        """`delta` is part of the sum."""
        for key, value in delta.items():
            if value is None or key in _DROPPED:
                continue
            known = self._fields.get(key)
            if isinstance(known, _Text) and isinstance(value, str) and key not in _NOT_APPENDED:
                # Nearly every delta of a stream.
                known.pieces.append(value)
                continue
            if key == "tool_calls" and isinstance(value, list):
                value = [_placed(item, known) for item in value]
            self._fields[key] = _sum(key, known, value)

    def message(self) -> bytes:
        """The message as JSON, in the shape of an answer that was not streamed.

        `role` first (an assistant's unless said), then `content` (null when nothing was said), then
        the other fields. Tool calls stand in the order of their index, without it.
        """
        fields = {"role": "assistant", "content": None} | {
            key: _whole(value) for key, value in self._fields.items()
        }
        calls = fields.get("tool_calls")
        if isinstance(calls, list):
            fields["tool_calls"] = [_without_index(call) for call in sorted(calls, key=_index)]
        return encoded(fields)


class _Text:
    """A growing string as its pieces, so that appending is not quadratic."""

    __slots__ = ("pieces",)

    def __init__(self, text: str) -> None:
        self.pieces = [text]

    def __str__(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


def _growing(value: Any) -> Any:
    """A copy of `value` in which every string can grow."""
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, dict):
        return {key: _growing(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_growing(item) for item in value]
    return value


def _whole(value: Any) -> Any:
    """The opposite of `_growing`."""
    if isinstance(value, _Text):
        return str(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value


def _sum(key: str, old: Any, new: Any) -> Any:
    """`old` (growing, changed in place where it can be) with `new` (as it came) added."""
    if new is None:
        return old
    if isinstance(old, _Text):
        return _sum_with_text(key, old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in new.items():
            old[name] = _sum(name, old.get(name), value)
        return old
    if isinstance(old, list):
        return _sum_with_list(old, new)
    # The openai SDK adds numbers up; no server is known that streams a number in pieces.
    return _growing(new)


def _sum_with_text(key: str, old: _Text, new: Any) -> Any:
    if isinstance(new, list):
        # Mistral streams content as text until a list of parts comes.
        return [{"type": _Text("text"), "text": old}, *_growing(new)]
    if not isinstance(new, str):
        return _growing(new)
    if key in _STATED:
        return _Text(new) if new else old
    if key in _FIRST and str(old):
        return old
    if key not in _NAMES or str(old) != new:
        old.pieces.append(new)
    return old


def _sum_with_list(old: list[Any], new: Any) -> list[Any]:
    items = new if isinstance(new, list) else [{"type": "text", "text": new}]
    for item in items:
        index = _index_of(item)
        at = None if index is None else _position(old, index)
        if at is None:
            old.append(_growing(item))
        else:
            old[at] = _sum("", old[at], item)
    return old


def _placed(call: Any, known: Any) -> Any:
    """A tool call delta with an index: without one it opens a call if it has an id, else it goes on.

    Gemini's compatible endpoint sends whole calls without an index.
    """
    if not isinstance(call, dict) or _index_of(call) is not None:
        return call
    indexes = [_index(item) for item in known] if isinstance(known, list) else []
    newest = max(indexes, default=-1)
    return call | {"index": newest + 1 if call.get("id") or newest < 0 else newest}


def _index_of(item: Any) -> int | None:
    index = item.get("index") if isinstance(item, dict) else None
    return index if isinstance(index, int) else None


def _index(item: Any) -> int:
    index = _index_of(item)
    return -1 if index is None else index


def _position(items: list[Any], index: int) -> int | None:
    return next((at for at, item in enumerate(items) if _index_of(item) == index), None)


def _without_index(call: Any) -> Any:
    return {key: value for key, value in call.items() if key != "index"} if isinstance(call, dict) else call
