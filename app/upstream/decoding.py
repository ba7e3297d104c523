"""Undoes the content coding of an answer or a request on a copy, in pieces, never growing beyond a limit.

Knows nothing of what the bytes mean and takes no part in relaying them: when it gives up on an answer,
the client still gets every byte.
"""

from __future__ import annotations

import importlib
import importlib.util
import zlib
from collections.abc import Iterable
from typing import Any, Literal, Protocol

Failure = Literal["too_large", "corrupt"]

# Codings of the standard library, then those that are there when their package is.
DECODABLE = frozenset(
    {"gzip", "deflate"}
    | ({"br"} if importlib.util.find_spec("brotli") else set())
    | ({"zstd"} if importlib.util.find_spec("zstandard") else set())
)
# No server stacks more than two; a chain of codings is a way to build a bomb.
_MAX_CODINGS = 2
# What one step may produce before the limit is looked at again.
_STEP_BYTES = 64 * 1024
# zstd has no bound on its output but one on its input: a block takes 4 bytes at least and gives 128 KB
# at most, so that 128 bytes give 4 MB at most.
_ZSTD_STEP_BYTES = 128
# RFC 9659: the window a zstd decoder of HTTP content must support, and may refuse to exceed.
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024


class _Corrupt(Exception):
    """The bytes are not of the coding they are said to be."""


class _Coding(Protocol):
    @property
    def has_ended(self) -> bool: ...

    def decode(self, data: bytes) -> Iterable[bytes]: ...


class Decoder:
    """Decodes the copy of one body. `limit` bounds all decoded bytes together.

    `failure` says why nothing more will come: "too_large" beyond the limit, "corrupt" when the bytes
    do not fit the coding.
    """

    def __init__(self, codings: list[_Coding], limit: int) -> None:
        self._codings = codings
        self._left = limit
        self.failure: Failure | None = None

    @property
    def is_complete(self) -> bool:
        """True when what was fed ends where the coding does; without a coding any end will do."""
        return self.failure is None and all(coding.has_ended for coding in self._codings)

    def feed(self, data: bytes) -> bytes:
        """The decoded bytes that `data` completes; empty after a failure."""
        if self.failure is not None:
            return b""
        pieces: list[bytes] = []
        try:
            for piece in self._through(data, 0):
                self._left -= len(piece)
                if self._left < 0:
                    self.failure = "too_large"
                    return b"".join(pieces)
                pieces.append(piece)
        except _Corrupt:
            self.failure = "corrupt"
        return b"".join(pieces)

    def _through(self, data: bytes, stage: int) -> Iterable[bytes]:
        if stage == len(self._codings):
            yield data
            return
        for piece in self._codings[stage].decode(data):
            yield from self._through(piece, stage + 1)


def decoder_for(
    headers: Iterable[tuple[bytes, bytes]], limit: int, *, most: int = _MAX_CODINGS
) -> Decoder | None:
    """A decoder for a body with these headers; None when it has more than `most` codings, or others."""
    values = [value for name, value in headers if name.lower() == b"content-encoding"]
    names = [part.strip().lower().decode("latin-1") for value in values for part in value.split(b",")]
    names = [name.removeprefix("x-") for name in names if name not in ("", "identity")]
    if len(names) > most or any(name not in DECODABLE for name in names):
        return None
    # Listed in the order they were applied.
    return Decoder([_coding(name) for name in reversed(names)], limit)


def _coding(name: str) -> _Coding:
    match name:
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstd()
        case "gzip":
            return _Zlib(zlib.MAX_WBITS | 16)
        case _:
            return _Zlib(zlib.MAX_WBITS)


class _Zlib:
    """Gzip (several members in a row included) and deflate, with or without its zlib wrapper."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inflate = zlib.decompressobj(wbits)
        self._first = wbits == zlib.MAX_WBITS

    @property
    def has_ended(self) -> bool:
        return self._inflate.eof

    def decode(self, data: bytes) -> Iterable[bytes]:
        if self._first and data:
            self._first = False
            # RFC 1950: the low half of the first byte is 8. Some servers send the bare stream.
            if data[0] & 0x0F != 8:
                self._wbits = -zlib.MAX_WBITS
                self._inflate = zlib.decompressobj(self._wbits)
        while data:
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(self._wbits)
            try:
                piece = self._inflate.decompress(data, _STEP_BYTES)
            except zlib.error as error:
                raise _Corrupt from error
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece


class _Brotli:
    def __init__(self) -> None:
        self._brotli: Any = importlib.import_module("brotli")
        self._inflate: Any = self._brotli.Decompressor()

    @property
    def has_ended(self) -> bool:
        return bool(self._inflate.is_finished())

    def decode(self, data: bytes) -> Iterable[bytes]:
        while True:
            try:
                piece = self._inflate.process(data, output_buffer_limit=_STEP_BYTES)
            except self._brotli.error as error:
                raise _Corrupt from error
            if not piece:
                return
            yield piece
            # It may hold finished bytes back while it says that it accepts more: ask until it is empty.
            data = b""


class _Zstd:
    def __init__(self) -> None:
        import zstandard

        self._zstandard = zstandard
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._inflate = self._decompressor.decompressobj()

    @property
    def has_ended(self) -> bool:
        return self._inflate.eof

    def decode(self, data: bytes) -> Iterable[bytes]:
        start = 0
        while start < len(data):
            if self._inflate.eof:
                self._inflate = self._decompressor.decompressobj()
            step = data[start : start + _ZSTD_STEP_BYTES]
            try:
                piece = self._inflate.decompress(step)
            except self._zstandard.ZstdError as error:
                raise _Corrupt from error
            start += len(step) - len(self._inflate.unused_data)
            if piece:
                yield piece
