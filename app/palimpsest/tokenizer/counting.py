"""Counts the tokens of texts, chat messages and a request's `tools` in a prompt, framing included, by model.

Text and framing follow OpenAI's cookbook ("How to count tokens with tiktoken": 3 per message, 1 for a name),
and images OpenAI's published rules. Tool calls, audio and files are estimates, since nothing is published;
calibration corrects them. OpenAI renders tools as TypeScript; the constants are those of the cookbook's
section on tool calls, which agree with the API on flat schemas. Every other server's template renders them as
JSON.

Counting blocks the calling thread: about 0.15 us per character of English, 0.6 us of CJK. Long texts are
counted in another thread, where tiktoken releases the interpreter lock (`palimpsest.proxy.sessions.reader`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from palimpsest.tokenizer.images import image_tokens, price_for
from palimpsest.tokenizer.text import (
    EncodingName,
    TextCounter,
    encoding_name_for,
    encoding_of,
    is_openai_model,
)

# <|im_start|>, the line feed after the role, <|im_end|>.
MESSAGE_TOKENS = 3
NAME_TOKENS = 1
# Recipient, channel and end of one tool call, around its name and arguments.
TOOL_CALL_TOKENS = 6
# Input audio costs 10 tokens a second (600 a minute in OpenAI's price list).
AUDIO_TOKENS_PER_SECOND = 10
# 16-bit mono at 24 kHz, and 128 kbit/s for compressed formats, as in the APIs' own examples.
_AUDIO_BYTES_PER_SECOND = {"wav": 48_000, "pcm16": 48_000}
_COMPRESSED_BYTES_PER_SECOND = 16_000
# A file is read as text and, for a PDF, as one image per page.
_FILE_TOKENS_PER_PAGE = 1_500
_FILE_BYTES_PER_PAGE = 50_000
# Base64 in a part of an unknown type, as a data URL or bare; shorter runs without a blank may be words.
_BASE64 = re.compile(r"(?:data:[^,]{0,200};base64,)?([A-Za-z0-9+/_-]{1024,}={0,2})")
# Encrypted reasoning is base64: four characters for three bytes. A token of English has four bytes.
_TOKENS_PER_ENCRYPTED_CHAR = 3 / 16
# An earlier spoken answer, given by id only, is taken for half a minute.
_AUDIO_ID_TOKENS = 300

# Fields that are not part of a prompt, or repeat another field.
_NOT_IN_PROMPT = frozenset(
    {
        "role",
        "annotations",
        "provider_specific_fields",
        "tool_call_id",
        "id",
        "cache_control",
        "prompt_cache_breakpoint",
    }
)


# Of tools as TypeScript.
_FUNCTION = 7
_PROPERTIES = 3
_PROPERTY = 3
_ENUM = -3
_ENUM_ITEM = 3
_END = 12
# Levels of nested schemas; deeper ones are counted as JSON.
_DEPTH = 12


class Counter:
    """Counts texts, messages and tools for one model. Thread-safe."""

    def __init__(self, model: str, text: TextCounter) -> None:
        # Tokens of a text.
        self.count_text = text.count
        self._image_price = price_for(model)
        self._tools_are_typescript = is_openai_model(model)

    def count_message(self, fields: Mapping[str, Any]) -> int:
        """Tokens of the message in a prompt, at least 4; never raises, whatever the fields hold.

        Without <|start|>assistant<|message|>, which primes every answer, once per request.
        """
        tokens = MESSAGE_TOKENS + max(1, self._text(fields.get("role")))
        said: set[str] = set()
        for name, value in fields.items():
            if value is None or name in _NOT_IN_PROMPT:
                continue
            tokens += self._field(name, value, said)
        return tokens

    def _field(self, name: str, value: Any, said: set[str]) -> int:
        match name:
            case "content" | "refusal":
                return sum(map(self._part, value)) if isinstance(value, list) else self._json(value)
            case "name":
                return NAME_TOKENS + self._text(value)
            case "tool_calls":
                return (
                    sum(self._call(call) for call in value) if isinstance(value, list) else self._json(value)
                )
            case "function_call":
                return self._call({"function": value})
            case "reasoning_content" | "reasoning" | "reasoning_details":
                # Some servers send the same reasoning under several names: counted once.
                first = not said
                said.add(name)
                return self._json(value) if first else 0
            case "encrypted_reasoning":
                return sum(math.ceil(len(text) * _TOKENS_PER_ENCRYPTED_CHAR) for text in _texts(value))
            case "audio":
                return _AUDIO_ID_TOKENS
            case _:
                return self._json(value)

    def _part(self, part: Any) -> int:
        if not isinstance(part, Mapping):
            return self._json(part)
        match part.get("type"):
            case "text":
                return self._json(part.get("text"))
            case "refusal":
                return self._json(part.get("refusal"))
            case "image_url":
                return self._image(part.get("image_url"))
            case "input_audio":
                return _audio_tokens(part.get("input_audio"))
            case "file":
                return _file_tokens(part.get("file"))
            case _:
                said = {key: value for key, value in part.items() if key not in _NOT_IN_PROMPT}
                bare, encoded = _without_bytes(said)
                return self._json(bare) + _pages_tokens(encoded)

    def _image(self, image: Any) -> int:
        fields = image if isinstance(image, Mapping) else {"url": image}
        url, detail = fields.get("url"), fields.get("detail")
        return image_tokens(
            url if isinstance(url, str) else "",
            detail if isinstance(detail, str) else "auto",
            self._image_price,
        )

    def _call(self, call: Any) -> int:
        if not isinstance(call, Mapping):
            return self._json(call)
        body = call.get("function") or call.get("custom")
        if not isinstance(body, Mapping):
            return TOOL_CALL_TOKENS + self._json(call)
        said = (body.get(key) for key in ("name", "arguments", "input"))
        return TOOL_CALL_TOKENS + sum(self._json(value) for value in said if value is not None)

    def _text(self, value: Any) -> int:
        return self.count_text(value) if isinstance(value, str) else self._json(value)

    def _json(self, value: Any) -> int:
        if isinstance(value, str):
            return self.count_text(value)
        if value is None:
            return 0
        return self.count_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))

    def count_tools(self, raw: bytes) -> int:
        """Tokens of `raw`, the request's `tools` as sent; 0 for an empty or absent list. Never raises."""
        try:
            tools = msgspec.json.decode(raw) if raw else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.count_text(raw.decode("utf-8", "replace"))
        if not tools:
            return 0
        if not self._tools_are_typescript or not isinstance(tools, list):
            return self.count_text(raw.decode("utf-8", "replace"))
        return _END + sum(map(self._tool, tools))

    def _tool(self, tool: Any) -> int:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping):
            return _FUNCTION + self._json(tool)
        tokens = _FUNCTION + self.count_text(f"{function.get('name')}:{_description(function)}")
        return tokens + self._properties(function.get("parameters"), _DEPTH)

    def _properties(self, schema: Any, depth: int) -> int:
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(properties, Mapping) or not properties:
            return 0
        if depth == 0:
            return self._json(schema)
        return _PROPERTIES + sum(self._property(*named, depth) for named in properties.items())

    def _property(self, name: str, schema: Any, depth: int) -> int:
        if not isinstance(schema, Mapping):
            return _PROPERTY + self._json(schema)
        kind = schema.get("type") or "any"
        tokens = _PROPERTY + self.count_text(f"{name}:{kind}:{_description(schema)}")
        values = schema.get("enum")
        if isinstance(values, list):
            tokens += _ENUM + sum(_ENUM_ITEM + self._json(value) for value in values)
        groups = [schema.get(key) for key in ("anyOf", "oneOf", "allOf")]
        alternatives = [one for group in groups if isinstance(group, list) for one in group]
        inner = [schema, schema.get("items"), *alternatives]
        return tokens + sum(self._properties(one, depth - 1) for one in inner)


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _decoded_bytes(data: Any) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else 0


def _audio_tokens(audio: Any) -> int:
    fields = audio if isinstance(audio, Mapping) else {}
    rate = _AUDIO_BYTES_PER_SECOND.get(str(fields.get("format")), _COMPRESSED_BYTES_PER_SECOND)
    return max(1, math.ceil(_decoded_bytes(fields.get("data")) / rate * AUDIO_TOKENS_PER_SECOND))


def _file_tokens(file: Any) -> int:
    fields = file if isinstance(file, Mapping) else {}
    return max(_FILE_TOKENS_PER_PAGE, _pages_tokens(_decoded_bytes(fields.get("file_data"))))


def _pages_tokens(size: int) -> int:
    return math.ceil(size / _FILE_BYTES_PER_PAGE) * _FILE_TOKENS_PER_PAGE


def _without_bytes(value: Any) -> tuple[Any, int]:
    """A part of an unknown type without its base64 data, and the size of that data in bytes.

    New kinds of parts are expected to hold their data in base64, like known ones: it is not counted as text.
    """
    if isinstance(value, str):
        encoded = _BASE64.fullmatch(value)
        return ("", _decoded_bytes(encoded[1])) if encoded else (value, 0)
    if isinstance(value, Mapping):
        inner = {key: _without_bytes(item) for key, item in value.items()}
        return {key: bare for key, (bare, _) in inner.items()}, sum(size for _, size in inner.values())
    if isinstance(value, list):
        items = [_without_bytes(item) for item in value]
        return [bare for bare, _ in items], sum(size for _, size in items)
    return value, 0


def _description(schema: Mapping[str, Any]) -> str:
    text = schema.get("description")
    return text.removesuffix(".") if isinstance(text, str) else ""


class Tokenizer:
    """Makes counters. Call `load` at start, in the background, so that no request has to wait for it."""

    def __init__(self, override: EncodingName | None = None) -> None:
        self._override = override
        self._texts: dict[EncodingName, TextCounter] = {}

    def load(self) -> None:
        """Load the encoding of nearly all models (0.3 s); the other one is loaded when a model needs it."""
        encoding_of(self._override or "o200k_base")

    def counter_for(self, model: str, override: EncodingName | None = None) -> Counter:
        """The counter of `model`. The encoding is `override`, else the tokenizer's own, else the model's."""
        name = encoding_name_for(model, override or self._override)
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = TextCounter(encoding_of(name))
        return Counter(model, text)

    def forget(self) -> None:
        """Forget the texts counted last (P6)."""
        for text in self._texts.values():
            text.forget()
