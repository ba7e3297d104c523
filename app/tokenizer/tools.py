"""How many tokens the `tools` of a request add to its prompt.

Knows nothing of messages. OpenAI writes tools into the prompt as TypeScript; the constants are those of
OpenAI's cookbook ("How to count tokens with tiktoken", section on tool calls), which agree with the API
on flat schemas. Every other server's template writes them as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_FUNCTION = 7
_PROPERTIES = 3
_PROPERTY = 3
_ENUM = -3
_ENUM_ITEM = 3
_END = 12
# Schemas nest; one deeper than this is counted as the JSON it is.
_DEPTH = 12


def count_tools(raw: bytes, count_text: Callable[[str], int], *, as_typescript: bool) -> int:
    """Tokens of `raw`, the request's `tools` as sent; 0 for an empty or absent list, never an error."""
    try:
        tools = msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return count_text(raw.decode("utf-8", "replace"))
    if not tools:
        return 0
    if not as_typescript or not isinstance(tools, list):
        return count_text(raw.decode("utf-8", "replace"))
    return _END + sum(_tool(tool, count_text) for tool in tools)


def _tool(tool: Any, count_text: Callable[[str], int]) -> int:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        return _FUNCTION + _json(tool, count_text)
    tokens = _FUNCTION + count_text(f"{function.get('name')}:{_description(function)}")
    return tokens + _properties(function.get("parameters"), count_text, _DEPTH)


def _properties(schema: Any, count_text: Callable[[str], int], depth: int) -> int:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return 0
    if depth == 0:
        return _json(schema, count_text)
    named = (_property(name, value, count_text, depth) for name, value in properties.items())
    return _PROPERTIES + sum(named)


def _property(name: str, schema: Any, count_text: Callable[[str], int], depth: int) -> int:
    if not isinstance(schema, Mapping):
        return _PROPERTY + _json(schema, count_text)
    kind = schema.get("type") or "any"
    tokens = _PROPERTY + count_text(f"{name}:{kind}:{_description(schema)}")
    values = schema.get("enum")
    if isinstance(values, list):
        tokens += _ENUM + sum(_ENUM_ITEM + _json(value, count_text) for value in values)
    inner = [schema, schema.get("items"), *_alternatives(schema)]
    return tokens + sum(_properties(one, count_text, depth - 1) for one in inner)


def _alternatives(schema: Mapping[str, Any]) -> list[Any]:
    found = [schema.get(key) for key in ("anyOf", "oneOf", "allOf")]
    return [one for group in found if isinstance(group, list) for one in group]


def _description(schema: Mapping[str, Any]) -> str:
    text = schema.get("description")
    return text.removesuffix(".") if isinstance(text, str) else ""


def _json(value: Any, count_text: Callable[[str], int]) -> int:
    return count_text(value if isinstance(value, str) else msgspec.json.encode(value).decode())
