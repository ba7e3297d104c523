"""How many tokens one chat message takes in a prompt, framing included.

Knows nothing of budgets or of where messages come from. Text and framing follow OpenAI's cookbook
("How to count tokens with tiktoken": 3 a message, 1 for a name); images their published rules; tool
calls, audio and files are estimates, since nothing is published, and calibration corrects them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from app.tokenizer.images import Patches, Tiles, image_tokens

# <|im_start|>, the line feed after the role, <|im_end|>.
MESSAGE_TOKENS = 3
NAME_TOKENS = 1
# Every answer is primed with <|start|>assistant<|message|>: once a request, not once a message.
REPLY_TOKENS = 3
# Recipient, channel and closing of one tool call around its name and arguments.
TOOL_CALL_TOKENS = 6
# Input audio costs 10 tokens a second (600 a minute by OpenAI's price list).
AUDIO_TOKENS_PER_SECOND = 10
# 16-bit mono at 24 kHz, and 128 kbit/s: what the APIs' own examples send.
_AUDIO_BYTES_PER_SECOND = {"wav": 48_000, "pcm16": 48_000}
_COMPRESSED_BYTES_PER_SECOND = 16_000
# A file is read as text and, for a PDF, as one picture a page.
_FILE_TOKENS_PER_PAGE = 1_500
_FILE_BYTES_PER_PAGE = 50_000
# Base64 in a part of another kind, as a data URL or bare; shorter runs without a blank may be words.
_ENCODED = re.compile(r"(?:data:[^,]{0,200};base64,)?([A-Za-z0-9+/_-]{1024,}={0,2})")
# Sealed thoughts are sent as base64, four characters for three bytes; a token of English is four bytes.
_TOKENS_PER_SEALED_CHAR = 3 / 16
# An earlier spoken answer, named by id only: half a minute.
_AUDIO_ID_TOKENS = 300

# Not part of a prompt, or said a second time in another field.
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


class MessageCounter:
    """Counts messages, given how texts are counted and what images cost."""

    def __init__(self, count_text: Callable[[str], int], image_price: Tiles | Patches) -> None:
        self._count_text = count_text
        self._image_price = image_price

    def count(self, fields: Mapping[str, Any]) -> int:
        """Tokens of the message in a prompt, at least 4; never raises, whatever the fields hold.

        The framing of a request (`REPLY_TOKENS`) is not in it.
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
                return self._content(value)
            case "name":
                return NAME_TOKENS + self._text(value)
            case "tool_calls":
                return (
                    sum(self._call(call) for call in value) if isinstance(value, list) else self._json(value)
                )
            case "function_call":
                return self._call({"function": value})
            case "reasoning_content" | "reasoning" | "reasoning_details":
                # The same thoughts under several names, as some servers send them: counted once.
                first = not said
                said.add(name)
                return self._json(value) if first else 0
            case "encrypted_reasoning":
                return sum(math.ceil(len(text) * _TOKENS_PER_SEALED_CHAR) for text in _texts(value))
            case "audio":
                return _AUDIO_ID_TOKENS
            case _:
                return self._json(value)

    def _content(self, content: Any) -> int:
        if isinstance(content, list):
            return sum(self._part(part) for part in content)
        return self._json(content)

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
        return self._count_text(value) if isinstance(value, str) else self._json(value)

    def _json(self, value: Any) -> int:
        if isinstance(value, str):
            return self._count_text(value)
        if value is None:
            return 0
        return self._count_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


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
    """A part of a kind that we do not know without its encoded bytes, and how many those are.

    What a vendor adds tomorrow will carry its bytes as today's parts do: nobody reads them as text.
    """
    if isinstance(value, str):
        encoded = _ENCODED.fullmatch(value)
        return ("", _decoded_bytes(encoded[1])) if encoded else (value, 0)
    if isinstance(value, Mapping):
        inner = {key: _without_bytes(item) for key, item in value.items()}
        return {key: bare for key, (bare, _) in inner.items()}, sum(size for _, size in inner.values())
    if isinstance(value, list):
        items = [_without_bytes(item) for item in value]
        return [bare for bare, _ in items], sum(size for _, size in items)
    return value, 0
