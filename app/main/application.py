"""The application: the only place where the parts meet.

`create_app(settings)` returns an ASGI application. Its lifespan opens the store and the upstream, and
closes them when every open relay has been recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from app.api.logged import LoggedRequests
from app.errors import PalimpsestError
from app.main.front import front_of
from app.main.parts import opened
from app.proxy.asgi import ASGIMessage, Receive, Scope, Send
from app.proxy.request_log import RequestLog
from app.settings.settings import (
    Settings,
)
from app.tokenizer.counting import Tokenizer


class Application:
    """An ASGI application whose parts exist while its lifespan lasts."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._pages = FastAPI(lifespan=self._lifespan, docs_url=None, redoc_url=None, openapi_url=None)
        self._front: LoggedRequests | None = None
        # How many requests are being answered, once the lifespan has begun.
        self.requests: RequestLog | None = None
        # Why the start was refused: servers tell it as a traceback, a person wants the sentence.
        self.refusal: PalimpsestError | None = None
        # Set when the server begins to stop: streams without an end of their own end then.
        self.stopping = asyncio.Event()
        # True for a program that serves: first requests find their statements ready.
        self.warms = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, or the lifespan."""
        if scope["type"] == "lifespan":
            send = self._without_traceback(send)
        await (self._front or self._pages)(scope, receive, send)

    def _without_traceback(self, send: Send) -> Send:
        """What refuses the start is no bug: where it was raised helps nobody."""

        async def told(message: ASGIMessage) -> None:
            if message["type"] == "lifespan.startup.failed" and self.refusal is not None:
                message = {**message, "message": ""}
            await send(message)

        return told

    @asynccontextmanager
    async def _lifespan(self, pages: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                parts = await opened(self._settings, self._tokenizer, stack, self.stopping)
            except PalimpsestError as refusal:
                self.refusal = refusal
                raise
            self.requests = RequestLog(parts.jobs, self.stopping)
            self._front = LoggedRequests(front_of(parts, pages, self.stopping), self.requests)
            if self.warms:
                # Requests are answered meanwhile.
                parts.jobs.start(parts.store.warm())
            try:
                yield
            finally:
                # Servers that are not ours say only now that they stop: nothing put off is waited for.
                self.stopping.set()


def create_app(settings: Settings, tokenizer: Tokenizer | None = None) -> Application:
    """The whole proxy as one ASGI application; nothing is opened before its lifespan begins.

    Applications of one process may share a tokenizer: loading its encodings takes most of a start.
    """
    return Application(settings, tokenizer or Tokenizer())
