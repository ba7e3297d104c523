"""What accounts have used: added up once for each answer, by any number of servers, whatever is erased."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from palimpsest.errors import QuotaExceeded, StoreUnavailable
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.quotas import Quota, Quotas
from palimpsest.storage.accounts import Charge, UsedTokens
from palimpsest.storage.store import Store, open_store

from tests.storage.conftest import new_id
from tests.storage.talk import Talk

# 2026-11-26, 23:59:00 UTC.
LATE = 1_795_737_540.0
DAY, NEXT = "2026-11-26", "2026-11-27"


def quotas_of(store: Store, now: float = LATE) -> Quotas:
    return Quotas(store.accounts, Jobs(), lambda: now)


async def test_charges_add_up_by_account_and_day(store: Store) -> None:
    await asyncio.gather(*(store.accounts.charge(Charge("a", DAY, 5)) for _ in range(8)))
    await store.accounts.charge(Charge("a", NEXT, 1))
    await store.accounts.charge(Charge("b", DAY, -3))
    assert await store.accounts.used("a", DAY) == UsedTokens(40)
    assert await store.accounts.used("a", NEXT) == UsedTokens(1)
    assert await store.accounts.used("c", DAY) == UsedTokens()
    assert await store.accounts.used_on(DAY) == {"a": 40, "b": -3}


async def test_an_answer_and_its_charge_are_stored_together_and_survive_an_erase(store: Store) -> None:
    talk = Talk(store, namespace=await store.accounts.namespace_of(b"real", 1.0))
    opened = await talk.asks([b"q"])
    closed = replace(await talk.hears(opened, state="failed"), charge=Charge(talk.namespace, DAY, 7))
    await store.exchanges.close(closed)
    assert await store.accounts.used(talk.namespace, DAY) == UsedTokens(7)
    await store.erasure.session(talk.namespace, talk.session, [], 1.0)
    # Nothing is recorded any more, but it was used.
    await store.exchanges.close(closed)
    await store.erasure.namespace(talk.namespace, 1.0)
    assert await store.accounts.used(talk.namespace, DAY) == UsedTokens(14)


async def test_of_many_at_once_one_is_the_last_that_finds_something_left(store: Store, beside: Store) -> None:
    """On any server; what it reserves is released with its charge, or with the server."""
    asked = [each.accounts.reserve("a", DAY, 30, 100) for each in (store, beside) * 20]
    assert sum(await asyncio.gather(*asked)) == 4
    assert await beside.accounts.used("a", DAY) == UsedTokens(0, 120)
    await store.accounts.charge(Charge("a", DAY, 5, 30))
    assert await store.accounts.used("a", DAY) == UsedTokens(5, 90)
    assert await beside.accounts.reserve("a", DAY, 1, 100)
    assert not await store.accounts.reserve("b", DAY, 1, 0)
    # More than is reserved is never released: a server that was given up may run on.
    await store.accounts.charge(Charge("a", DAY, 0, 10**6))
    assert (await store.accounts.used("a", DAY)).reserved == 0


async def test_what_a_server_reserved_goes_with_it(postgres_url: str) -> None:
    servers = [await open_store(postgres_url, new_id=new_id, sole=True) for _ in range(3)]
    first, second, third = servers
    for each in servers:
        await each.journal.beat()
        assert await each.accounts.reserve("a", DAY, 10, 100)
    await second.journal.leave()
    assert (await first.accounts.used("a", DAY)).reserved == 20
    beats = await first.journal.beats()
    assert await first.journal.give_up(str(third.journal.server), beats[str(third.journal.server)])
    assert (await first.accounts.used("a", DAY)).reserved == 10
    for each in servers:
        await each.close()


async def test_what_one_server_charges_another_sees_at_once(store: Store, beside: Store) -> None:
    quota = Quota("a", 10)
    here, there = quotas_of(store), quotas_of(beside)
    bills = [await here.bill(quota), await there.bill(quota)]
    for quotas, bill in zip((here, there), bills, strict=True):
        with quotas.charging(bill, 9) as charge:
            await store.accounts.charge(charge)
    assert await beside.accounts.used("a", DAY) == UsedTokens(18)
    for quotas in (here, there):
        with pytest.raises(QuotaExceeded, match=r"18 of 10 tokens.*access\.daily_tokens") as refused:
            await quotas.bill(quota)
        assert refused.value.retry_seconds == 61
    # A minute later is another day.
    assert await quotas_of(beside, LATE + 60).bill(quota)


async def test_an_answer_that_is_stored_twice_is_charged_once(store: Store) -> None:
    """A stream is stored when its text ends, and again with the usage that comes after it."""
    quotas = quotas_of(store)
    bill = await quotas.bill(Quota("a", 100))
    await quotas.reserve(bill, 90)
    for used in (95, 80, 80):
        with quotas.charging(bill, used) as charge:
            await store.accounts.charge(charge)
    assert await store.accounts.used("a", DAY) == UsedTokens(80)


async def test_a_charge_that_could_not_be_stored_is_stored_before_the_next_bill(store: Store) -> None:
    quotas, quota = quotas_of(store), Quota("a", 100)
    bill = await quotas.bill(quota)
    await quotas.reserve(bill, 90)
    with pytest.raises(StoreUnavailable), quotas.charging(bill, 20):
        raise StoreUnavailable("The disk is full.")
    assert await store.accounts.used("a", DAY) == UsedTokens(0, 90)
    await quotas.bill(quota)
    assert await store.accounts.used("a", DAY) == UsedTokens(20)
