"""Tasks that outlive the request that began them: records being committed, summaries being made.

Knows nothing of what they do. Whoever starts one here can be cancelled without cancelling it; the
application waits for all of them before it closes the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from app.errors import RequestError

T = TypeVar("T")
_log = structlog.get_logger("palimpsest.jobs")


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The work's result; None, and the work is given up, once the event is set. Set before: not begun."""
    if event.is_set():
        work.close()
        return None
    doing, told = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        told.cancel()
        await asyncio.wait((doing, told))


class Jobs:
    """Holds a reference to every running task until it has ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The work runs to its end whatever becomes of the caller; an unseen failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; when the caller is cancelled meanwhile, the work goes on to its end."""
        return await asyncio.shield(self.start(work))

    async def drain(self, seconds: float, rest_seconds: float) -> None:
        """All jobs have ended, those too that were begun meanwhile; bounded.

        After `seconds` what is left is cancelled. What the cancelled ones begin at their end, the commit of
        what there is of an answer, has `rest_seconds` more and is cancelled too.
        """
        await self._end_within(seconds)
        for limit in (rest_seconds, rest_seconds):
            for task in tuple(self._tasks):
                task.cancel()
            await self._end_within(limit)
        if self._tasks:
            _log.error("jobs_left", jobs=len(self._tasks))

    async def _end_within(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._tasks and (left := until - time.monotonic()) > 0:
            await asyncio.wait(tuple(self._tasks), timeout=left)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # What cannot be asked for is told to whoever asked.
        if error is not None and not isinstance(error, RequestError):
            _log.error("job_failed", error=type(error).__name__)
