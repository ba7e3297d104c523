"""A stream of server-sent events cut into frames, byte for byte, however it was cut into chunks.

Knows nothing of chat, of JSON or of sockets. Source: WHATWG HTML, section 9.2 (server-sent events).
"""

from __future__ import annotations

import re

from app.errors import UpstreamError

# An empty line: two line ends on end. Atomic, so that CR LF is never taken for two.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
# The longest end of frame that may stand incomplete at the end of a chunk.
_OVERLAP = 3
_BOM = b"\xef\xbb\xbf"


class FrameSplitter:
    """Cuts a stream into frames; the frames given out, then `rest`, are the stream, byte for byte.

    A frame ends after its empty line. A frame that ends in a bare CR is given out with the next byte
    or by `finish`, because a LF that still follows belongs to it. The frames do not depend on how
    the stream was cut into chunks.
    """

    __slots__ = ("_buffer", "_limit", "_searched")

    def __init__(self, limit_bytes: int) -> None:
        """No frame longer than `limit_bytes` (inclusive) is held."""
        self._buffer = bytearray()
        self._limit = limit_bytes
        self._searched = 0

    @property
    def rest(self) -> bytes:
        """What was fed and not yet given out."""
        return bytes(self._buffer)

    @property
    def rest_bytes(self) -> int:
        """The length of `rest`, which a large frame makes costly to copy."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames that `chunk` completes.

        Raises UpstreamError when the next frame is longer than the limit, after all frames before it
        were given out; its bytes stay in `rest`, `chunk` included.
        """
        if not self._buffer and self._is_one_frame(chunk):
            return [chunk]
        self._buffer += chunk
        return self._frames(at_end=False)

    def finish(self) -> list[bytes]:
        """The frames that the end of the stream completes; what is left in `rest` was cut off."""
        return self._frames(at_end=True)

    def _is_one_frame(self, chunk: bytes) -> bool:
        """The usual case: one event, one chunk."""
        return chunk.find(b"\n\n") == len(chunk) - 2 >= 0 and b"\r" not in chunk and len(chunk) <= self._limit

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
    """The event's data: its data lines joined by LF; None when it has none (a comment, a bare event).

    A byte order mark is dropped, as at the start of the stream.
    """
    if frame.startswith(b"data: ") and frame.endswith(b"\n\n"):
        data = frame[6:-2]
        if b"\n" not in data and b"\r" not in data:
            return data
    lines = _LINE.split(frame.removeprefix(_BOM))
    values = [value for line in lines if (value := _data_in(line)) is not None]
    return b"\n".join(values) if values else None


def _data_in(line: bytes) -> bytes | None:
    if line == b"data":
        return b""
    if line.startswith(b"data:"):
        return line[5:].removeprefix(b" ")
    return None
