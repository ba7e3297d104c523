"""Holds back the end of a streamed answer until it is stored, and saves partial answers on the way.

Every byte of the upstream passes in order and none is added. A copy is split into frames and assembled.
"""

from __future__ import annotations

import asyncio

from palimpsest.core.wire.chat_answers import Sum, Verdict, said_in
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.core.wire.streams import FrameSplitter, LineSplitter, data_of, data_of_line
from palimpsest.errors import InvalidJson, UpstreamError
from palimpsest.proxy.incoming import Kind, framed
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.sessions.recorder import Recorder
from palimpsest.proxy.turn import Turn
from palimpsest.upstream.decoding import Decoder


class Holdback:
    """One streamed answer; `length` is its content length if stated.

    What follows a finish_reason is held back until more of the answer comes: some servers finish early, or
    with every chunk. `is_closed` is true once the end has been seen and held back; `release` returns it. The
    end is `[DONE]`, or else the last bytes of the stated length.
    `is_readable` is false when the copy could not be followed (a frame too large, an unknown coding, no
    answer in a stream not declared as events): the bytes still pass, the stored answer is incomplete.
    `has_begun`: content or a failure has arrived, not only the opening events. `has_failed_early`: the first
    of these was a failure.
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
        self._frames = 0
        # None: the opening events are not held back, or no longer.
        self._openings: list[bytes] | None = None

    @property
    def events(self) -> int:
        """How many events have arrived."""
        return self._frames

    @property
    def is_empty(self) -> bool:
        """True while no event has arrived."""
        return self._frames == 0

    def wait(self) -> None:
        """Hold back the opening events until content arrives."""
        self._openings = []

    @property
    def is_waiting(self) -> bool:
        """True while only opening events have arrived and are held back."""
        if self._openings is None or not self.is_readable or self.has_begun:
            return False
        return sum(map(len, self._openings)) <= _OPENING_BYTES

    def openings(self) -> bytes:
        """The opening events that were held back; returned once."""
        held, self._openings = self._openings or (), None
        return b"".join(held)

    def take(self, chunk: bytes) -> bytes:
        """The bytes that may be sent now; the rest of the chunk is held back."""
        out = self._taken(chunk)
        if self._openings is None:
            return out
        self._openings.append(out)
        return b"" if self.is_waiting else self.openings()

    def _taken(self, chunk: bytes) -> bytes:
        whole = self._held + chunk
        # Where the frame to come begins. Frames of a coded stream are not its bytes.
        at = len(self._held) - (0 if self._is_coded else self._splitter.rest_bytes)
        was_closed, place = self.is_closed, 0 if self._held else None
        for frame in self._frames_in(chunk):
            verdict = self._reads(frame)
            if verdict == "goes_on":
                place = None
            # Clients stop reading at `[DONE]`, whether or not a finish_reason came before it.
            if verdict in ("finishes", "goes_on", "done"):
                place = max(0, at) if place is None else place
                self.is_closed = self.is_closed or verdict == "done"
            at += 0 if self._is_coded else len(frame)
        if self._to_come is not None:
            self._to_come -= len(chunk)
            if self._to_come == 0 and not self.is_closed:
                self.finish()
                self.is_closed = True
                place = len(self._held) if place is None else place
        if was_closed or place is None:
            place = len(whole)
        self._held = whole[place:]
        return whole[:place]

    def release(self) -> bytes:
        """The held end; later bytes pass at once."""
        held, self._held = self._held, b""
        return held

    def finish(self) -> None:
        """Read what the last bytes completed: the upstream's body has ended."""
        if self._is_finished:
            return
        self._is_finished = True
        for frame in self._splitter.finish():
            self._reads(frame)
        if self.is_readable and self._is_whole_event(last := self._splitter.rest):
            # Some servers omit the empty line after the last event.
            self._reads(last)
        if self._kind != "events" and not self._has_understood:
            self.is_readable = False

    def in_band(self, data: bytes) -> bytes:
        """`data` as one more frame; empty for a coded stream, or one that is not read as an answer."""
        is_foreign = self._kind != "events" and not self._has_understood
        if self._is_coded or is_foreign:
            return b""
        # End an event that broke off, so that ours is not read as part of it.
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
            # Keep-alive comments after the first event count as begun: the upstream has accepted the request.
            self.has_begun = self.has_begun or self._frames > 0
            return "ordinary"
        self._frames += 1
        verdict = self.assembly.feed(data)
        if verdict == "error" and not self.has_begun:
            self.has_failed_early = True
        self.has_begun = self.has_begun or verdict != "opens"
        return verdict


_BETWEEN = b"\n\n"
# Opening events repeat at most the request's settings and tools.
_OPENING_BYTES = 1024 * 1024


# A crash loses at most this much of an answer, while the store keeps up. Each save rewrites the whole answer,
# so that a shorter interval would be expensive for long answers; short ones end before the first save.
SECONDS = 1.0


class PartialAnswer:
    """Context manager that saves the answer so far every second in which events arrived.

    A timer saves, so that a stalled stream is saved too and chunks are not delayed. The next second begins
    when the last save has ended, so that saves never overlap. A request for several choices (n > 1) is not
    saved: none of them is the answer (rule 6).
    """

    def __init__(self, recorder: Recorder, jobs: Jobs, turn: Turn, holdback: Holdback) -> None:
        self._recorder = recorder
        self._jobs = jobs
        self._turn = turn
        self._holdback = holdback
        self._saved_events = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = turn.request.n != 1

    def __enter__(self) -> None:
        self._wait()

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if not self._is_over:
            self._timer = asyncio.get_running_loop().call_later(SECONDS, self._save)

    def _save(self) -> None:
        events = self._holdback.events
        body = _text_so_far(self._holdback) if events != self._saved_events else None
        if body is None:
            self._wait()
            return
        self._saved_events = events
        self._jobs.start(self._saved(body))

    async def _saved(self, body: bytes) -> None:
        await self._recorder.save_partial(self._turn, body)
        self._wait()


def _text_so_far(holdback: Holdback) -> bytes | None:
    """The message so far, None without text. With open tool calls in it, recovery drops it (rule 11)."""
    choices = holdback.assembly.choices()
    if len(choices) != 1 or holdback.is_closed or holdback.assembly.error is not None:
        return None
    body = choices[0].message_body
    try:
        fields = as_chat(decoded(body))
    except InvalidJson:
        return None
    return body if isinstance(fields, dict) and fields.get("content") else None
