"""`create_app(settings)` returns the ASGI application.

Its lifespan opens the store and the upstream, and closes them when every open relay has been recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.routing import Router

from palimpsest.api.body import LoggedRequests
from palimpsest.errors import PalimpsestError
from palimpsest.main.front import front_of
from palimpsest.main.parts import opened
from palimpsest.main.telemetry import metrics_page_of, observers_of
from palimpsest.proxy.incoming import ASGIMessage, Receive, Scope, Send
from palimpsest.proxy.reports import RequestLog
from palimpsest.proxy.telemetry.siblings import Siblings
from palimpsest.settings.settings import (
    Settings,
)
from palimpsest.tokenizer.counting import Tokenizer


class Application:
    """An ASGI application whose parts exist while its lifespan lasts."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        # Handles the lifespan, which creates the front door; that handles all requests.
        self._opening = Router(lifespan=self._lifespan)
        self._front: LoggedRequests | None = None
        # Counts the requests being answered, once the lifespan has begun.
        self.requests: RequestLog | None = None
        # Why the start was refused: the server would print a traceback, `serve` prints the message.
        self.refusal: PalimpsestError | None = None
        # Set when the server begins to stop: ends event streams.
        self.stopping = asyncio.Event()
        # The other processes of the same `serve`, whose numbers a scrape reads, too.
        self.siblings: Siblings | None = None
        # True for `serve`: statements are compiled before the first requests need them.
        self.warms = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, or the lifespan."""
        if scope["type"] == "lifespan":
            send = self._without_traceback(send)
        await (self._front or self._opening)(scope, receive, send)

    def _without_traceback(self, send: Send) -> Send:
        """A refusal to start is no bug: its traceback is dropped."""

        async def told(message: ASGIMessage) -> None:
            if message["type"] == "lifespan.startup.failed" and self.refusal is not None:
                message = {**message, "message": ""}
            await send(message)

        return told

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                parts = await opened(self._settings, self._tokenizer, stack, self.stopping)
                observers = await observers_of(parts, stack)
            except PalimpsestError as refusal:
                self.refusal = refusal
                raise
            log = self.requests = RequestLog(parts.jobs, self.stopping, observers)
            metrics = metrics_page_of(parts, lambda: log.open, self.siblings, stack)
            self._front = LoggedRequests(front_of(parts, self.stopping, metrics), log)
            # The server listens meanwhile; only a chat request that arrives earlier waits for it.
            parts.jobs.start(asyncio.to_thread(self._tokenizer.load))
            if self.warms:
                # Requests are answered meanwhile.
                parts.jobs.start(parts.store.warm())
            try:
                yield
            finally:
                # Other ASGI servers do not announce a stop earlier; deferred jobs are given up.
                self.stopping.set()


def create_app(settings: Settings, tokenizer: Tokenizer | None = None) -> Application:
    """The whole proxy as an ASGI application; nothing is opened before its lifespan begins.

    Applications of one process may share a tokenizer: loading its encodings takes most of a start.
    """
    return Application(settings, tokenizer or Tokenizer())
