"""The log line of each request under /v1: what was asked, what the client saw, what went wrong and with whom.

Ids, sizes, times and words from fixed lists; the model's name and the path are bounded and printable. Never
contents, never keys.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from app.errors import PalimpsestError, RequestError, UpstreamError
from app.proxy.jobs import Jobs
from app.proxy.turn import Shown, Turn, original

# Lines are written so much later at most: written together they cost a third.
LOG_SECONDS = 0.05
# Longer names and paths are of no use to whoever reads the line.
TEXT_CHARS = 200
# Codes of the proxy's own that are no fault of it.
_EXPECTED = frozenset({"server_busy", "shutdown"})
_FAILURE = 400
_log = structlog.get_logger("palimpsest.exchange")

Cause = Literal["client", "proxy", "upstream"]
End = Literal["whole", "cut", "left"]
Level = Literal["info", "warning", "error"]


def printable(text: str, limit: int = TEXT_CHARS) -> str:
    """The text in one line: control characters escaped, what is longer than `limit` left out."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def cause_of(error: PalimpsestError) -> Cause:
    """Whose doing an error is."""
    if isinstance(error, RequestError):
        return "client"
    return "upstream" if isinstance(error, UpstreamError) else "proxy"


@dataclass(slots=True)
class RequestEntry:
    """What is known of one request so far. `status` is what the client saw, None where it saw nothing."""

    event: Literal["exchange", "request"] = "request"
    method: str = ""
    path: str = ""
    status: int | None = None
    end: End = "cut"
    code: str | None = None
    cause: Cause | None = None
    bytes: int = 0
    request_id: str | None = None
    upstream: str | None = None
    attempts: int = 0
    first_byte_seconds: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)
    _asked: float = 0.0

    def failed(self, error: PalimpsestError) -> None:
        """What went wrong; the first that is said counts."""
        if self.code is None:
            self.code, self.cause = error.code, cause_of(error)

    def refused(self, code: str) -> None:
        """The upstream said no, in its own words."""
        if self.code is None:
            self.code, self.cause = code, "upstream"

    def asked_for(self, model: str) -> None:
        """The model is known."""
        self.facts["model"] = printable(model)

    def placed(self, turn: Turn) -> None:
        """The session is known."""
        self.facts |= {
            "session": turn.session,
            "exchange": turn.exchange,
            "mode": turn.mode,
            "found": turn.placement.found_by,
            "new_messages": len(turn.placement.new),
            "tokens_full": original(turn).for_model(turn.tokens),
        }

    def forwarded(self, upstream: str, turn: Turn | None = None, shown: Shown | None = None) -> None:
        """The request goes upstream, once more perhaps; sizes are as the model counts."""
        self.upstream = upstream
        self.attempts += 1
        self._asked = time.perf_counter()
        if turn is not None and shown is not None:
            self.facts["view"] = "original" if shown.is_original else "compacted"
            self.facts["tokens_full"] = shown.for_model(turn.tokens)
            self.facts["tokens"] = shown.for_model(shown.tokens)

    def answered(self) -> None:
        """The first byte of the upstream's answer is here."""
        self.first_byte_seconds = round(time.perf_counter() - self._asked, 3)

    def settled(self, *, stopping: bool) -> None:
        """Nothing more will happen. What was broken off without a reason was broken off by the stop."""
        if self.code is None and self.end == "cut":
            self.code, self.cause = ("shutdown" if stopping else "internal_error"), "proxy"
        elif self.code is None and (self.status or 0) >= _FAILURE:
            self.refused("upstream_status")

    @property
    def level(self) -> Level:
        """error: the operator must look; warning: somebody did not get an answer; info: all else."""
        if self.cause == "proxy" and self.code not in _EXPECTED:
            return "error"
        if self.end == "left":
            return "info"
        return "warning" if self.code is not None else "info"

    def line(self, ended_at: float) -> Mapping[str, object]:
        """The fields, in the order in which they are read; what is not known is left out."""
        where = {} if self.event == "exchange" else {"method": self.method, "path": self.path}
        known = {
            **where,
            "status": self.status,
            "end": self.end,
            "code": self.code,
            "cause": self.cause,
            **self.facts,
            "upstream": self.upstream,
            "attempts": self.attempts or None,
            "first_byte_seconds": self.first_byte_seconds,
            "seconds": round(time.perf_counter() - self.began, 3),
            "bytes": self.bytes,
            "request": self.request_id,
            "ended_at": round(ended_at, 3),
        }
        return {name: value for name, value in known.items() if value is not None}


class RequestLog:
    """One line for each request, at its end, a moment later. `stopping` is set when the server stops."""

    def __init__(self, jobs: Jobs, stopping: asyncio.Event) -> None:
        self._jobs = jobs
        self._stopping = stopping
        self._ended: list[tuple[Level, str, Mapping[str, object]]] = []
        self.open = 0
        # Answers that the stop has broken off.
        self.cut = 0

    def begun(self) -> None:
        """One more request is being answered."""
        self.open += 1

    def note(self, entry: RequestEntry) -> None:
        """The request has ended."""
        self.open -= 1
        entry.settled(stopping=self._stopping.is_set())
        self.cut += entry.code == "shutdown"
        if not self._ended:
            self._jobs.start(self._written())
        self._ended.append((entry.level, entry.event, entry.line(time.time())))

    async def _written(self) -> None:
        # A stop waits for nothing that was put off.
        if not self._stopping.is_set():
            await asyncio.sleep(LOG_SECONDS)
        ended, self._ended = self._ended, []
        for level, event, fields in ended:
            getattr(_log, level)(event, **fields)
