"""Leases: one holder at a time, whoever asks, until it lets go or its time is over."""

from __future__ import annotations

import asyncio

import pytest
from palimpsest.proxy.compacting.summary_jobs import Leases
from palimpsest.proxy.jobs import Jobs
from palimpsest.storage.store import Store


async def test_a_lease_has_one_holder_until_its_time_is_over(store: Store) -> None:
    assert not await store.journal.is_leased("job", 100.0)
    assert await store.journal.take_lease("job", "a", 100.0, 300.0)
    assert not await store.journal.take_lease("job", "b", 399.0, 300.0)
    assert await store.journal.take_lease("other job", "b", 100.0, 300.0)
    assert await store.journal.is_leased("job", 399.0)
    assert await store.journal.is_leased("job", 399.0, "b")
    assert not await store.journal.is_leased("job", 399.0, "a")
    assert not await store.journal.is_leased("job", 400.0)
    assert await store.journal.take_lease("job", "b", 400.0, 300.0)
    assert not await store.journal.take_lease("job", "a", 401.0, 300.0)
    assert await store.journal.is_leased("job", 699.0)


async def test_a_lease_is_renewed_by_its_holder_alone(store: Store) -> None:
    assert not await store.journal.renew_lease("job", "a", 100.0, 300.0)
    assert await store.journal.take_lease("job", "a", 100.0, 300.0)
    assert await store.journal.renew_lease("job", "a", 300.0, 300.0)
    assert not await store.journal.renew_lease("job", "b", 300.0, 900.0)
    assert not await store.journal.take_lease("job", "b", 599.0, 300.0)
    # Late, but nobody has taken it.
    assert await store.journal.renew_lease("job", "a", 700.0, 300.0)
    assert await store.journal.take_lease("job", "a", 800.0, 300.0)
    assert await store.journal.take_lease("job", "b", 1100.0, 300.0)
    assert not await store.journal.renew_lease("job", "a", 1101.0, 300.0)


@pytest.mark.spec("B17")
async def test_a_lease_is_renewed_while_its_job_lives(store: Store) -> None:
    looks, renewed = 0, asyncio.Event()

    def clock() -> float:
        # The third look is that of the second renewal: the first is stored.
        nonlocal looks
        looks += 1
        if looks == 3:
            renewed.set()
        return 100.0 * looks

    leases = Leases(store.journal, Jobs(), "a", clock, seconds=0.3)
    async with leases.held("n", "s") as has_lease:
        assert has_lease
        async with asyncio.timeout(20):
            await renewed.wait()
        assert await store.journal.is_leased("compact:n:s", 200.1)
    assert not await store.journal.is_leased("compact:n:s", 100.1)


async def test_a_lease_let_go_is_free(store: Store) -> None:
    assert await store.journal.take_lease("job", "a", 100.0, 300.0)
    await store.journal.release_lease("job", "b")
    assert not await store.journal.take_lease("job", "b", 101.0, 300.0)
    await store.journal.release_lease("job", "a")
    assert not await store.journal.is_leased("job", 101.0)
    assert await store.journal.take_lease("job", "b", 101.0, 300.0)
    await store.journal.release_lease("job", "a")
    assert await store.journal.is_leased("job", 102.0)


async def test_of_two_servers_one_gets_a_lease_that_is_free_or_expired(store: Store, beside: Store) -> None:
    for now in (100.0, 400.0, 700.0):
        took = await asyncio.gather(
            *((store, beside)[i % 2].journal.take_lease("job", f"{now} {i}", now, 300.0) for i in range(12))
        )
        assert took.count(True) == 1
