"""What accounts have used: added up once for each answer, by any number of servers, whatever is erased."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from palimpsest.core.budget.economy import Prices
from palimpsest.core.budget.quota import DailyLimits, Quota, Used
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.errors import QuotaExceeded
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.quotas import Quotas
from palimpsest.storage.accounts import Charge
from palimpsest.storage.store import Store, open_store

from tests.storage.conftest import new_id
from tests.storage.talk import Talk

# 2026-11-26, 23:59:00 UTC.
LATE = 1_795_737_540.0
DAY, NEXT = "2026-11-26", "2026-11-27"


def quotas_of(store: Store, now: float = LATE) -> Quotas:
    async def prices(model: str) -> Prices | None:
        return Prices(2.0, 0.2, 2.0, 10.0) if model == "priced" else None

    return Quotas(store.accounts, Jobs(), prices, lambda: now)


async def test_charges_add_up_by_account_and_day(store: Store) -> None:
    await asyncio.gather(*(store.accounts.charge(Charge("a", DAY, 5, 0.25)) for _ in range(8)))
    await store.accounts.charge(Charge("a", NEXT, 1, 0.0))
    await store.accounts.charge(Charge("b", DAY, -3, 0.0))
    assert await store.accounts.used("a", DAY) == Used(40, 2.0)
    assert await store.accounts.used("a", NEXT) == Used(1, 0.0)
    assert await store.accounts.used("c", DAY) == Used()
    assert await store.accounts.used_on(DAY) == {"a": Used(40, 2.0), "b": Used(-3, 0.0)}


async def test_an_answer_and_its_charge_are_stored_together_and_survive_an_erase(store: Store) -> None:
    talk = Talk(store, namespace=await store.accounts.namespace_of(b"real", 1.0))
    opened = await talk.asks([b"q"])
    closed = replace(await talk.hears(opened, state="failed"), charge=Charge(talk.namespace, DAY, 7, 0.5))
    await store.exchanges.close(closed)
    assert await store.accounts.used(talk.namespace, DAY) == Used(7, 0.5)
    await store.erasure.session(talk.namespace, talk.session, [], 1.0)
    # Nothing is recorded any more, but it was used.
    await store.exchanges.close(closed)
    await store.erasure.namespace(talk.namespace, 1.0)
    assert await store.accounts.used(talk.namespace, DAY) == Used(14, 1.0)


async def test_the_first_answer_proves_a_namespace_also_if_it_is_charged(store: Store) -> None:
    talk = Talk(store, namespace=await store.accounts.namespace_of(b"real", 1.0))
    opened = await talk.asks([b"q"])
    closed = await talk.hears(opened, state="failed", status=None)
    assert not (await store.accounts.status(talk.namespace)).proven
    charge = Charge(talk.namespace, DAY, 7, 0.5)
    await store.exchanges.close(replace(closed, state="done", status=200, charge=charge))
    assert (await store.accounts.status(talk.namespace)).proven


async def test_what_one_server_charges_another_sees_at_once(store: Store, url: str) -> None:
    beside = await open_store(url, deadline_seconds=20, new_id=new_id)
    quota = Quota("a", DailyLimits(tokens=10))
    here, there = quotas_of(store), quotas_of(beside)
    # Both begin below the quota, and both run to their ends: that much can be above it.
    bills = [await here.bill(quota), await there.bill(quota)]
    for quotas, bill in zip((here, there), bills, strict=True):
        charge = await quotas.charge_of(bill, "m", Usage(6, 3), 0, 0)
        await store.accounts.charge(charge)
        quotas.settle(bill, charge)
    assert await beside.accounts.used("a", DAY) == Used(18, 0.0)
    for quotas in (here, there):
        with pytest.raises(QuotaExceeded, match=r"18 of 10 tokens.*access\.daily_tokens") as refused:
            await quotas.bill(quota)
        assert refused.value.retry_seconds == 61
    # A minute later is another day.
    assert await quotas_of(beside, LATE + 60).bill(quota)
    await beside.close()


async def test_an_answer_that_is_stored_twice_is_charged_once(store: Store) -> None:
    """A stream is stored when its text ends, and again with the usage that comes after it."""
    quotas = quotas_of(store)
    bill = await quotas.bill(Quota("a", DailyLimits(tokens=100)))
    for usage in (Usage(), Usage(60, 20), Usage(60, 20)):
        charge = await quotas.charge_of(bill, "m", usage, 70, 25)
        await store.accounts.charge(charge)
        quotas.settle(bill, charge)
    assert await store.accounts.used("a", DAY) == Used(80, 0.0)


async def test_dollars_are_counted_by_prices_that_are_known(store: Store) -> None:
    quotas = quotas_of(store)
    bill = await quotas.bill(Quota("a", DailyLimits(dollars=0.01), is_key=True))
    unpriced = await quotas.charge_of(bill, "local", Usage(10**6, 10**6), 0, 0)
    assert unpriced == Charge("a", DAY, 2 * 10**6, 0.0)
    priced = await quotas.charge_of(bill, "priced", Usage(2_000, 500, cached_tokens=1_000), 0, 0)
    assert priced.dollars == pytest.approx((1_000 * 2.0 + 1_000 * 0.2 + 500 * 10.0) / 10**6)
    await store.accounts.charge(replace(priced, dollars=0.0125))
    with pytest.raises(QuotaExceeded, match=r"\$0\.01 of \$0\.01.*palimpsest keys set a --daily-dollars"):
        await quotas.bill(bill.quota)
