"""A stream of JSON lines cut into lines, byte for byte, however it was cut into chunks.

For servers that stream without server-sent events (see `sse`). Knows nothing of chat or of sockets.
"""

from __future__ import annotations

from app.errors import UpstreamError


class LineSplitter:
    """Cuts a stream into lines; the lines given out, each with its LF, then what is left, are the stream."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        """No line longer than `limit_bytes` (inclusive) is held."""
        self._buffer = bytearray()
        self._limit = limit_bytes

    @property
    def rest(self) -> bytes:
        """What was fed and not given out yet."""
        return bytes(self._buffer)

    @property
    def rest_bytes(self) -> int:
        """How many bytes were fed and not given out yet."""
        return len(self._buffer)

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
    """The line without the space around it; None when it is empty."""
    return line.strip() or None
