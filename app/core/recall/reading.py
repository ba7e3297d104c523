"""What of a stored row is searched: a message's text and calls, a summary without its fence.

Knows nothing of indexes. The text of a message without calls is the one `GET /api/context` pages through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.summary.fence import unfenced
from app.core.view.masking import text_of
from app.core.wire.json_text import decoded

# Characters of one text that are searched: what is longer is data more often than not.
MOST_CHARS = 2_000_000


def message_text(body: bytes) -> str:
    """The text of a message's exact bytes, its tool calls below; "" for what has neither."""
    fields = decoded(body)
    if not isinstance(fields, Mapping):
        return ""
    calls = [_call_text(call) for call in fields.get("tool_calls") or () if isinstance(call, Mapping)]
    return "\n".join(part for part in (text_of(fields), *calls) if part)[:MOST_CHARS]


def summary_text(body: bytes) -> str:
    """The text of a compaction's summary."""
    return unfenced(body.decode("utf-8", "surrogatepass"))


def _call_text(call: Mapping[str, Any]) -> str:
    called = call.get("function") or call.get("custom")
    if not isinstance(called, Mapping):
        return ""
    said = called.get("arguments", called.get("input", ""))
    return f"{called.get('name', '')} {said if isinstance(said, str) else ''}".strip()
