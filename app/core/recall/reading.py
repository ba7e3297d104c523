"""What of a stored row is searched: a message's text and calls, a summary without its fence.

Knows nothing of indexes. The text of a message without calls is the one `GET /api/context` pages through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.recall.echo import is_echo, is_recall_tool, may_echo, without_blocks
from app.core.text.fence import unfenced
from app.core.view.masking import text_of
from app.core.wire.json_text import decoded
from app.core.wire.responses.items import as_chat

# Characters of one text that are searched: two million tokens, more than any window takes.
MOST_CHARS = 8_000_000


def message_text(body: bytes) -> str:
    """The text of a message's exact bytes, its tool calls below; "" for what has neither."""
    return whole_text(body)[:MOST_CHARS]


def whole_text(body: bytes) -> str:
    """As `message_text`, however long it is."""
    fields = as_chat(decoded(body))
    if not isinstance(fields, Mapping):
        return ""
    return "\n".join(part for part in (text_of(fields), *_calls(fields)) if part)


def own_text(body: bytes) -> str:
    """What of a message is looked for by its words: all but echoes of what is stored already (C07)."""
    if not may_echo(body):
        return message_text(body)
    fields = as_chat(decoded(body))
    if not isinstance(fields, Mapping) or is_echo(fields):
        return ""
    said = without_blocks(text_of(fields))
    return "\n".join(part for part in (said, *_calls(fields, echoes=False)) if part)[:MOST_CHARS]


def is_echo_body(body: bytes) -> bool:
    """True for the bytes of a message that is only an echo (C08)."""
    if not may_echo(body):
        return False
    fields = as_chat(decoded(body))
    return isinstance(fields, Mapping) and is_echo(fields)


def _calls(fields: Mapping[str, Any], *, echoes: bool = True) -> list[str]:
    told = fields.get("tool_calls")
    # What a client or an upstream sends may have any shape.
    calls = [call for call in told if isinstance(call, Mapping)] if isinstance(told, list) else []
    return [_call_text(call) for call in calls if echoes or not is_recall_tool(call)]


def summary_text(body: bytes) -> str:
    """The text of a compaction's summary."""
    return unfenced(body.decode("utf-8", "surrogatepass"))


def _call_text(call: Mapping[str, Any]) -> str:
    called = call.get("function") or call.get("custom")
    if not isinstance(called, Mapping):
        return ""
    said = called.get("arguments", called.get("input", ""))
    return f"{called.get('name', '')} {said if isinstance(said, str) else ''}".strip()
