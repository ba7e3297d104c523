"""Splits streams of server-sent events and of JSON lines, however their bytes were chunked.

Source: WHATWG HTML, section 9.2 (server-sent events). Some servers stream JSON lines instead. Pure.
"""

from __future__ import annotations

import re

from palimpsest.errors import UpstreamError

# An empty line: two line ends in succession. Atomic, so that CR LF is never matched as two.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
# Bytes of an incomplete end of frame at the end of a chunk, at most.
_OVERLAP = 3
_BOM = b"\xef\xbb\xbf"


class _Splitter:
    """What a splitter holds: no piece longer than `limit_bytes` (inclusive)."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._buffer = bytearray()
        self._limit = limit_bytes

    @property
    def rest(self) -> bytes:
        """The bytes that were fed and not yet returned."""
        return bytes(self._buffer)

    @property
    def rest_bytes(self) -> int:
        """The length of `rest`, without the cost of copying a large one."""
        return len(self._buffer)


class FrameSplitter(_Splitter):
    """Splits a stream into frames. The returned frames followed by `rest` are the stream, byte for byte.

    A frame ends after its empty line. A frame that ends in a bare CR is returned with the next byte or by
    `finish`, because a following LF belongs to it. The frames do not depend on the chunking.
    """

    __slots__ = ("_searched",)

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._searched = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames that `chunk` completes.

        Raises UpstreamError when the next frame is longer than the limit, once all frames before it have been
        returned; its bytes stay in `rest`, `chunk` included.
        """
        # The usual case: one event, one chunk.
        ends_once = chunk.find(b"\n\n") == len(chunk) - 2 >= 0 and b"\r" not in chunk
        if ends_once and not self._buffer and len(chunk) <= self._limit:
            return [chunk]
        self._buffer += chunk
        return self._frames(at_end=False)

    def finish(self) -> list[bytes]:
        """The frames that the end of the stream completes; `rest` is then a truncated frame."""
        return self._frames(at_end=True)

    def _frames(self, at_end: bool) -> list[bytes]:
        frames: list[bytes] = []
        has_cr = b"\r" in self._buffer
        start, end = 0, self._end(self._searched, has_cr, at_end)
        while end is not None and end - start <= self._limit:
            frames.append(bytes(self._buffer[start:end]))
            start, end = end, self._end(end, has_cr, at_end)
        del self._buffer[:start]
        self._searched = max(0, len(self._buffer) - _OVERLAP) if end is None else 0
        too_long = end is not None or len(self._buffer) > self._limit
        if too_long and not frames:
            raise UpstreamError(f"the upstream sent an event of more than {self._limit} bytes")
        return frames

    def _end(self, start: int, has_cr: bool, at_end: bool) -> int | None:
        """Where the frame at `start` ends; None when more bytes are, or could be, part of it."""
        if not has_cr:
            at = self._buffer.find(b"\n\n", start)
            return None if at < 0 else at + 2
        match = _END.search(self._buffer, start)
        if match is None:
            return None
        is_open = match.end() == len(self._buffer) and self._buffer.endswith(b"\r") and not at_end
        return None if is_open else match.end()


def data_of(frame: bytes) -> bytes | None:
    """The event's data lines joined by LF; None when it has none (a comment, a bare event).

    A byte order mark, as at the start of a stream, is dropped.
    """
    if frame.startswith(b"data: ") and frame.endswith(b"\n\n"):
        data = frame[6:-2]
        if b"\n" not in data and b"\r" not in data:
            return data
    lines = _LINE.split(frame.removeprefix(_BOM))
    # A field without a colon is empty.
    fields = (line.partition(b":") for line in lines)
    values = [value.removeprefix(b" ") for name, _, value in fields if name == b"data"]
    return b"\n".join(values) if values else None


class LineSplitter(_Splitter):
    """Splits a stream into lines, each with its LF. The returned lines followed by `rest` are the stream."""

    __slots__ = ()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes; UpstreamError when one is longer than the limit."""
        searched = len(self._buffer)
        self._buffer += chunk
        lines: list[bytes] = []
        start, at = 0, self._buffer.find(b"\n", searched)
        while at >= 0:
            lines.append(bytes(self._buffer[start : at + 1]))
            start, at = at + 1, self._buffer.find(b"\n", at + 1)
        del self._buffer[:start]
        if max(map(len, [*lines, self._buffer])) > self._limit:
            raise UpstreamError(f"the upstream sent a line of more than {self._limit} bytes")
        return lines

    def finish(self) -> list[bytes]:
        """The last line, when the stream ended without its LF."""
        last, self._buffer = bytes(self._buffer), bytearray()
        return [last] if last else []


def data_of_line(line: bytes) -> bytes | None:
    """The line without surrounding white space; None when it is blank."""
    return line.strip() or None
