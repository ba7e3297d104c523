"""A tool result shown shortened: its head, a marker that says where the rest can be read, its tail.

A pure function of the message's bytes and its mask, so that a view is rebuilt byte for byte. Knows
nothing of windows nor of which results ought to be masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.view.compaction import Mask
from app.core.view.results.marker import cut, ends, marker, marker_room
from app.core.view.results.structure import structured
from app.core.view.splice import elements, encoded, members, string_at
from app.core.wire.responses.items import TEXT_PARTS

# Above this many characters a text is cut without being read as JSON: a view is built every turn.
_STRUCTURE_CHARS = 1_000_000
# Below it an object's own marks would be most of what is shown.
_LEAST_STRUCTURE_CHARS = 600
_ID_PREFIX = "dcm_"
# Where a result stands: in a tool message, and in an item of the Responses API.
_SAID = frozenset({"content", "output"})
# Where text stands in a part.
_PRINTED = frozenset({"text", "stdout", "stderr"})
_ID_DIGITS = 32


def context_id(chain: bytes) -> str:
    """The id under which the whole message is read: `GET /api/context/{id}` (C10)."""
    return _ID_PREFIX + chain.hex()[:_ID_DIGITS]


def text_of(fields: Mapping[str, Any]) -> str:
    """A message's text: its content string, or its text parts joined; "" when it has none."""
    content = fields.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in content if _is_text_part(part))


def masked(raw: bytes, mask: Mask) -> bytes:
    """The message with its text shortened to `mask.limit_chars`; every other byte as it was.

    A text already that short is left alone. Non-text parts stay; text parts that fall wholly into
    what is left out are dropped, as an empty text part is refused by some upstreams.
    """
    text = raw.decode("utf-8", "surrogatepass")
    for key, start, stop in members(text):
        if key in _SAID:
            value = _shown_value(text, start, mask)
            if value is not None:
                return (text[:start] + value + text[stop:]).encode("utf-8", "surrogatepass")
    return raw


def shown(text: str, limit_chars: int, reference: str) -> str:
    """What of a text is shown when it may take `limit_chars`, marker included; the text if it is no longer.

    JSON stays JSON where it can: arrays keep at most 50 items and say "50 of m", long texts are cut
    inside objects (A08). All else is cut plainly. The marker is not cut: a limit below it is exceeded.
    """
    if len(text) <= limit_chars:
        return text
    if limit_chars >= _LEAST_STRUCTURE_CHARS and len(text) <= _STRUCTURE_CHARS:
        shorter = structured(text, limit_chars, reference)
        if shorter is not None:
            return shorter
    return cut(text, limit_chars, reference)


def _shown_value(text: str, start: int, mask: Mask) -> str | None:
    reference = context_id(mask.chain)
    whole = string_at(text, start)
    if whole is not None:
        return None if len(whole) <= mask.limit_chars else encoded(shown(whole, mask.limit_chars, reference))
    if text[start] != "[":
        return None
    spans = list(elements(text, start))
    texts = [_part_text(text, at) for at, _ in spans]
    joined = "".join(part[2] for part in texts if part)
    if len(joined) <= mask.limit_chars:
        return None
    if sum(1 for part in texts if part and part[2]) == 1:
        return _one_part(text, spans, texts, shown(joined, mask.limit_chars, reference))
    kept_chars = max(0, mask.limit_chars - marker_room(joined, reference))
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
        # The marker stands where the head ends: in the first part that is not whole.
        is_marked = True
        if value := first + left_out + last:
            pieces.append(text[at:start] + encoded(value) + text[stop:end])
    return "[" + ",".join(pieces) + "]"


def _part_text(text: str, at: int) -> tuple[int, int, str] | None:
    """Where the text of a text part stands, and the text; None for any other part.

    Of a command's output in the Responses API, which says no type, the longer of its two streams.
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
