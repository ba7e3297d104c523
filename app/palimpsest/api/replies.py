"""The responses of our own endpoints: JSON composed as bytes, never cached.

Imports Starlette only: health checks use it and must not load FastAPI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from palimpsest.core.wire.json_text import encoded

# Conversations are private: no cache may store them, and no browser may guess another type.
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def reply(value: Mapping[str, Any], status: int = 200) -> Response:
    """`value` as JSON."""
    return raw_reply(encoded(value), status)


def raw_reply(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response of JSON bytes."""
    return Response(body, status, {**PRIVATE, **(headers or {})}, "application/json")


def object_with(fields: Mapping[str, Any], name: str, raw: bytes) -> bytes:
    """A JSON object of `fields` (not empty) and, last, a member whose value is `raw`, byte for byte.

    `raw` is not re-encoded: encoders would change numbers, escapes and repeated keys, or refuse them.
    """
    return encoded(fields)[:-1] + b"," + encoded(name) + b":" + raw + b"}"


def array_of(items: Iterable[bytes]) -> bytes:
    """A JSON array of encoded values."""
    return b"[" + b",".join(items) + b"]"
