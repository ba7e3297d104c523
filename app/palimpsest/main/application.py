"""`create_app(settings)` returns the ASGI application: it opens its parts while its lifespan lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.routing import Router

from palimpsest.api.body import LoggedRequests
from palimpsest.errors import PalimpsestError
from palimpsest.main.wiring import Parts, base_url_checked, tracer_class
from palimpsest.proxy.incoming import ASGIApp, ASGIMessage, Receive, Scope, Send
from palimpsest.proxy.reports import Observer, RequestLog
from palimpsest.proxy.telemetry.counts import Siblings
from palimpsest.settings.settings import Settings
from palimpsest.tokenizer.counting import Tokenizer


class Application:
    """An ASGI application whose parts exist while its lifespan lasts."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        # Handles the lifespan; `_front` handles all requests.
        self._opening = Router(lifespan=self._lifespan)
        self._front: LoggedRequests | None = None
        # Counts the requests being answered, once the lifespan has begun.
        self.requests: RequestLog | None = None
        # Why the start was refused: the server would print a traceback, `serve` prints the message.
        self.refusal: PalimpsestError | None = None
        # Set when the server begins to stop: event streams end, and what is deferred is given up.
        self._stopping = asyncio.Event()
        # The other processes of the same `serve`, whose numbers a scrape reads, too.
        self.siblings: Siblings | None = None
        # True for `serve`: statements are compiled before the first requests need them.
        self.warms = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, or the lifespan."""
        if scope["type"] == "lifespan":
            send = self._without_traceback(send)
        await (self._front or self._opening)(scope, receive, send)

    def begin_stop(self) -> None:
        """The server begins to stop."""
        self._stopping.set()

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
                self._front = await self._opened(stack)
            except PalimpsestError as refusal:
                self.refusal = refusal
                raise
            try:
                yield
            finally:
                # Other ASGI servers do not announce a stop earlier.
                self.begin_stop()

    async def _opened(self, stack: AsyncExitStack) -> LoggedRequests:
        """Everything, wired; `stack` closes it in reverse order."""
        settings = self._settings
        parts = Parts(settings, self._tokenizer, self._stopping)
        await parts.open(stack)
        self.requests = parts.log
        how, observers = settings.telemetry, list[Observer]()
        if how.otlp_url is not None:
            # On a thread: the import takes 70 ms.
            tracer = (await asyncio.to_thread(tracer_class))(how.otlp_url, content=how.trace_content)
            stack.push_async_callback(tracer.close)
            observers.append(tracer.ended)

        def pages() -> ASGIApp:
            from palimpsest.main.pages import own_pages

            return own_pages(parts)

        front, retention = parts.front(pages, parts.metrics(self.siblings, stack))
        parts.keep(
            stack, parts.newcomers.keep_sweeping(), retention.keep_running(), base_url_checked(settings)
        )
        if self.warms:
            # Requests are answered meanwhile.
            parts.chores.start(parts.store.warm())
        return LoggedRequests(front, parts.log, observers)


def create_app(settings: Settings, tokenizer: Tokenizer | None = None) -> Application:
    """The whole proxy as an ASGI application; nothing is opened before its lifespan begins.

    Applications of one process may share a tokenizer: loading its encodings takes most of a start.
    """
    return Application(settings, tokenizer or Tokenizer())
