"""Incremental decoding of a body's content coding (gzip, deflate, br, zstd), with a limit on its output.

It decodes a copy of the body: when it fails, the client still gets every byte of the answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

Failure = Literal["too_large", "corrupt"]

# No server applies more than two; a chain of codings can be a decompression bomb.
_MAX_CODINGS = 2
# The most output of one step, after which the limit is checked again.
_STEP_BYTES = 64 * 1024
# Input bytes of one step. zstd cannot bound its output, but a block takes at least 4 bytes and yields at most
# 128 KB, so that 128 bytes yield at most 4 MB.
_ZSTD_STEP_BYTES = 128
# RFC 9659: the window that a zstd decoder of HTTP content must support, and may refuse to exceed.
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024


class _Corrupt(Exception):
    """The bytes are not valid in the stated coding."""


class Decoder:
    """Decodes one body. `limit` bounds all decoded bytes together.

    `failure` says why decoding stopped: "too_large" beyond the limit, "corrupt" for bytes that are not valid
    in the coding.
    """

    def __init__(self, codings: list[_Coding], limit: int) -> None:
        self._codings = codings
        self._left = limit
        self.failure: Failure | None = None

    @property
    def is_complete(self) -> bool:
        """True when the input so far ends where the coding does; always true without a coding."""
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
                    break
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
    """A decoder for a body with these headers; None for more than `most` codings, or unsupported ones."""
    values = [value for name, value in headers if name.lower() == b"content-encoding"]
    names = [part.strip().lower().decode("latin-1") for value in values for part in value.split(b",")]
    names = [name.removeprefix("x-") for name in names if name not in ("", "identity")]
    if len(names) > most or any(name not in _CODINGS for name in names):
        return None
    # The header lists codings in the order in which they were applied.
    return Decoder([_CODINGS[name]() for name in reversed(names)], limit)


class _Members:
    """Members in a row, as gzip may have; `begin` gives the decompressor of one by its first byte.

    At most `step` bytes are read at a time; `most` bounds the output of each step, where that is possible.
    """

    def __init__(self, begin: Callable[[int], Any], fault: type[Exception], step: int, *most: int) -> None:
        self._begin = begin
        self._fault = fault
        self._step = step
        self._most = most
        self._inflate: Any = None

    @property
    def has_ended(self) -> bool:
        return self._inflate is not None and bool(self._inflate.eof)

    def decode(self, data: bytes) -> Iterable[bytes]:
        start = 0
        while start < len(data):
            if self._inflate is None or self._inflate.eof:
                self._inflate = self._begin(data[start])
            step = data[start : start + self._step]
            try:
                piece = self._inflate.decompress(step, *self._most)
            except self._fault as error:
                raise _Corrupt from error
            start += len(step) - len(self._inflate.unconsumed_tail or self._inflate.unused_data)
            if piece:
                yield piece


def _zlib(begin: Callable[[int], Any]) -> _Members:
    return _Members(begin, zlib.error, _STEP_BYTES, _STEP_BYTES)


def _deflate(first: int) -> Any:
    # RFC 1950: the low half of the first byte is 8. Some servers send raw deflate without the wrapper.
    return zlib.decompressobj(zlib.MAX_WBITS if first & 0x0F == 8 else -zlib.MAX_WBITS)


def _zstd() -> _Members:
    import zstandard

    made = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    return _Members(lambda _: made.decompressobj(), zstandard.ZstdError, _ZSTD_STEP_BYTES)


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._brotli: Any = brotli
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
            # It may hold decoded bytes back while it accepts more input: call until it returns none.
            data = b""


_Coding: TypeAlias = _Members | _Brotli
_CODINGS: Mapping[str, Callable[[], _Coding]] = {
    "gzip": lambda: _zlib(lambda _: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    "deflate": lambda: _zlib(_deflate),
    "br": _Brotli,
    "zstd": _zstd,
}
DECODABLE = frozenset(_CODINGS)
