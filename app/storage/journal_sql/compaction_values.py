"""A compaction as plain values, and back: what a row of it holds.

Must not know which table the row is in.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from app.core.view.compaction import Compaction, Mask
from app.storage.database import Params, plain, plain_or_none
from app.storage.packing import packed, unpacked

_MASK = struct.Struct(">32sQ")


def values_of(compaction: Compaction) -> Params:
    """Text, bytes and whole numbers, by the names of the fields."""
    return {
        "id": compaction.id,
        "kind": compaction.kind,
        "watermark": compaction.watermark,
        "kept": packed(compaction.kept),
        "masks": b"".join(_MASK.pack(mask.chain, mask.limit_chars) for mask in compaction.masks),
        # A summary may quote half of a surrogate pair, as its messages may.
        "summary": compaction.summary.encode("utf-8", "surrogatepass"),
        "policy": compaction.policy,
        "trigger": compaction.trigger,
        "author": compaction.author,
        "model": plain_or_none(compaction.model),
        "tokens_before": compaction.tokens_before,
        "tokens_after": compaction.tokens_after,
        "messages_folded": compaction.messages_folded,
        "parents": json.dumps(compaction.parents),
        "reason": plain(compaction.reason),
        "state": compaction.state,
        "details": compaction.details,
        "memory": compaction.memory.encode("utf-8", "surrogatepass"),
    }


def compaction_of(values: Mapping[str, Any]) -> Compaction:
    """The compaction that has these values; ValueError for a damaged one."""
    fields = dict(values)
    try:
        fields["kept"] = unpacked(fields["kept"])
        fields["masks"] = tuple(Mask(*mask) for mask in _MASK.iter_unpack(fields["masks"]))
    except struct.error as error:
        raise ValueError("the record of a compaction is damaged") from error
    fields["summary"] = fields["summary"].decode("utf-8", "surrogatepass")
    # Rows of before there was one have none.
    fields["memory"] = (fields["memory"] or b"").decode("utf-8", "surrogatepass")
    fields["parents"] = tuple(json.loads(fields["parents"]))
    return Compaction(**fields)
