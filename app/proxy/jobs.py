"""Tasks that outlive the request that began them: records being committed, summaries being made.

Knows nothing of what they do. Whoever starts one here can be cancelled without cancelling it; the
application waits for all of them before it closes the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

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

    async def drain(self, seconds: float) -> None:
        """All tasks have ended, or `seconds` have passed and what was left is cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job_failed", error=type(error).__name__)
