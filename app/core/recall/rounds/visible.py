"""What a client is shown of a whole answer that came with our tools: its own calls, honest counts.

Pure. Of an answer that calls nothing of ours, behind no hidden round, not a byte is changed.
"""

from __future__ import annotations

from app.core.recall.rounds.calls import Called, is_ours
from app.core.recall.rounds.json_edits import replaced
from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_text import decoded

_ANNOUNCING = (b'"tool_calls"', b'"function_call"')
CALLS = ("choices", 0, "message", "tool_calls")


def visible_answer(body: bytes, called: Called, hidden_tokens: int) -> bytes:
    """The answer without our calls, its completion with `hidden_tokens` of earlier rounds (rule 17)."""
    if called.ours:
        body = _without_ours(body, called)
    return with_tokens(body, hidden_tokens)


def with_tokens(body: bytes, hidden_tokens: int) -> bytes:
    """The counts of an answer, or of a chunk, with the completion tokens of hidden rounds added."""
    if not hidden_tokens:
        return body
    usage = decoded(raw_members(body).get("usage", b"null"))
    for key in ("completion_tokens", "total_tokens"):
        count = usage.get(key) if isinstance(usage, dict) else None
        if isinstance(count, int) and not isinstance(count, bool):
            body = replaced(body, ("usage", key), str(count + hidden_tokens).encode())
    return body


def _without_ours(body: bytes, called: Called) -> bytes:
    if called.others:
        message = raw_members(raw_members(raw_elements(raw_members(body)["choices"])[0])["message"])
        kept = [raw for raw in raw_elements(message["tool_calls"]) if not is_ours(decoded(raw))]
        return replaced(body, CALLS, b"[" + b",".join(kept) + b"]")
    return stopped(replaced(body, CALLS, None))


def stopped(body: bytes) -> bytes:
    """The answer, or chunk, with an end that announces calls made a plain one."""
    choice = raw_members(raw_elements(raw_members(body)["choices"])[0])
    if choice.get("finish_reason") not in _ANNOUNCING:
        return body
    return replaced(body, ("choices", 0, "finish_reason"), b'"stop"')
