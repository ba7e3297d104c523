"""A stored message told on the other wire than the one it came by: chat completions and the Responses API.

Only where a session is spoken on both and a request brings no more than what is new. What has no exact
counterpart is not told. Knows nothing of sessions, nor of where messages are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.core.wire.json_text import decoded, encoded
from app.core.wire.responses.items import as_chat

_SPEAKERS = frozenset({"user", "system", "developer"})
# Of an answer on chat completions: what it is told by, and what is nothing of it or for its client alone.
_TOLD = frozenset({"role", "content", "tool_calls"})
_LEFT_OUT = frozenset({"reasoning", "reasoning_content", "reasoning_details", "annotations", "id"})
_HINTS = frozenset({"cache_control", "prompt_cache_breakpoint"})
# Items of an answer that chat completions have a form for; thoughts are left out there, as by most clients.
_ITEMS = frozenset({"message", "function_call", "custom_tool_call", "reasoning"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class _NoCounterpart(Exception):
    """The other wire has no form for this."""


def told_in(raw: bytes, wire: str) -> bytes | None:
    """The message for `wire`: its own bytes where it is of that wire; None where it cannot be told exactly.

    Of the Responses API an answer is the array of its items, as everywhere here.
    """
    # Most are told apart without being read: an item has a type, or parts that have one.
    if raw.startswith(b"[") if wire == "responses" else raw.startswith(b"{") and b'"type"' not in raw:
        return raw
    value = decoded(raw)
    fields = as_chat(value)
    is_item = fields is not value or (isinstance(value, dict) and value.get("type") is not None)
    if is_item is (wire == "responses"):
        return raw
    if not _is_sound(value, fields):
        return None
    try:
        if wire == "responses":
            return raw if _is_plain(value) else encoded(_as_items(value))
        return encoded(_as_message(value, fields))
    except _NoCounterpart:
        return None


def _is_sound(value: Any, fields: Mapping[str, Any]) -> bool:
    """False for shapes that neither wire knows, which an upstream or a client may send all the same."""
    items = value if isinstance(value, list) else [value]
    parts, calls = fields.get("content"), fields.get("tool_calls") or []
    kinds = [fields.get("role"), *("message" if item.get("type") is None else item["type"] for item in items)]
    if isinstance(parts, list):
        kinds += [part.get("type") if isinstance(part, dict) else None for part in parts]
    are_calls = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    return are_calls and all(isinstance(kind, str) for kind in kinds)


def _is_plain(fields: Mapping[str, Any]) -> bool:
    """True for what both wires spell alike."""
    is_text = isinstance(fields.get("content"), str)
    return is_text and fields.get("role") in _SPEAKERS and fields.keys() == {"role", "content"}


def _as_message(value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {item.get("type") or "message" for item in value} if isinstance(value, list) else set()
    kind = "message" if isinstance(value, list) else value.get("type") or "message"
    is_told = fields.get("role") in _SPEAKERS | {"assistant"} if kind == "message" else kind in _RESULTS
    if not is_told or not kinds <= _ITEMS or "items" in fields:
        raise _NoCounterpart
    content = _each(fields.get("content"), _chat_part)
    told = {key: field for key, field in fields.items() if key in _TOLD | {"tool_call_id"}}
    return told | {"content": content if content is not None or told.get("tool_calls") else ""}


def _chat_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind not in ("text", "image_url", "file", "refusal"):
        raise _NoCounterpart
    image = part.get("image_url")
    if isinstance(image, dict):
        return {**part, "image_url": {key: field for key, field in image.items() if field is not None}}
    return dict(part)


def _as_items(fields: Mapping[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
    match fields.get("role"):
        case "assistant":
            return _items_of(fields)
        case "tool":
            output = _each(fields.get("content") or "", _item_part)
            call = fields.get("tool_call_id")
            return {"type": "function_call_output", "call_id": call, "output": output}
        case "user" | "system" | "developer" as role if _has_only(fields, {"role", "content"}):
            return {"role": role, "content": _each(fields.get("content"), _item_part)}
    raise _NoCounterpart


def _items_of(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    content, calls = fields.get("content"), fields.get("tool_calls") or []
    if not _has_only(fields, _TOLD | _LEFT_OUT):
        raise _NoCounterpart
    if isinstance(content, list):
        texts = [part.get("text") for part in content if part["type"] == "text"]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            raise _NoCounterpart
        content = "".join(texts)
    said = [{"type": "message", "role": "assistant", "content": content}] if content or not calls else []
    return [*said, *(_call_item(call) for call in calls)]


def _call_item(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    # A custom call's result is of another kind than a function's, and does not say so on chat completions.
    if not isinstance(function, dict):
        raise _NoCounterpart
    told = {"name": function.get("name"), "arguments": function.get("arguments") or "{}"}
    return {"type": "function_call", "call_id": call.get("id"), **told}


def _item_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if not _has_only(part, {"type", str(kind)} | _HINTS):
        raise _NoCounterpart
    said = part.get(str(kind))
    if kind == "text":
        return {"type": "input_text", "text": said}
    if kind == "image_url" and isinstance(said, dict):
        return {"type": "input_image", "image_url": said.get("url"), "detail": said.get("detail") or "auto"}
    if kind == "file" and isinstance(said, dict):
        return {"type": "input_file", **said}
    raise _NoCounterpart


def _has_only(fields: Mapping[str, Any], known: frozenset[str] | set[str]) -> bool:
    """True when every other field is empty."""
    return all(key in known or field in (None, "", [], {}) for key, field in fields.items())


def _each(content: Any, told: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [told(part) for part in content]
    return content
