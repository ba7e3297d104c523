"""The client's side of one exchange: sends to it, detects its disconnect, and reports: headers, one log line.

A disconnect cancels the exchange, so that the upstream stops generating. Whatever is cancelled must record
what it has received. Reports hold ids, sizes, times and words from fixed lists, never contents or keys. The
model's name, the path and an upstream's error are bounded and printable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import structlog

from palimpsest.core.budget.upstream_counts import percent
from palimpsest.core.text.secrets import error_words
from palimpsest.core.view.compaction import Compaction
from palimpsest.errors import PalimpsestError, RequestError, UpstreamError
from palimpsest.proxy.incoming import Headers, Receive, Send
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.turn import ForwardedView, Outcome, Turn, original


def compaction_comment(turn: Turn, shown: ForwardedView) -> bytes:
    """The comment of a compacted view, for a stream of server-sent events; empty for an original view."""
    compaction = shown.view.compaction
    if compaction is None:
        return b""
    summary = (
        f"compaction={compaction.id} tokens={_sizes(turn, shown)} policy={_policy(compaction, turn, shown)}"
    )
    return f": palimpsest {summary}\n\n".encode()


def exchange_headers(
    turn: Turn, shown: ForwardedView, *, includes_view: bool = True
) -> list[tuple[bytes, bytes]]:
    """The x-palimpsest headers of an answer; `includes_view`: including those about the view."""
    compaction = shown.view.compaction
    said = f"{turn.mode}; found={turn.placement.found_by}"
    said += f"; carrier={turn.carrier}" if turn.carrier else ""
    said += "; continues=no" if turn.is_apart else ""
    headers = [
        (b"x-palimpsest-session", turn.session.encode()),
        (b"x-palimpsest-mode", said.encode()),
    ]
    if not includes_view:
        return headers
    headers += [
        (b"x-palimpsest-view", b"original" if compaction is None else b"compacted"),
        (b"x-palimpsest-tokens", _sizes(turn, shown).encode()),
    ]
    if compaction is not None:
        headers.append((b"x-palimpsest-compaction", compaction.id.encode()))
        headers.append((b"x-palimpsest-policy", _policy(compaction, turn, shown).encode()))
    return headers


def _policy(compaction: Compaction, turn: Turn, shown: ForwardedView) -> str:
    """The policy of the view, and the shares of the window without and with it (D23)."""
    sizes = (shown.for_model(turn.tokens), shown.for_model(shown.tokens))
    before, after = (percent(tokens, shown.window_tokens) for tokens in sizes)
    return f"{compaction.policy}; before={before}%; after={after}%"


def _sizes(turn: Turn, shown: ForwardedView) -> str:
    """Tokens of the whole prompt and of the view, as the model counts."""
    return f"{shown.for_model(turn.tokens)}/{shown.for_model(shown.tokens)}"


# Most delay of a log line (seconds): written together, lines cost a third.
LOG_SECONDS = 0.05
# Longer names and paths are truncated in the line.
TEXT_CHARS = 200
# Codes of the proxy that are no fault of it.
_EXPECTED = frozenset({"server_busy", "shutdown"})
_FAILURE = 400
_log = structlog.get_logger("palimpsest.exchange")

# In an entry `bytes` is a number.
Bytes: TypeAlias = bytes
Cause = Literal["client", "proxy", "upstream"]
End = Literal["whole", "cut", "left"]
Level = Literal["info", "warning", "error"]


def printable(text: str, limit: int = TEXT_CHARS) -> str:
    """The text in one line: control characters escaped, truncated to `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def cause_of(error: PalimpsestError) -> Cause:
    """The party at fault."""
    if isinstance(error, RequestError):
        return "client"
    return "upstream" if isinstance(error, UpstreamError) else "proxy"


@dataclass(slots=True)
class RequestEntry:
    """What is known of one request so far. `status`: as sent to the client, None if nothing was sent.

    `api`: the name of an exchange's wire. `headers`: the request's, keys among them. The request as placed,
    the view sent last, and what came back are None before they are known.
    """

    event: Literal["exchange", "request"] = "request"
    method: str = ""
    path: str = ""
    status: int | None = None
    end: End = "cut"
    code: str | None = None
    cause: Cause | None = None
    # The upstream's own words of an error, without keys.
    error: str | None = None
    bytes: int = 0
    request_id: str | None = None
    upstream: str | None = None
    attempts: int = 0
    # From the arrival to when the upstream was asked first: our own work, and waiting for a compaction.
    prepared_seconds: float | None = None
    first_byte_seconds: float | None = None
    # In UTC seconds.
    first_byte_at: float | None = None
    # The sha256 of the body as it was sent upstream, decoded and before hidden rounds.
    body_digest: Bytes | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    api: str = ""
    headers: Headers = field(default=(), repr=False)
    # As sent upstream, perhaps with a key of the operator's.
    sent_headers: Headers = field(default=(), repr=False)
    model: str = ""
    turn: Turn | None = None
    shown: ForwardedView | None = None
    answer: Outcome | None = None
    began: float = field(default_factory=time.perf_counter)
    _asked: float = 0.0
    # How long it took, in seconds; 0 before its end.
    seconds: float = 0.0
    # What was counted as its cost so far.
    cost: float = 0.0

    def failed(self, error: PalimpsestError) -> None:
        """Record an error; the first one counts."""
        if self.code is None:
            self.code, self.cause = error.code, cause_of(error)

    def refused(self, code: str, body: Bytes = b"") -> None:
        """Record an error answer of the upstream, with its words; the first error counts."""
        if self.code is None:
            self.code, self.cause = code, "upstream"
            said = error_words(body, [*self.headers, *self.sent_headers])
            self.error = printable(said, len(said)) or None

    def asked_for(self, model: str) -> None:
        """Record the model."""
        self.model = self.facts["model"] = printable(model)

    def placed(self, turn: Turn) -> None:
        """Record the session and how the request was placed in it."""
        self.turn = turn
        self.facts |= {
            "session": turn.session,
            "exchange": turn.exchange,
            "mode": turn.mode,
            "found": turn.placement.found_by,
            "new_messages": len(turn.placement.new),
            "tokens_full": original(turn).for_model(turn.tokens),
        }

    def forwarded(self, upstream: str, turn: Turn | None = None, shown: ForwardedView | None = None) -> None:
        """Record an attempt to send the request upstream; sizes are as the model counts."""
        self.upstream = upstream
        self.attempts += 1
        self._asked = time.perf_counter()
        if self.prepared_seconds is None:
            self.prepared_seconds = round(self._asked - self.began, 4)
        if turn is not None and shown is not None:
            self.turn, self.shown = turn, shown
            self.facts["view"] = "original" if shown.is_original else "compacted"
            self.facts["tokens_full"] = shown.for_model(turn.tokens)
            self.facts["tokens"] = shown.for_model(shown.tokens)

    def answered(self) -> None:
        """Record the arrival of the answer's first byte."""
        self.first_byte_seconds = round(time.perf_counter() - self._asked, 3)
        self.first_byte_at = time.time()

    def settled(self, *, stopping: bool) -> None:
        """Close the entry. An end without an error is a shutdown while stopping, else an internal error."""
        self.seconds = time.perf_counter() - self.began
        if self.code is None and self.end == "cut":
            self.code, self.cause = ("shutdown" if stopping else "internal_error"), "proxy"
        elif self.code is None and self.has_failed:
            own: tuple[str, Cause] = ("refused", "client")
            self.code, self.cause = ("upstream_status", "upstream") if self.upstream else own

    @property
    def has_failed(self) -> bool:
        """True where the client got an error status."""
        return (self.status or 0) >= _FAILURE

    @property
    def level(self) -> Level:
        """error: the operator must act; warning: a client got no answer; info: all else."""
        if self.cause == "proxy" and self.code not in _EXPECTED:
            return "error"
        if self.end == "left":
            return "info"
        return "warning" if self.code is not None else "info"

    def line(self, ended_at: float) -> Mapping[str, object]:
        """The fields in the order of the log line, without unknown ones."""
        where = {} if self.event == "exchange" else {"method": self.method, "path": self.path}
        known = {
            **where,
            "status": self.status,
            "end": self.end,
            "code": self.code,
            "cause": self.cause,
            "error": self.error,
            **self.facts,
            "upstream": self.upstream,
            "attempts": self.attempts or None,
            "prepared_seconds": self.prepared_seconds,
            "first_byte_seconds": self.first_byte_seconds,
            "seconds": round(self.seconds, 3),
            "bytes": self.bytes,
            "request": self.request_id,
            "ended_at": round(ended_at, 3),
        }
        return {name: value for name, value in known.items() if value is not None}


# Called with the entry of every request that has ended; must not fail.
Observer = Callable[[RequestEntry], None]


class RequestLog:
    """Writes a line for each request below `/v1/` and each other one that failed, shortly after its end.

    `stopping` is set when the server stops.

    `observers` are called with each entry at the request's end, when the client has its answer.
    """

    def __init__(self, jobs: Jobs, stopping: asyncio.Event, observers: Sequence[Observer] = ()) -> None:
        self._jobs = jobs
        self._stopping = stopping
        self.observers = list(observers)
        self._ended: list[tuple[Level, str, Mapping[str, object]]] = []
        self.open = 0
        # Answers that the stop has cut.
        self.cut = 0

    def begun(self) -> None:
        """A request has begun."""
        self.open += 1

    def note(self, entry: RequestEntry) -> None:
        """The request has ended."""
        self.open -= 1
        self.write(entry)
        self.cut += entry.code == "shutdown"
        for observe in self.observers:
            observe(entry)

    def write(self, entry: RequestEntry) -> None:
        """Close the entry and write its line."""
        entry.settled(stopping=self._stopping.is_set())
        if not self._ended:
            self._jobs.start(self._written())
        self._ended.append((entry.level, entry.event, entry.line(time.time())))

    async def _written(self) -> None:
        # No delay during a stop.
        if not self._stopping.is_set():
            await asyncio.sleep(LOG_SECONDS)
        ended, self._ended = self._ended, []
        for level, event, fields in ended:
            getattr(_log, level)(event, **fields)


# Answers that never have a body, whatever their headers say (RFC 9110, 6.4.1).
BODILESS = frozenset({204, 304})


class Client:
    """A client that waits for an answer. `started` is true once the status line was sent, with `status`.

    `entry` is the log entry of its request.
    """

    def __init__(self, receive: Receive, send: Send, entry: RequestEntry | None = None) -> None:
        self.entry = entry or RequestEntry()
        self._receive = receive
        self._send = send
        self._attended = False
        self._gone = False
        self._done = False
        self.started = False
        self.status: int | None = None

    @asynccontextmanager
    async def attended(self, after: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[Client]:
        """Context manager that cancels its body when the client disconnects and suppresses that cancellation.

        Nested uses add nothing. It receives from the client, which nothing else may do meanwhile; it begins
        once `after` has returned.
        """
        if self._attended:
            yield self
            return
        self._attended = True
        owner = asyncio.current_task()
        assert owner is not None
        watch = asyncio.get_running_loop().create_task(self._watch(owner, after))
        try:
            yield self
        except asyncio.CancelledError:
            if not self._gone or owner.uncancel() > 0:
                raise
        finally:
            self._done = True
            watch.cancel()

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send the status line and the headers."""
        self.started = True
        self.status = status
        if status in BODILESS:
            # A 304 may state the length of the body it omits; the ASGI server would wait for those bytes.
            headers = [header for header in headers if header[0].lower() != b"content-length"]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes) -> None:
        """Send more of the body; waits while the client reads slower than we write."""
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes; from now on a disconnect is ignored."""
        self._done = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def _watch(self, owner: asyncio.Task[object], after: Callable[[], Awaitable[None]] | None) -> None:
        if after is not None:
            await after()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
        if not self._done:
            self._gone = True
            owner.cancel()
