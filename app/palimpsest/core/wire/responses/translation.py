"""Translates stored messages between chat completions and the Responses API.

Needed only when a session is used on both APIs and a request brings new messages only. A message without an
exact counterpart is not translated. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.core.wire.responses.items import as_chat

_INPUT_ROLES = frozenset({"user", "system", "developer"})
# Fields of a chat completion's message: those that are translated, and those that are left out because they
# are not content, or only for the client.
_KEPT = frozenset({"role", "content", "tool_calls"})
_LEFT_OUT = frozenset({"reasoning", "reasoning_content", "reasoning_details", "annotations", "id"})
_HINTS = frozenset({"cache_control", "prompt_cache_breakpoint"})
# Items of an answer with a counterpart in chat completions; reasoning is left out there, as most clients do.
_ITEMS = frozenset({"message", "function_call", "custom_tool_call", "reasoning"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class _NoCounterpart(Exception):
    """The other wire has no form for this."""


def translated_to_chat(raw: bytes) -> bytes | None:
    """The message in the form of chat completions; None when it has no exact counterpart."""
    # Spares decoding most messages: an item has a type, or parts that have one.
    if raw.startswith(b"{") and b'"type"' not in raw:
        return raw
    value = decoded(raw)
    fields = as_chat(value)
    if not _is_item(value, fields):
        return raw
    if not _is_sound(value, fields):
        return None
    kinds = {item.get("type") or "message" for item in value} if isinstance(value, list) else set()
    kind = "message" if isinstance(value, list) else value.get("type") or "message"
    is_known = fields.get("role") in _INPUT_ROLES | {"assistant"} if kind == "message" else kind in _RESULTS
    if not is_known or not kinds <= _ITEMS or "items" in fields:
        return None
    try:
        content = _each(fields.get("content"), _chat_part)
    except _NoCounterpart:
        return None
    kept = {key: field for key, field in fields.items() if key in _KEPT | {"tool_call_id"}}
    return encoded(kept | {"content": content if content is not None or kept.get("tool_calls") else ""})


def translated_to_items(raw: bytes) -> bytes | None:
    """The message as an item, an answer as the array of its items; None without an exact counterpart."""
    if raw.startswith(b"["):
        return raw
    value = decoded(raw)
    fields = as_chat(value)
    if _is_item(value, fields):
        return raw
    if not _is_sound(value, fields):
        return None
    try:
        # Both APIs spell the plainest messages alike.
        is_text = isinstance(value.get("content"), str) and value.keys() == {"role", "content"}
        return raw if is_text and value.get("role") in _INPUT_ROLES else encoded(_as_items(value))
    except _NoCounterpart:
        return None


def _is_item(value: Any, fields: Any) -> bool:
    return fields is not value or (isinstance(value, dict) and value.get("type") is not None)


def _is_sound(value: Any, fields: Mapping[str, Any]) -> bool:
    """False for shapes that neither API defines; upstreams and clients may send them all the same."""
    items = value if isinstance(value, list) else [value]
    parts, calls = fields.get("content"), fields.get("tool_calls") or []
    kinds = [fields.get("role"), *("message" if item.get("type") is None else item["type"] for item in items)]
    if isinstance(parts, list):
        kinds += [part.get("type") if isinstance(part, dict) else None for part in parts]
    are_calls = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    return are_calls and all(isinstance(kind, str) for kind in kinds)


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
    if not _has_only(fields, _KEPT | _LEFT_OUT):
        raise _NoCounterpart
    if isinstance(content, list):
        texts = [part.get("text") for part in content if part["type"] == "text"]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            raise _NoCounterpart
        content = "".join(texts)
    said: list[dict[str, Any]] = []
    if content or not calls:
        said.append({"type": "message", "role": "assistant", "content": content})
    for call in calls:
        function = call.get("function")
        # The result of a custom call has a type of its own in items, which its chat message does not show.
        if not isinstance(function, dict):
            raise _NoCounterpart
        named = {"name": function.get("name"), "arguments": function.get("arguments") or "{}"}
        said.append({"type": "function_call", "call_id": call.get("id"), **named})
    return said


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
    """True when every field that is not `known` is empty."""
    return all(key in known or field in (None, "", [], {}) for key, field in fields.items())


def _each(content: Any, translated: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [translated(part) for part in content]
    return content
