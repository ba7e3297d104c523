"""Places are given out in turn to those who wait, and none is lost (H05)."""

from __future__ import annotations

import asyncio

from palimpsest.proxy.jobs import FairPlaces


async def settled() -> None:
    """Whatever can go on has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_who_waits_has_one_in_turn() -> None:
    places, order = FairPlaces(1), []

    async def work(who: str) -> None:
        async with places.place(who):
            order.append(who)
            await asyncio.sleep(0)

    await places.acquire("first")
    tasks = [asyncio.create_task(work(who)) for who in ("a", "a", "a", "b", "c", "b")]
    await settled()
    assert (places.waiting("a"), places.waiting("b"), places.waiting("nobody")) == (3, 2, 0)
    places.release()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_who_gives_up_leaves_its_place_to_the_next() -> None:
    places = FairPlaces(1)
    await places.acquire("first")
    waiting, next_one = (asyncio.create_task(places.acquire(who)) for who in ("a", "b"))
    await settled()
    waiting.cancel()
    await settled()
    places.release()
    await next_one
    # Given one and cancelled in the same moment.
    late, last = (asyncio.create_task(places.acquire(who)) for who in ("a", "b"))
    await settled()
    places.release()
    late.cancel()
    await last
    places.release()
    await asyncio.wait_for(places.acquire("c"), 1)
