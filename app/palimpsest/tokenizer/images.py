"""The token cost of an image, by OpenAI's published vision rules, from the first bytes of its data.

Images are never decoded. Source: platform.openai.com/docs/guides/images-vision, "Calculating costs".
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from dataclasses import dataclass

# Enough base64 for the headers of every format but JPEG, whose size follows its metadata.
_HEAD_CHARS = 64
# Camera files have up to 64 KB of EXIF with a thumbnail, and a colour profile, before the size.
_JPEG_CHARS = 256 * 1024
# An image that cannot be measured (a URL, a file id, a broken header) counts as a square of this side:
# four tiles, the documentation's own example.
_UNKNOWN_SIDE = 1024


@dataclass(frozen=True, slots=True)
class Tiles:
    """Priced by 512-pixel tiles after fitting into 2048 x 2048 and a shortest side of 768."""

    base: int
    tile: int


@dataclass(frozen=True, slots=True)
class Patches:
    """Priced by 32-pixel patches, at most 1,536, times the model's factor."""

    factor: float


# Longest prefix first within a family.
_PRICES: tuple[tuple[str, Tiles | Patches], ...] = (
    ("gpt-4.1-mini", Patches(1.62)),
    ("gpt-4.1-nano", Patches(2.46)),
    ("gpt-4o-mini", Tiles(2833, 5667)),
    ("gpt-5-mini", Patches(1.62)),
    ("gpt-5-nano", Patches(2.46)),
    ("gpt-5", Tiles(70, 140)),
    ("o4-mini", Patches(1.72)),
    ("o1", Tiles(75, 150)),
    ("o3", Tiles(75, 150)),
    ("computer-use-preview", Tiles(65, 129)),
)
_DEFAULT_PRICE = Tiles(85, 170)


def price_for(model: str) -> Tiles | Patches:
    """The vision price of `model`; gpt-4o's for models of other vendors."""
    name = model.rpartition("/")[2]
    return next((price for prefix, price in _PRICES if name.startswith(prefix)), _DEFAULT_PRICE)


def image_tokens(url: str, detail: str, price: Tiles | Patches) -> int:
    """Tokens of the image behind `url` (data URL or address); `detail` is "low", "high" or "auto"."""
    if isinstance(price, Tiles) and detail == "low":
        return price.base
    width, height = dimensions_of(url) or (_UNKNOWN_SIDE, _UNKNOWN_SIDE)
    if isinstance(price, Patches):
        patches = min(math.ceil(width / 32) * math.ceil(height / 32), 1536)
        return math.ceil(patches * price.factor)
    fit = min(1.0, 2048 / max(width, height))
    fit *= min(1.0, 768 / (min(width, height) * fit))
    tiles = math.ceil(width * fit / 512) * math.ceil(height * fit / 512)
    return price.base + price.tile * tiles


def dimensions_of(url: str) -> tuple[int, int] | None:
    """Width and height in pixels of the image in a base64 data URL; None when they cannot be read."""
    head, found, data = url[:256].partition("base64,")
    if not found or not head.startswith("data:"):
        return None
    start = len(head) + len(found)
    first = _decoded(data[:_HEAD_CHARS])
    is_jpeg = first.startswith(b"\xff\xd8")
    size = _jpeg(_decoded(url[start : start + _JPEG_CHARS])) if is_jpeg else _other(first)
    return size if size is not None and min(size) > 0 else None


def _decoded(data: str) -> bytes:
    data = data[: len(data) // 4 * 4]
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        return b""


def _other(head: bytes) -> tuple[int, int]:
    """The size of a PNG, GIF or WebP; 0 of anything else."""
    width = height = 0
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
    elif head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        width, height = struct.unpack("<HH", head[6:10])
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        match head[12:16]:
            case b"VP8 ":
                width, height = (side & 0x3FFF for side in struct.unpack("<HH", head[26:30]))
            case b"VP8L":
                bits = int.from_bytes(head[21:25], "little")
                width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
            case b"VP8X":
                width = int.from_bytes(head[24:27], "little") + 1
                height = int.from_bytes(head[27:30], "little") + 1
    return width, height


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        # SOF0 to SOF15 hold the size; C4, C8 and CC are tables that share the range.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        # A marker byte may be padded with further 0xFF.
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
