"""What of a streamed answer may go out now, and what waits until the answer is stored (rule 15).

Bytes in, bytes out: every byte of the upstream passes in its order, none is added. A copy is cut into
frames and assembled. Knows nothing of sockets or of the store.
"""

from __future__ import annotations

from app.core.wire.assembly import Verdict, said_in
from app.core.wire.lines import LineSplitter, data_of_line
from app.core.wire.sse import FrameSplitter, data_of
from app.core.wire.wires import Sum
from app.errors import UpstreamError
from app.proxy.answering.kinds import Kind, framed
from app.upstream.decoding import Decoder


class Gate:
    """One streamed answer on its way, of `length` bytes where that was announced.

    `is_closed` is true once the answer's end has been seen and held back: `release` gives it out. Without
    any other end, the last bytes of an announced length are one.
    `is_readable` is false when the copy could not be followed to its end (too large, a coding we
    cannot undo, nothing of an answer in what did not claim to be events): the bytes still pass, the
    stored answer is incomplete. `has_begun`: something of an answer, or of a failure, has come, not only
    the news that there will be one; `has_failed_early`: it was a failure.
    """

    def __init__(
        self,
        assembly: Sum,
        decoder: Decoder | None,
        kind: Kind,
        *,
        is_coded: bool,
        frame_bytes: int,
        answer_bytes: int,
        length: int | None = None,
    ) -> None:
        self.assembly = assembly
        self.is_readable = decoder is not None
        self.is_closed = False
        self.has_failed_early = False
        self.has_begun = False
        self._decoder = decoder
        self._is_coded = is_coded
        self._kind = kind
        is_lines = kind == "lines"
        self._splitter = LineSplitter(frame_bytes) if is_lines else FrameSplitter(frame_bytes)
        self._data_of = data_of_line if is_lines else data_of
        self._left = answer_bytes
        self._to_come = length
        self._is_finished = False
        self._held = b""
        self._held_from = 0
        self._frames = 0
        # None: nothing is held back at the beginning, or no longer.
        self._openings: list[bytes] | None = None

    @property
    def events(self) -> int:
        """How many events have come."""
        return self._frames

    @property
    def is_empty(self) -> bool:
        """True while not one event has come."""
        return self._frames == 0

    def wait(self) -> None:
        """The news that there will be an answer is held back until something of it comes."""
        self._openings = []

    @property
    def is_waiting(self) -> bool:
        """True while only the news that there will be an answer has come, and is held back."""
        if self._openings is None or not self.is_readable or self.has_begun:
            return False
        return sum(map(len, self._openings)) <= _OPENING_BYTES

    def openings(self) -> bytes:
        """What was held back at the beginning; given once."""
        held, self._openings = self._openings or (), None
        return b"".join(held)

    def take(self, chunk: bytes) -> bytes:
        """What may go out of this chunk; the rest is held."""
        out = self._taken(chunk)
        if self._openings is None:
            return out
        self._openings.append(out)
        return b"" if self.is_waiting else self.openings()

    def _taken(self, chunk: bytes) -> bytes:
        before = 0 if self._is_coded else self._splitter.rest_bytes
        frames = self._frames_in(chunk)
        was_closed = self.is_closed
        start = 0
        for frame in frames:
            verdict = self._reads(frame)
            # Clients stop reading at `[DONE]`, whether or not a finish_reason came before it.
            if (verdict.finishes or verdict.done) and not self.is_closed:
                self.is_closed = True
                self._held_from = max(0, start - before)
            start += len(frame)
        if self._to_come is not None:
            self._to_come -= len(chunk)
            if self._to_come == 0 and not self.is_closed:
                self.finish()
                self.is_closed = True
                self._held_from = 0
        if was_closed or not self.is_closed:
            return chunk
        place = 0 if self._is_coded else self._held_from
        self._held = chunk[place:]
        return chunk[:place]

    def release(self) -> bytes:
        """The held end; what comes after it passes freely."""
        held, self._held = self._held, b""
        return held

    def finish(self) -> None:
        """The upstream's body is complete: what the last bytes completed is read."""
        if self._is_finished:
            return
        self._is_finished = True
        for frame in self._splitter.finish():
            self._reads(frame)
        if self.is_readable and self._is_whole_event(last := self._splitter.rest):
            # Some servers leave out the empty line behind the last event.
            self._reads(last)
        if self._kind != "events" and not self._has_understood:
            self.is_readable = False

    def in_band(self, data: bytes) -> bytes:
        """`data` as one more frame; empty where one would be no part of the coding, or of what this is."""
        is_foreign = self._kind != "events" and not self._has_understood
        if self._is_coded or is_foreign:
            return b""
        # What broke off in the middle of an event must not take ours along.
        return (_BETWEEN if self._splitter.rest_bytes else b"") + framed(self._kind, data)

    def _is_whole_event(self, rest: bytes) -> bool:
        data = self._data_of(rest) if rest else None
        return data is not None and (data.strip() == b"[DONE]" or isinstance(said_in(data), dict))

    @property
    def _has_understood(self) -> bool:
        return bool(self.assembly.choices()) or self.assembly.is_done or self.assembly.error is not None

    def _frames_in(self, chunk: bytes) -> list[bytes]:
        if not self.is_readable or self._decoder is None:
            return []
        data = self._decoder.feed(chunk) if self._is_coded else chunk
        self._left -= len(data)
        if self._left < 0 or self._decoder.failure is not None:
            self.is_readable = False
            return []
        try:
            return self._splitter.feed(data)
        except UpstreamError:
            self.is_readable = False
            return []

    def _reads(self, frame: bytes) -> Verdict:
        data = self._data_of(frame)
        if data is None:
            # A sign of life is given on: who is at work does not refuse.
            self.has_begun = self.has_begun or self._frames > 0
            return _COMMENT
        self._frames += 1
        verdict = self.assembly.feed(data)
        if verdict.error and not self.has_begun:
            self.has_failed_early = True
        self.has_begun = self.has_begun or not verdict.opens
        return verdict


_COMMENT = Verdict()
_BETWEEN = b"\n\n"
# The news of an answer repeats the request's settings and tools, at most.
_OPENING_BYTES = 1024 * 1024
