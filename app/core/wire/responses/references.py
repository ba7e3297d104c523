"""Items that are only named in a request, because the upstream keeps them: their words are not known here.

Knows nothing of how a request is answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_REFERENCE = "item_reference"


def names_kept_items(messages: Iterable[Mapping[str, Any]]) -> bool:
    """True when one of the messages, as `items.as_chat` gives them, is or holds an item's mere name.

    Such a conversation is no whole: what was folded of it, nobody could tell.
    """
    return any(_is_name(item) for fields in messages for item in _others(fields))


def _others(fields: Mapping[str, Any]) -> Iterable[Any]:
    items = fields.get("items")
    return items if isinstance(items, list) else ()


def _is_name(item: Any) -> bool:
    # The type may be left out: then there is nothing but an id.
    return isinstance(item, Mapping) and item.get("type", _REFERENCE) in (None, _REFERENCE)
