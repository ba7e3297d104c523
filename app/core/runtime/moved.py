"""A compaction as it goes to another archive: the messages it names by their places there.

An archive names messages by chains of its own namespace (`chain.py`), so that a record must be named
anew. Knows nothing of events nor of stores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec

from app.core.history.conversation import Conversation
from app.core.view.compaction import Compaction
from app.core.wire.json_text import decoded, encoded
from app.errors import InvalidJson

_NAME = re.compile(r"dcm_[0-9a-f]{32}")


def moved_out(compaction: Compaction, talk: Conversation) -> bytes | None:
    """The record as JSON, messages by their index in `talk`; None when it names one that is not there."""
    record: dict[str, Any] = {field.name: getattr(compaction, field.name) for field in fields(compaction)}
    masks = compaction.masks
    places = {chain: talk.position(chain) for chain in (*compaction.kept, *(mask.chain for mask in masks))}
    watermark = talk.position(compaction.watermark) if compaction.watermark else -1
    if watermark is None or None in places.values():
        return None
    record |= {
        "watermark": watermark,
        "kept": [places[chain] for chain in compaction.kept],
        "masks": [{"message": places[mask.chain], "limit_chars": mask.limit_chars} for mask in masks],
        "state": compaction.state.decode(),
        "details": compaction.details.decode(),
    }
    return encoded(record)


def moved_in(record: bytes, talk: Conversation, names: Mapping[str, str]) -> Compaction | None:
    """The compaction that the JSON tells of, for `talk`; None when it cannot be read.

    `names` are the ids of messages here by those there: texts that name a message name it rightly.
    """
    try:
        told = decoded(_NAME.sub(lambda name: names.get(name[0], name[0]), record.decode()).encode())
        masks = [
            {"chain": _chain(talk, mask["message"]), "limit_chars": mask["limit_chars"]}
            for mask in told["masks"]
        ]
        told |= {
            "watermark": b"" if told["watermark"] == -1 else _chain(talk, told["watermark"]),
            "kept": [_chain(talk, place) for place in told["kept"]],
            "masks": masks,
            "state": told["state"].encode(),
            "details": told["details"].encode(),
        }
        return msgspec.convert(told, Compaction, builtin_types=(bytes,))
    except (InvalidJson, ValueError, TypeError, KeyError, IndexError, AttributeError):
        # Damaged, or of another kind: the messages are all there without it.
        return None


def _chain(talk: Conversation, place: Any) -> bytes:
    if not isinstance(place, int) or place < 0:
        raise IndexError(place)
    return talk.chains[place]
