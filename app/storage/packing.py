"""Lists of digests as one column holds them. Must not know whose digests they are."""

from __future__ import annotations

from collections.abc import Iterable

# Digests are sha256.
DIGEST_BYTES = 32


def packed(digests: Iterable[bytes]) -> bytes:
    """Digests of 32 bytes, one after the other."""
    return b"".join(digests)


def unpacked(digests: bytes) -> tuple[bytes, ...]:
    """The inverse of `packed`."""
    return tuple(digests[i : i + DIGEST_BYTES] for i in range(0, len(digests), DIGEST_BYTES))
