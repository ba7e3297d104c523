# ruff: noqa: E501 - the cookbook's sentences stand unbroken

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.tokenizer.counting import MESSAGE_TOKENS, TOOL_CALL_TOKENS, Tokenizer
from palimpsest.tokenizer.images import Patches, Tiles, dimensions_of, image_tokens, price_for

TOKENIZER = Tokenizer()
COUNTER = TOKENIZER.counter_for("gpt-4o")
count, text = COUNTER.count_message, COUNTER.count_text


def cookbook(message: dict[str, str]) -> int:
    """`num_tokens_from_messages` of OpenAI's cookbook, for one message."""
    tokens = 3
    for key, value in message.items():
        tokens += text(value)
        if key == "name":
            tokens += 1
    return tokens


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "You are a helpful, pattern-following assistant."},
        {
            "role": "system",
            "name": "example_user",
            "content": "New synergies will help drive top-line growth.",
        },
        {"role": "user", "content": ""},
        {"role": "developer", "content": "東京 <|endoftext|>"},
        {"role": "assistant", "content": "Things working well together will increase revenue."},
    ],
)
def test_plain_messages_count_as_the_cookbook_says(message: dict[str, str]) -> None:
    assert count(message) == cookbook(message)


def test_the_cookbooks_own_example() -> None:
    """129 tokens, which is what the API reported for these messages (gpt-3.5-turbo and gpt-4)."""
    examples = [
        {"role": "system", "content": "You are a helpful, pattern-following assistant that translates corporate jargon into plain English."},
        {"role": "system", "name": "example_user", "content": "New synergies will help drive top-line growth."},
        {"role": "system", "name": "example_assistant", "content": "Things working well together will increase revenue."},
        {"role": "system", "name": "example_user", "content": "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage."},
        {"role": "system", "name": "example_assistant", "content": "Let's talk later when we're less busy about how to do better."},
        {"role": "user", "content": "This late pivot means we don't have time to boil the ocean for the client deliverable."},
    ]  # fmt: skip
    gpt_4 = TOKENIZER.counter_for("gpt-4")
    assert sum(gpt_4.count_message(message) for message in examples) + 3 == 129
    assert sum(count(message) for message in examples) + 3 == 124


def test_parts_count_as_their_text() -> None:
    whole = {"role": "user", "content": "one two"}
    parts = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]}
    assert count(parts) == count(whole)


def test_cache_hints_ids_and_nulls_are_free() -> None:
    plain = {"role": "assistant", "content": "x"}
    assert count(
        {**plain, "refusal": None, "annotations": [{"a": "b"}], "audio": None, "id": "chatcmpl-1"}
    ) == count(plain)
    hinted = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
    assert count({"role": "assistant", "content": hinted}) == count(plain)


def test_tool_calls_count_name_and_arguments() -> None:
    arguments = json.dumps({"path": "/etc/hosts", "lines": [1, 2, 3]})
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    custom = {"id": "call_2", "type": "custom", "custom": {"name": "shell", "input": "ls -la"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call, custom]}
    expected = MESSAGE_TOKENS + 1 + 2 * TOOL_CALL_TOKENS
    expected += text("read_file") + text(arguments) + text("shell") + text("ls -la")
    assert count(message) == expected
    legacy = {"role": "assistant", "function_call": {"name": "read_file", "arguments": arguments}}
    assert count(legacy) == MESSAGE_TOKENS + 1 + TOOL_CALL_TOKENS + text("read_file") + text(arguments)


def test_the_same_thoughts_are_counted_once() -> None:
    one = {"role": "assistant", "content": "x", "reasoning_content": "because of that"}
    assert count({**one, "reasoning": "because of that"}) == count(one) == 5 + text("because of that")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        "role",
        "content",
        "name",
        "tool_calls",
        "function_call",
        "audio",
        "refusal",
        "reasoning",
        "reasoning_details",
        "x",
    ]
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_audio", "file", "refusal", "odd"])},
    optional=dict.fromkeys(("text", "image_url", "input_audio", "file", "refusal"), JSON),
)


@given(st.dictionaries(FIELDS, JSON | st.lists(PARTS, max_size=3), max_size=5))
def test_any_fields_are_counted(fields: dict[str, Any]) -> None:
    assert count(fields) >= 4


# Images, audio, files: never their base64 as text.


def data_url(head: bytes, kind: str = "png", padding: int = 0) -> str:
    return f"data:image/{kind};base64," + base64.b64encode(head + bytes(padding)).decode()


def png(width: int, height: int, padding: int = 0) -> str:
    header = struct.pack(">II", width, height) + b"\x08\x06\x00\x00\x00"
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return data_url(b"\x89PNG\r\n\x1a\n" + chunk, padding=padding)


def jpeg(width: int, height: int, metadata: int) -> str:
    exif = b"\xff\xe1" + struct.pack(">H", metadata + 2) + bytes(metadata)
    table = b"\xff\xc4" + struct.pack(">H", 4) + b"\x00\x00"
    frame = b"\xff\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + b"\x03" + bytes(9)
    return data_url(b"\xff\xd8" + exif + table + frame, "jpeg")


def webp(kind: bytes, body: bytes) -> str:
    return data_url(b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + body, "webp", 32)


@pytest.mark.parametrize(
    "url",
    [
        png(640, 480),
        jpeg(640, 480, 10),
        jpeg(640, 480, 60_000),
        data_url(b"GIF89a" + struct.pack("<HH", 640, 480), "gif", 10),
        webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 640, 480)),
        webp(b"VP8L", b"\x2f" + (639 | 479 << 14).to_bytes(4, "little")),
        webp(b"VP8X", bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")),
    ],
    ids=["png", "jpeg", "jpeg with a thumbnail", "gif", "webp", "webp lossless", "webp extended"],
)
def test_dimensions_are_read_from_the_first_bytes(url: str) -> None:
    assert dimensions_of(url) == (640, 480)


@pytest.mark.parametrize(
    "url",
    [
        "https://x/y.png",
        "",
        "data:image/png;base64,",
        "data:image/png;base64,$$$",
        data_url(b"\xff\xd8\xff"),
        png(0, 0),
    ],
)
def test_what_cannot_be_measured(url: str) -> None:
    assert dimensions_of(url) is None
    assert image_tokens(url, "auto", Tiles(85, 170)) == 765


@pytest.mark.parametrize(
    ("width", "height", "detail", "price", "tokens"),
    [
        # The examples of OpenAI's guide.
        (1024, 1024, "high", Tiles(85, 170), 765),
        (2048, 4096, "high", Tiles(85, 170), 1105),
        (4096, 8192, "low", Tiles(85, 170), 85),
        (1024, 1024, "auto", Patches(1.0), 1024),
        (512, 512, "auto", Tiles(85, 170), 255),
        (10_000, 10_000, "auto", Patches(1.62), 2489),
    ],
)
def test_published_prices(width: int, height: int, detail: str, price: Tiles | Patches, tokens: int) -> None:
    assert image_tokens(png(width, height), detail, price) == tokens


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-4o", Tiles(85, 170)),
        ("gpt-4o-mini-2024-07-18", Tiles(2833, 5667)),
        ("openai/gpt-4.1-mini", Patches(1.62)),
        ("gpt-5-nano", Patches(2.46)),
        ("gpt-5.1", Tiles(70, 140)),
        ("o4-mini", Patches(1.72)),
        ("llava", Tiles(85, 170)),
    ],
)
def test_a_model_has_its_price(model: str, price: Tiles | Patches) -> None:
    assert price_for(model) == price


@pytest.mark.spec("F14", "W02")
def test_a_picture_costs_its_estimate_however_large_its_base64() -> None:
    url = png(1024, 1024, padding=4_000_000)
    message = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": url, "detail": "high"}}],
    }
    assert count(message) == MESSAGE_TOKENS + 1 + 765
    bare = {"role": "user", "content": [{"type": "image_url", "image_url": url}]}
    assert count(bare) == count(message)


@pytest.mark.spec("W02")
@pytest.mark.parametrize("head", ["", "data:video/mp4;base64,"])
def test_encoded_bytes_of_an_unknown_part_are_no_text(head: str) -> None:
    part = {"type": "hologram", "hologram": {"data": head + "QUJD" * 50_000, "layers": [{"x": "QUJD" * 300}]}}
    bare = {"type": "hologram", "hologram": {"data": "", "layers": [{"x": ""}]}}
    pages = math.ceil(150_900 / 50_000) * 1_500
    assert count({"role": "user", "content": [part]}) == count({"role": "user", "content": [bare]}) + pages
    # Words are words, however long.
    said = {"type": "hologram", "hologram": "long words " * 500}
    assert count({"role": "user", "content": [said]}) > 1_000


@pytest.mark.spec("W02")
def test_audio_and_files_are_estimated() -> None:
    second = base64.b64encode(bytes(48_000)).decode()
    audio = {"type": "input_audio", "input_audio": {"data": second * 60, "format": "wav"}}
    assert count({"role": "user", "content": [audio]}) == pytest.approx(4 + 600, abs=2)
    pdf = {
        "type": "file",
        "file": {"file_data": base64.b64encode(bytes(100_000)).decode(), "filename": "x.pdf"},
    }
    assert count({"role": "user", "content": [pdf]}) == 4 + 3_000
    assert count({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}) == 4 + 1_500


# Tools.

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "unit": {
                    "type": "string",
                    "description": "The unit of temperature to return",
                    "enum": ["celsius", "fahrenheit"],
                },
            },
            "required": ["location"],
        },
    },
}


def test_the_cookbooks_tools() -> None:
    """101 tokens for tools and messages together, as the cookbook gives for gpt-4o and the API confirmed."""
    messages = [
        {
            "role": "system",
            "content": "You are a helpful assistant that can answer to questions about the weather.",
        },
        {"role": "user", "content": "What's the weather like in San Francisco?"},
    ]
    tools = COUNTER.count_tools(json.dumps([WEATHER]).encode())
    assert sum(count(message) for message in messages) + 3 + tools == 101


def test_other_servers_tools_are_json() -> None:
    raw = json.dumps([WEATHER]).encode()
    other = TOKENIZER.counter_for("qwen3-32b")
    assert other.count_tools(raw) == other.count_text(raw.decode())


def test_nested_schemas_are_counted_to_the_ground() -> None:
    def nested(depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string", "description": "the innermost thing of them all"}
        for _ in range(depth):
            schema = {"type": "array", "items": {"type": "object", "properties": {"inner": schema}}}
        return {"type": "function", "function": {"name": "f", "parameters": {"properties": {"p": schema}}}}

    counts = [COUNTER.count_tools(json.dumps([nested(depth)]).encode()) for depth in (0, 1, 5, 40)]
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{}"])
def test_no_tools_cost_nothing(raw: bytes) -> None:
    assert COUNTER.count_tools(raw) == 0


@pytest.mark.parametrize(
    "raw",
    [b"not json", b"\xff", b"[" * 3000, b'[1, "x", {"type": "custom"}]', b'{"a": 1}', b'[{"function": {}}]'],
)
def test_odd_tools_are_counted_somehow(raw: bytes) -> None:
    assert COUNTER.count_tools(raw) >= 1
