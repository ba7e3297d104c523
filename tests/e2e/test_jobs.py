"""What outlives a request is waited for at the end, what is begun meanwhile too, and never for ever."""

from __future__ import annotations

import asyncio

import pytest
from palimpsest.proxy.jobs import Jobs

pytestmark = pytest.mark.timeout(30)


async def test_a_job_that_another_begins_at_its_end_is_waited_for() -> None:
    jobs, done = Jobs(), list[str]()

    async def last() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("last")

    async def first() -> None:
        await asyncio.sleep(0)
        jobs.start(last())
        done.append("first")

    jobs.start(first())
    await jobs.drain(20, 0)
    assert done == ["first", "last"]


async def test_jobs_that_begin_others_for_ever_are_left() -> None:
    jobs, ended = Jobs(), asyncio.Event()

    async def again() -> None:
        try:
            await asyncio.sleep(0.001)
        finally:
            if not ended.is_set():
                jobs.start(again())

    jobs.start(again())
    await jobs.drain(0.01, 0.01)
    ended.set()
    # The control: now they end.
    await jobs.drain(20, 0)
    await jobs.drain(0, 0)


async def test_what_a_cancelled_job_begins_is_not_cancelled_with_it() -> None:
    """An answer that is cut at the stop is committed as far as it came."""
    jobs, done = Jobs(), list[str]()

    async def commits() -> None:
        await asyncio.sleep(0.01)
        done.append("committed")

    async def answers() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            jobs.start(commits())

    jobs.start(answers())
    await asyncio.sleep(0)
    await jobs.drain(0, 20)
    assert done == ["committed"]
