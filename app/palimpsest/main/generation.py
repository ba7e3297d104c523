"""One generation of the application: from its opening to the end of the last request that it has begun."""

from __future__ import annotations

from contextlib import AsyncExitStack

from palimpsest.api.body import LoggedRequests
from palimpsest.main.front import Composed, composed_of
from palimpsest.main.ground import Ground
from palimpsest.main.parts import Parts, base_url_checked, opened_parts
from palimpsest.main.telemetry import Scraped, observers_of
from palimpsest.proxy.jobs import Jobs, unless
from palimpsest.settings.settings import Settings


class Generation:
    """The application with one state of the settings. `front` answers; `parts` are what it is made of."""

    def __init__(
        self, parts: Parts, composed: Composed, front: LoggedRequests, stack: AsyncExitStack
    ) -> None:
        self.parts = parts
        self.front = front
        self._composed = composed
        self._stack = stack
        # What sweeps and erases by itself, in one generation at a time.
        self._chores = Jobs()

    def begin(self, before: Generation | None) -> None:
        """Begin what is done without requests, once the chores of the generation before have ended."""
        self.parts.jobs.start(self._begun(before))

    async def _begun(self, before: Generation | None) -> None:
        settings, stopping = self.parts.settings, self.parts.stopping
        if before is not None:
            await before._chores.ended()
        self._chores.start(unless(stopping, self.parts.newcomers.keep_sweeping()))
        self._chores.start(unless(stopping, self._composed.retention.keep_running()))
        if before is not None and before._composed.pages.are_loaded:
            # Whoever reads pages now need not wait for them again.
            self.parts.jobs.start(self._composed.pages.load())
        if before is None or before.parts.settings.upstream != settings.upstream:
            self.parts.jobs.start(unless(stopping, base_url_checked(settings)))

    def stop(self) -> None:
        """End event streams, and give up what is deferred."""
        self.parts.stopping.set()

    async def answered(self) -> None:
        """Wait, without a bound, until its requests are answered and what they have begun is done."""
        while self.front.open or self.parts.jobs.open:
            await self.front.answered()
            await self.parts.jobs.ended()

    async def close(self) -> None:
        """Drain its jobs, for a limited time, and close its connections."""
        self.stop()
        await self._chores.ended()
        await self._stack.aclose()


async def opened_generation(
    ground: Ground, settings: Settings, scraped: Scraped | None, before: Generation | None = None
) -> Generation:
    """A generation that may take the place of `before`. PalimpsestError, and nothing left, if it cannot.

    Until `begin` it does nothing by itself.
    """
    async with AsyncExitStack() as stack:
        parts = await opened_parts(ground, settings, stack, before.parts if before else None)
        observers = await observers_of(settings, stack)
        composed = composed_of(parts, scraped.page(settings) if scraped else None)
        stack.callback(composed.pages.release)
        ground.erasure.forgetting.held.append(composed.memory)
        stack.callback(ground.erasure.forgetting.held.remove, composed.memory)
        front = LoggedRequests(composed.front, ground.log, observers)
        return Generation(parts, composed, front, stack.pop_all())
