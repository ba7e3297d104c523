"""A tool result shown shortened: its head, a marker that says where the rest can be read, its tail.

A pure function of the message's bytes and its mask, so that a view is rebuilt byte for byte. Knows
nothing of windows nor of which results ought to be masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.view.compaction import Mask
from app.core.view.splice import elements, encoded, members, string_at

# How much of what stays is taken from the start (A20).
_HEAD_SHARE = 0.7
# An array keeps so many of its items (A08).
_ARRAY_ITEMS = 50
# Above this many characters a text is cut without being read as JSON: a view is built every turn.
_STRUCTURE_CHARS = 1_000_000
# Below it an object's own marks would be most of what is shown.
_LEAST_STRUCTURE_CHARS = 600
_ID_PREFIX = "dcm_"
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
        if key == "content":
            value = _shown_value(text, start, mask)
            if value is not None:
                return (text[:start] + value + text[stop:]).encode("utf-8", "surrogatepass")
    return raw


def shown(text: str, limit_chars: int, reference: str) -> str:
    """What of a text is shown when `limit_chars` of it may stay; the text itself when it is no longer.

    A JSON array keeps 50 items and says "50 of m"; an object with a long `content` is cut inside
    it and stays an object; all else, and what is still too long then, is cut plainly (A08).
    """
    if len(text) <= limit_chars:
        return text
    if limit_chars >= _LEAST_STRUCTURE_CHARS and len(text) <= _STRUCTURE_CHARS:
        structured = _structured(text, limit_chars, reference)
        if structured is not None and len(structured) <= limit_chars:
            return structured
    head, tail = _ends(limit_chars)
    return text[:head] + _marker(len(text) - head - tail, len(text), reference) + text[len(text) - tail :]


def _shown_value(text: str, start: int, mask: Mask) -> str | None:
    reference = context_id(mask.chain)
    whole = string_at(text, start)
    if whole is not None:
        return None if len(whole) <= mask.limit_chars else encoded(shown(whole, mask.limit_chars, reference))
    if text[start] != "[":
        return None
    spans = list(elements(text, start))
    texts = [_part_text(text, at) for at, _ in spans]
    total = sum(len(part[2]) for part in texts if part)
    if total <= mask.limit_chars:
        return None
    return _shown_parts(text, spans, texts, mask.limit_chars, reference)


def _shown_parts(
    text: str,
    spans: list[tuple[int, int]],
    texts: list[tuple[int, int, str] | None],
    limit_chars: int,
    reference: str,
) -> str:
    """The list of parts with head and tail taken over all texts as if they were one."""
    total = sum(len(part[2]) for part in texts if part)
    head, tail = _ends(limit_chars)
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
        marker = "" if is_marked else _marker(total - head - tail, total, reference)
        # The marker stands where the head ends: in the first part that is not whole.
        is_marked = True
        if value := first + marker + last:
            pieces.append(text[at:start] + encoded(value) + text[stop:end])
    return "[" + ",".join(pieces) + "]"


def _part_text(text: str, at: int) -> tuple[int, int, str] | None:
    """Where the text of a text part stands, and the text; None for any other part."""
    if text[at] != "{":
        return None
    kind, place = None, None
    for key, start, stop in members(text, at):
        value = string_at(text, start)
        if key == "type":
            kind = value
        elif key == "text" and value is not None:
            place = (start, stop, value)
    return place if kind == "text" else None


def _structured(text: str, limit_chars: int, reference: str) -> str | None:
    """A JSON array or object shortened as such; None when the text is neither."""
    opening = text.lstrip()[:1]
    try:
        if opening == "[":
            return _fewer_items(text, reference)
        if opening == "{":
            return _shorter_content(text, limit_chars, reference)
    except (ValueError, IndexError, RecursionError):
        # Not JSON after all, or too deep to be read.
        return None
    return None


def _fewer_items(text: str, reference: str) -> str | None:
    spans = list(elements(text))
    if len(spans) <= _ARRAY_ITEMS:
        return None
    head, tail = _ends(_ARRAY_ITEMS)
    items = [text[start:stop] for start, stop in (*spans[:head], *spans[-tail:])]
    note = f"[... {_ARRAY_ITEMS} of {len(spans)} items shown; the whole result: {_where(reference)} ...]"
    return "[" + ",".join([*items[:head], encoded(note), *items[head:]]) + "]"


def _shorter_content(text: str, limit_chars: int, reference: str) -> str | None:
    for key, start, stop in members(text):
        value = string_at(text, start) if key == "content" else None
        if value is None:
            continue
        # The marker and the escapes of the kept text need room too.
        spare = limit_chars - (len(text) - (stop - start)) - len(_marker(0, len(value), reference)) - 20
        if spare <= 0 or len(value) <= spare:
            return None
        spare = int(spare * len(value) / (stop - start))
        head, tail = _ends(spare)
        cut = (
            value[:head]
            + _marker(len(value) - head - tail, len(value), reference)
            + value[len(value) - tail :]
        )
        return text[:start] + encoded(cut) + text[stop:]
    return None


def _ends(limit: int) -> tuple[int, int]:
    head = int(limit * _HEAD_SHARE)
    return head, limit - head


def _marker(left_out: int, whole: int, reference: str) -> str:
    return (
        f"\n[... {left_out:,} of {whole:,} characters left out; the whole result: {_where(reference)} ...]\n"
    )


def _where(reference: str) -> str:
    # The id once only: 32 hex digits cost some 20 tokens in every marker.
    return f"GET /api/context/{reference}"


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
