"""A tool result shown shortened: its head, a marker, its tail.

A function of the message's bytes, the limit and the marker's reference, so that a view is rebuilt byte for
byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.history.message import Message
from palimpsest.core.view.json_results import cut, ends, marker, structured
from palimpsest.core.wire.json_spans import raw_elements, raw_members, replaced
from palimpsest.core.wire.json_text import array_of, decoded, encoded
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
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))


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


def _shown_value(message: Message, value: bytes, limit_chars: int, reference: str) -> bytes | None:
    content = message.fields.get("content")
    if value.startswith(b'"') and isinstance(content, str):
        return None if len(content) <= limit_chars else encoded(shown(content, limit_chars, reference))
    parts = raw_elements(value) if value.startswith(b"[") else []
    texts = [_part_text(part) for part in parts]
    joined = "".join(text for _, text in texts)
    if len(joined) <= limit_chars:
        return None
    filled = [place for place, (_, text) in enumerate(texts) if text]
    if len(filled) == 1:
        shorter = {filled[0]: shown(joined, limit_chars, reference)}
    else:
        shorter = _head_and_tail([text for _, text in texts], len(joined), limit_chars, reference)
    return array_of(
        replaced(part, (key,), encoded(shorter[place])) if place in shorter else part
        for place, (part, (key, _)) in enumerate(zip(parts, texts, strict=True))
        if shorter.get(place) != ""
    )


def _head_and_tail(texts: list[str], total: int, limit_chars: int, reference: str) -> dict[int, str]:
    """What is left, by place, of the texts that are cut when all are shown as if they were one."""
    whole = marker(total, total, reference)
    head, tail = ends(max(0, limit_chars - len(whole)))
    shorter: dict[int, str] = {}
    offset = 0
    for place, value in enumerate(texts):
        first = value[: max(0, head - offset)]
        last = value[max(0, min(len(value), total - tail - offset)) :]
        offset += len(value)
        if len(value) not in (len(first), len(last)):
            # The marker stands where the head ends: in the first part that is not complete.
            left_out = "" if shorter else marker(total - head - tail, total, reference)
            shorter[place] = first + left_out + last
    return shorter


def _part_text(raw: bytes) -> tuple[str, str]:
    """The member of a part that is its text, and the text; both "" for a part of another kind.

    A command's output in the Responses API has no type; of its two streams the longer one counts.
    """
    fields = decoded(raw)
    said = fields if isinstance(fields, dict) else {}
    kind = said.get("type")
    known = {key: text for key, text in said.items() if key in _PRINTED and isinstance(text, str)}
    text = known.pop("text", "")
    if isinstance(kind, str):
        return ("text", text) if kind in TEXT_PARTS else ("", "")
    return max(known.items(), key=lambda printed: len(printed[1]), default=("", ""))


class _Built:
    """A cache of built results, emptied when it grows too large. Used from several threads."""

    def __init__(self) -> None:
        self.forget()

    def masked(self, message: Message, limit_chars: int, reference: str) -> Masked | None:
        """The message with its text shortened to `limit_chars`; every other byte as it was.

        None where the text is no longer than that. Non-text parts stay. Text parts that are left out entirely
        are dropped, as some upstreams refuse an empty text part. `reference` says how the rest is read,
        "" that it is not. Built once for the same message and limit.
        """
        key = (message.digest, limit_chars, reference)
        if (known := self._known.get(key)) is not None:
            return known[0]
        made: Masked | None = None
        for name, value in raw_members(message.raw).items():
            short = _shown_value(message, value, limit_chars, reference) if name in RESULT_MEMBERS else None
            if short is not None:
                raw = replaced(message.raw, (name,), short)
                made = Masked(raw, text_of(as_chat(decoded(raw))))
                break
        size = len(made.raw) + len(made.text) if made else 0
        if len(self._known) >= _KEPT or self._bytes + size > _KEPT_BYTES:
            self.forget()
        # In a tuple: None is the entry of a message that is shown whole.
        self._known[key] = (made,)
        self._bytes += size
        return made

    def forget(self) -> None:
        """Forgets all results, which are texts of conversations (P6)."""
        self._known: dict[tuple[bytes, int, str], tuple[Masked | None]] = {}
        self._bytes = 0


_BUILT = _Built()
masked, forget_masked = _BUILT.masked, _BUILT.forget
