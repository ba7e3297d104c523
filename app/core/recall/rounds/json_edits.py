"""One value in a JSON text replaced or taken out, every other byte kept.

Knows nothing of chat. Works on text that `json_text.verify` accepts.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.wire.json_members import raw_members
from app.core.wire.json_spans import Span, outline
from app.core.wire.json_text import encoded

_WRAP = b'{"e":'


def replaced(text: bytes, path: Sequence[str | int], value: bytes | None) -> bytes:
    """`text` with `value` at `path` (keys and positions from the outermost value on).

    A `value` of None takes the member out; then its object, and no other, is written anew. What is not there
    stays so.
    """
    span = _span(text, path[0])
    if span is None:
        return text
    start, end = span
    if len(path) > 1:
        inner = replaced(text[start:end], path[1:], value)
    elif value is None:
        return _without(text, str(path[0]))
    else:
        inner = value
    return text[:start] + inner + text[end:]


def _span(text: bytes, at: str | int) -> Span | None:
    if isinstance(at, str):
        member = outline(text).last(at)
        return (member.start, member.end) if member else None
    wrapped = outline(_WRAP + text + b"}").members[0].elements
    if at >= len(wrapped):
        return None
    start, end = wrapped[at]
    return start - len(_WRAP), end - len(_WRAP)


def _without(text: bytes, key: str) -> bytes:
    kept = [encoded(name) + b":" + raw for name, raw in raw_members(text).items() if name != key]
    return b"{" + b",".join(kept) + b"}"
