"""A tool result shown shortened: its head, a marker, its tail.

A function of the message's bytes, the limit and the marker's reference, so that a view is rebuilt byte for
byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from palimpsest.core.history.message import Message
from palimpsest.core.view.json_results import (
    cut,
    elements,
    encoded,
    ends,
    marker,
    marker_room,
    members,
    string_at,
    structured,
)
from palimpsest.core.wire.json_spans import members_of
from palimpsest.core.wire.responses.items import RESULT_MEMBERS, TEXT_PARTS, as_chat

# Above this many characters a text is cut without being parsed as JSON: a view is built every turn.
_STRUCTURE_CHARS = 1_000_000
# Below it an object's punctuation and keys would be most of what is shown.
_LEAST_STRUCTURE_CHARS = 600
# Members of a part that hold text.
_PRINTED = frozenset({"text", "stdout", "stderr"})
# Cached results, and their bytes: a view is built several times a turn.
_KEPT = 4_000
_KEPT_BYTES = 32_000_000


@dataclass(frozen=True, slots=True)
class Masked:
    """A message as it is shown: its bytes, and their text."""

    raw: bytes
    text: str


def text_of(fields: Mapping[str, Any]) -> str:
    """A message's text: its content string, or its text parts joined; "" when it has none."""
    content = fields.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in content if _is_text_part(part))


def masked(message: Message, limit_chars: int, reference: str) -> Masked | None:
    """The message with its text shortened to `limit_chars`; every other byte as it was.

    None where the text is no longer than that. Non-text parts stay. Text parts that are left out entirely are
    dropped, as some upstreams refuse an empty text part. `reference` says how the rest is read; "": it is
    not. Built once for the same message and limit.
    """
    return _BUILT.get(
        (message.digest, limit_chars, reference), partial(_masked, message, limit_chars, reference)
    )


def shown(text: str, limit_chars: int, reference: str) -> str:
    """The text in at most `limit_chars` characters, marker included; unchanged if it is no longer.

    JSON stays JSON where it can: arrays keep at most 50 items and say "50 of m", long texts inside objects
    are cut (A08). Other text is cut plainly. The marker is never cut: a limit below its length is exceeded.
    """
    if len(text) <= limit_chars:
        return text
    if limit_chars >= _LEAST_STRUCTURE_CHARS and len(text) <= _STRUCTURE_CHARS:
        shorter = structured(text, limit_chars, reference)
        if shorter is not None:
            return shorter
    return cut(text, limit_chars, reference)


def _masked(message: Message, limit_chars: int, reference: str) -> Masked | None:
    raw = message.raw
    for key, start, stop in _members(raw):
        if key in RESULT_MEMBERS:
            value = _shown_value(message, raw[start:stop], limit_chars, reference)
            if value is not None:
                short = raw[:start] + value.encode("utf-8", "surrogatepass") + raw[stop:]
                fields = as_chat(json.loads(short, parse_int=str, parse_float=str))
                return Masked(short, text_of(fields))
    return None


def _members(raw: bytes) -> Iterator[tuple[str, int, int]]:
    """Key, start and stop (bytes) of every member, without unescaping a large text."""
    quick = members_of(raw)
    if quick is not None:
        yield from ((member.key, member.start, member.end) for member in quick)
        return
    text = raw.decode("utf-8", "surrogatepass")
    for key, start, stop in members(text):
        before = len(text[:start].encode("utf-8", "surrogatepass"))
        yield key, before, before + len(text[start:stop].encode("utf-8", "surrogatepass"))


def _shown_value(message: Message, value: bytes, limit_chars: int, reference: str) -> str | None:
    content = message.fields.get("content")
    if value[:1] == b'"' and isinstance(content, str):
        return None if len(content) <= limit_chars else encoded(shown(content, limit_chars, reference))
    if value[:1] != b"[":
        return None
    text = value.decode("utf-8", "surrogatepass")
    spans = list(elements(text))
    texts = [_part_text(text, at) for at, _ in spans]
    joined = "".join(part[2] for part in texts if part)
    if len(joined) <= limit_chars:
        return None
    if sum(1 for part in texts if part and part[2]) == 1:
        return _one_part(text, spans, texts, shown(joined, limit_chars, reference))
    kept_chars = max(0, limit_chars - marker_room(joined, reference))
    return _shown_parts(text, spans, texts, kept_chars, reference)


def _one_part(
    text: str, spans: list[tuple[int, int]], texts: list[tuple[int, int, str] | None], short: str
) -> str:
    """The list of parts, its only text shown as `short`."""
    pieces = []
    for (at, end), part in zip(spans, texts, strict=True):
        if part and part[2]:
            pieces.append(text[at : part[0]] + encoded(short) + text[part[1] : end])
        else:
            pieces.append(text[at:end])
    return "[" + ",".join(pieces) + "]"


def _shown_parts(
    text: str,
    spans: list[tuple[int, int]],
    texts: list[tuple[int, int, str] | None],
    kept_chars: int,
    reference: str,
) -> str:
    """The list of parts with head and tail, `kept_chars` together, of all texts as if they were one."""
    total = sum(len(part[2]) for part in texts if part)
    head, tail = ends(kept_chars)
    pieces, offset, is_marked = [], 0, False
    for (at, end), part in zip(spans, texts, strict=True):
        if part is None:
            pieces.append(text[at:end])
            continue
        start, stop, value = part
        first = value[: max(0, head - offset)]
        last = value[max(0, min(len(value), total - tail - offset)) :]
        offset += len(value)
        if len(first) == len(value) or len(last) == len(value):
            pieces.append(text[at:end])
            continue
        left_out = "" if is_marked else marker(total - head - tail, total, reference)
        # The marker stands where the head ends: in the first part that is not complete.
        is_marked = True
        if value := first + left_out + last:
            pieces.append(text[at:start] + encoded(value) + text[stop:end])
    return "[" + ",".join(pieces) + "]"


def _part_text(text: str, at: int) -> tuple[int, int, str] | None:
    """Where the text of a text part is, and the text; None for any other part.

    A command's output in the Responses API has no type; of its two streams the longer one counts.
    """
    if text[at] != "{":
        return None
    kind, places = None, {}
    for key, start, stop in members(text, at):
        value = string_at(text, start)
        if key == "type":
            kind = value
        elif key in _PRINTED and value is not None:
            places[key] = (start, stop, value)
    if kind in TEXT_PARTS:
        return places.get("text")
    printed = [places[key] for key in places if key != "text"]
    return max(printed, key=lambda place: len(place[2])) if printed and kind is None else None


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


class _Built:
    """A cache of built results, emptied when it grows too large. Used from several threads."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int, str], Masked | None] = {}
        self._bytes = 0

    def get(self, key: tuple[bytes, int, str], build: Callable[[], Masked | None]) -> Masked | None:
        """The cached result for the key, else what `build` returns, cached from then on."""
        known = self._known.get(key, _UNKNOWN)
        if not isinstance(known, _Unknown):
            return known
        made = build()
        if len(self._known) >= _KEPT or self._bytes + _size(made) > _KEPT_BYTES:
            self.forget()
        self._known[key] = made
        self._bytes += _size(made)
        return made

    def forget(self) -> None:
        """Forgets all results."""
        self._known, self._bytes = {}, 0


class _Unknown:
    """Marks a missing entry: None is the entry of a message that is shown whole."""


def _size(made: Masked | None) -> int:
    return len(made.raw) + len(made.text) if made else 0


_UNKNOWN = _Unknown()
_BUILT = _Built()


def forget_masked() -> None:
    """Forgets the cached results, which are texts of conversations (P6)."""
    _BUILT.forget()
