"""Background tasks that outlive a request, CPU work in threads, and places that are given in turn (H05).

Cancelling the caller does not cancel a task started here; the application waits for all of them before it
closes the store. Small work is cheaper done inline. In a thread it lets other requests proceed, except during
C calls that hold the GIL. Its arguments must not change meanwhile. If the caller is cancelled, the thread
finishes and its result is dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import structlog

from palimpsest.errors import RequestError, StoreError

T = TypeVar("T")
_log = structlog.get_logger("palimpsest.jobs")


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The work's result; None once the event is set: the work is cancelled, or not started if set before."""
    if event.is_set():
        work.close()
        return None
    doing, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        waiting.cancel()
        await asyncio.wait((doing, waiting))


@dataclass(frozen=True, slots=True)
class Again:
    """Delays between retries: `first_seconds`, then doubling up to `most_seconds`."""

    most_seconds: float
    first_seconds: float = 1.0

    def rests(self) -> Iterator[float]:
        """The delays in seconds, without end."""
        rest = self.first_seconds
        while True:
            yield min(rest, self.most_seconds)
            rest = min(2 * rest, self.most_seconds)


class Jobs:
    """Runs background tasks, and holds a reference to each until it has ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> Sequence[asyncio.Task[Any]]:
        """The jobs that have not ended."""
        return tuple(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run the work to its end even if the caller is cancelled; an error is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            # A RequestError is reported to the client by whoever awaits the task.
            if error is not None and not isinstance(error, RequestError):
                _log.error("job_failed", error=type(error).__name__)

        task.add_done_callback(ended)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; if the caller is cancelled, the work still runs to its end."""
        return await asyncio.shield(self.start(work))

    async def ended(self) -> None:
        """Wait, without a bound, until all jobs have ended, those started meanwhile included."""
        while self._tasks:
            await asyncio.wait(self.running)

    async def drain(self, seconds: float, rest_seconds: float) -> None:
        """Wait until all jobs have ended, those started meanwhile included.

        After `seconds` the remaining ones are cancelled. Jobs that they start at their end, such as the
        commit of a partial answer, have `rest_seconds` more and are then cancelled too.
        """
        await self._end_within(seconds)
        for limit in (rest_seconds, rest_seconds):
            for task in self.running:
                task.cancel()
            await self._end_within(limit)
        if self._tasks:
            _log.error("jobs_left", jobs=len(self._tasks))

    async def _end_within(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._tasks and (left := until - time.monotonic()) > 0:
            await asyncio.wait(self.running, timeout=left)


@contextmanager
def logged(log: Any, event: str, **facts: object) -> Iterator[None]:
    """A StoreError in the block ends it, and is logged as the warning `event` with these facts."""
    try:
        yield
    except StoreError as error:
        log.warning(event, error=type(error).__name__, **facts)


P = ParamSpec("P")

# Bytes. A body of as many takes 3 to 9 ms to read (msgspec, 35 ms a MB of unseen messages of 200 bytes).
INLINE_WEIGHT = 256 * 1024
# The cost of a message beside its text, expressed in bytes: planning 2,000 small ones takes 30 ms.
MESSAGE_WEIGHT = 512


async def offload(weight: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work`, in a thread if `weight` is above INLINE_WEIGHT."""
    if weight <= INLINE_WEIGHT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


class FairPlaces:
    """At most `places` holders. Owners are served in turn, the jobs of one owner in order of arrival."""

    def __init__(self, places: int) -> None:
        self._free = places
        # The first owner is next; it moves to the end when it is served.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def waiting(self, who: str) -> int:
        """How many jobs of the owner wait."""
        return len(self._waiting.get(who, ()))

    async def acquire(self, who: str) -> None:
        """Take a place, waiting for one if needed. A cancelled wait takes none."""
        if self._free:
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Free the place, or pass it to the next waiter."""
        while self._waiting:
            who, line = next(iter(self._waiting.items()))
            granted = line.popleft()
            if line:
                self._waiting.move_to_end(who)
            else:
                del self._waiting[who]
            # The future of a cancelled waiter is done.
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1

    @asynccontextmanager
    async def place(self, who: str) -> AsyncIterator[None]:
        """Hold a place for the duration of the block."""
        await self.acquire(who)
        try:
            yield
        finally:
            self.release()
