"""Items that are only named in a request, because whoever answers is to know them.

Whose words are known here are those of answers that came through this program, by the ids that the upstream
gave them. Knows nothing of where answers are stored, nor of how a request is answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.core.wire.json_members import is_plain, raw_elements
from app.core.wire.json_text import decoded

_REFERENCE = "item_reference"
# The types under which an item may be one; it may be left out.
REFERENCES = (None, _REFERENCE)
# Ids are some 50 characters long. What is far longer is nobody's to find again, and no key of an index.
LONGEST_ID = 200
# What is nested deeper, or repeats a key, no client might send.
_LEVELS = 64


def names_kept_items(messages: Iterable[Mapping[str, Any]]) -> bool:
    """True when one of the messages, as `items.as_chat` gives them, is or holds an item's mere name.

    Such a conversation is no whole: what was folded of it, nobody could tell.
    """
    return any(_is_name(item) for fields in messages for item in _others(fields))


def kept_names(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of items that messages, as above, only name."""
    found = (name_in(item) for fields in messages for item in _others(fields))
    return [ident for ident in found if ident is not None]


def name_in(item: Any) -> str | None:
    """The id of the item that this one only names; None for any other.

    The type may be left out: then there is nothing but an id.
    """
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return None
    if item.get("type") is None and item.keys() - {"id", "type"}:
        return None
    return item["id"] if _is_name(item) else None


def ids_in(answer: bytes) -> tuple[str, ...]:
    """The ids by which a later request may name the items of an answer, each once; none of a chat message."""
    if not answer.startswith(b"["):
        return ()
    return tuple(dict.fromkeys(ident for ident, _ in _items(answer) if 0 < len(ident) <= LONGEST_ID))


def only_item(answers: Iterable[bytes], ident: str) -> bytes | None:
    """The item of this id in the answers, byte for byte; None without one, and where they differ.

    None as well for one that no client might have sent: it could not be told as if this one had.
    """
    found = {item for answer in answers for name, item in _items(answer) if name == ident}
    if len(found) != 1:
        return None
    (item,) = found
    return item if is_plain(item, _LEVELS) and _is_tellable(decoded(item)) else None


def _items(answer: bytes) -> Iterable[tuple[str, bytes]]:
    for raw in raw_elements(answer):
        item = decoded(raw)
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            yield item["id"], raw


def _is_tellable(item: Mapping[str, Any]) -> bool:
    """False for a name, which has no words, and for parts of a message that are none."""
    content = item.get("content")
    is_content = content is None or isinstance(content, str)
    if not is_content:
        is_content = isinstance(content, Sequence) and all(isinstance(part, dict) for part in content)
    return is_content and name_in(item) is None


def _others(fields: Mapping[str, Any]) -> Iterable[Any]:
    items = fields.get("items")
    return items if isinstance(items, list) else ()


def _is_name(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type", _REFERENCE) in REFERENCES
