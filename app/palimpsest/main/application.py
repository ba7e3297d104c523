"""`create_app(settings)` returns the ASGI application.

Its lifespan opens the ground, which lives as long as the process, and on it a first generation, which is
made from settings. A reload puts another generation in its place, for new requests; the old one is closed
when every request that it has begun is answered and recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.routing import Router

from palimpsest.api.body import LoggedRequests
from palimpsest.errors import PalimpsestError, SettingsError
from palimpsest.main.generation import Generation, opened_generation
from palimpsest.main.ground import Ground, opened_ground
from palimpsest.main.telemetry import Scraped, scraped_of
from palimpsest.proxy.incoming import ASGIMessage, Receive, Scope, Send
from palimpsest.proxy.jobs import Jobs, unless
from palimpsest.proxy.reports import RequestLog
from palimpsest.proxy.telemetry.siblings import Siblings
from palimpsest.settings.reload import Reload, Reloaded
from palimpsest.settings.settings import Settings
from palimpsest.tokenizer.counting import Tokenizer


class Application:
    """An ASGI application whose parts exist while its lifespan lasts."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        # Handles the lifespan, which opens the first generation; that handles all requests.
        self._opening = Router(lifespan=self._lifespan)
        self._front: LoggedRequests | None = None
        # The one that answers new requests.
        self.generation: Generation | None = None
        # Generations in whose place others have been put.
        self._retiring: set[Generation] = set()
        self._retirements = Jobs()
        self._renewing = asyncio.Lock()
        # Set when the server has answered or cut all requests: generations that retire are closed, too.
        self._ended = asyncio.Event()
        self._ground: Ground | None = None
        self._scraped: Scraped | None = None
        # Why the start was refused: the server would print a traceback, `serve` prints the message.
        self.refusal: PalimpsestError | None = None
        # Set when the server begins to stop.
        self._stopping = asyncio.Event()
        # The other processes of the same `serve`, whose numbers a scrape reads, too.
        self.siblings: Siblings | None = None
        # True for `serve`: statements are compiled before the first requests need them.
        self.warms = False
        # Called between the opening of the ground and that of the first generation.
        self.ground_opened: Callable[[], None] = lambda: None
        # Given by whoever reads the settings.
        self.reloads: Reload = no_reload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, or the lifespan."""
        if scope["type"] == "lifespan":
            send = self._without_traceback(send)
        await (self._front or self._opening)(scope, receive, send)

    @property
    def requests(self) -> RequestLog | None:
        """Counts the requests being answered, once the lifespan has begun."""
        return self._ground.log if self._ground is not None else None

    async def reload(self) -> Reloaded:
        """Read the settings again and use them for new requests; names of what is applied, and what is not.

        SettingsError when they are refused, and nothing has changed. With several workers, all of them are
        told to: their names are of what each will do.
        """
        return await self.reloads()

    async def renew(self, settings: Settings) -> None:
        """Use these settings for new requests; open ones are finished under those that they began with.

        PalimpsestError when no generation can be made of them, and nothing has changed.
        """
        async with self._renewing:
            ground, old = self._ground, self.generation
            if ground is None or old is None or self._stopping.is_set():
                return
            new = await opened_generation(ground, settings, self._scraped, old)
            # From here on nothing can fail, and nothing is awaited.
            ground.counting = new.parts.counting
            if self._scraped is not None:
                self._scraped.renew(settings, ground.jobs)
            self._retiring.add(old)
            self._take(new, old)
            old.stop()
            self._retirements.start(self._retired(old))

    def begin_stop(self) -> None:
        """The server begins to stop: event streams end, and what is deferred is given up."""
        self._stopping.set()
        for generation in self._generations():
            generation.stop()

    def _take(self, generation: Generation, before: Generation | None) -> None:
        self.generation, self._front = generation, generation.front
        generation.begin(before)
        if self._stopping.is_set():
            generation.stop()

    def _generations(self) -> list[Generation]:
        return [*self._retiring, *([self.generation] if self.generation is not None else [])]

    async def _retired(self, generation: Generation) -> None:
        await unless(self._ended, generation.answered())
        try:
            await generation.close()
        finally:
            self._retiring.discard(generation)

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
                self._take(await self._opened(stack), None)
            except PalimpsestError as refusal:
                self.refusal = refusal
                raise
            try:
                yield
            finally:
                # Other ASGI servers do not announce a stop earlier; deferred jobs are given up.
                self.begin_stop()
                async with self._renewing:
                    self._ended.set()
                    if self.generation is not None:
                        await self.generation.close()
                    await self._retirements.ended()

    async def _opened(self, stack: AsyncExitStack) -> Generation:
        """The ground, which `stack` closes, and the first generation."""
        settings, stopping = self._settings, self._stopping
        ground = await opened_ground(settings, self._tokenizer, stack, stopping, self.reload)
        self._ground = ground
        self._scraped = scraped_of(ground, settings, self._open_jobs, self.siblings, stack)
        self.ground_opened()
        if self.warms:
            # Requests are answered meanwhile.
            ground.jobs.start(ground.store.warm())
        return await opened_generation(ground, settings, self._scraped)

    def _open_jobs(self) -> int:
        """The jobs behind the answers of all generations."""
        ground = self._ground.jobs.open if self._ground is not None else 0
        return ground + sum(generation.parts.jobs.open for generation in self._generations())


async def no_reload() -> Reloaded:
    """The reload of an application whose settings are not read from anywhere. SettingsError."""
    raise SettingsError("The settings of this server are not read from anywhere; it must be started anew.")


def create_app(settings: Settings, tokenizer: Tokenizer | None = None) -> Application:
    """The whole proxy as an ASGI application; nothing is opened before its lifespan begins.

    Applications of one process may share a tokenizer: loading its encodings takes most of a start.
    """
    return Application(settings, tokenizer or Tokenizer())
