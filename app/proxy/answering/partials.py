"""An answer that is still coming is saved now and then, so that a killed process does not take it along.

Knows the gate that assembles the answer. What becomes of the text after a crash is not decided here.
"""

from __future__ import annotations

import asyncio

from app.core.wire.json_text import decoded
from app.core.wire.responses.items import as_chat
from app.errors import InvalidJson
from app.proxy.answering.gate import Gate
from app.proxy.jobs import Jobs
from app.proxy.sessions.recorder import Recorder
from app.proxy.turn import Turn

# So much of an answer is lost at most, while the store keeps up. Each time all of it is written again:
# more often would cost long answers more than a second of theirs is worth, and short ones are over by then.
SECONDS = 1.0


class PartialAnswer:
    """While it is entered, the answer behind `gate` is saved every second in which events came.

    A timer of its own: a stream that pauses is saved too, and its pieces pay nothing. The next second
    begins when the last save has ended, so there are never two. With several choices asked for nothing
    is saved: none of them is the answer (rule 6).
    """

    def __init__(self, recorder: Recorder, jobs: Jobs, turn: Turn, gate: Gate) -> None:
        self._recorder = recorder
        self._jobs = jobs
        self._turn = turn
        self._gate = gate
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
        events = self._gate.events
        body = _text_so_far(self._gate) if events != self._saved_events else None
        if body is None:
            self._wait()
            return
        self._saved_events = events
        self._jobs.start(self._saved(body))

    async def _saved(self, body: bytes) -> None:
        await self._recorder.save_partial(self._turn, body)
        self._wait()


def _text_so_far(gate: Gate) -> bytes | None:
    """The message, once there is text. Calls that opened since are in it: it cannot stand then (rule 11)."""
    choices = gate.assembly.choices()
    if len(choices) != 1 or gate.is_closed or gate.assembly.error is not None:
        return None
    body = choices[0].message_body
    try:
        fields = as_chat(decoded(body))
    except InvalidJson:
        return None
    return body if isinstance(fields, dict) and fields.get("content") else None
