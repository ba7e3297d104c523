"""Which sessions are kept too long, and that a session in use is not erased for it."""

from __future__ import annotations

import asyncio

from palimpsest.proxy.erasing import Eraser, Forgetting, RetentionSweep, Scrubber
from palimpsest.proxy.jobs import Again, Jobs
from palimpsest.proxy.server_secrets import Pepper
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.storage.accounts import KeyRow
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.namespaces import OldSession
from palimpsest.storage.store import Store

from tests.storage.talk import Talk

DAY = 86_400


async def due_in(store: Store, days: int, max_bytes: int, now: float) -> list[OldSession]:
    return await store.namespaces.due(await store.namespaces.limits(days, max_bytes), now)


async def names(store: Store, limits: tuple[int, int], now: float) -> list[str]:
    return [old.session for old in await due_in(store, *limits, now)]


async def finished(store: Store, age: float, body: bytes, namespace: str = "ns") -> Talk:
    """A session of one question and its answer, written to last two seconds after `age`."""
    talk = Talk(store, namespace=namespace, session=f"{namespace}-{age:.0f}")
    talk.clock = age
    opened = await talk.asks([body])
    await talk.hears(opened, talk.answer(opened, b"a"))
    return talk


async def test_the_oldest_of_all_namespaces_are_due_by_age(store: Store) -> None:
    for age, namespace in ((3 * DAY, "ns"), (1 * DAY, "other"), (2 * DAY, "ns")):
        await finished(store, age, b"q", namespace)
    by_age = (10, 0)
    assert await names(store, by_age, 11 * DAY) == []
    # To the second: the last write was two seconds after its age.
    assert await names(store, by_age, 11 * DAY + 2) == []
    assert await names(store, by_age, 11 * DAY + 3) == [f"other-{DAY}"]
    assert await names(store, by_age, 13 * DAY) == [f"other-{DAY}", f"ns-{2 * DAY}"]
    assert await names(store, (0, 0), 99 * DAY) == []


async def test_the_oldest_are_due_until_a_namespace_is_below_its_bytes(store: Store) -> None:
    for age in (30.0, 10.0, 20.0):
        await finished(store, age, b"x" * (99 + int(age)))
    await finished(store, 1.0, b"x" * 90, "small")
    # 129 + 109 + 119 bytes, and the answer that all three share.
    assert await store.namespaces.sizes() == {"ns": 358, "small": 91}
    assert await store.namespaces.size("ns", "ns-10") == 110
    for most, gone in ((358, []), (357, ["ns-10"]), (248, ["ns-10"]), (247, ["ns-10", "ns-20"])):
        assert await names(store, (0, most), 99.0) == gone
    assert await names(store, (1, 357), DAY + 5.0) == ["small-1", "ns-10"]


async def key_of(store: Store, ident: str, namespace: str, **limits: int) -> KeyRow:
    """A key of the namespace, with these limits."""
    row = KeyRow(ident, "", namespace, 1.0, **limits)
    await store.accounts.add_key(row, ident.encode())
    return row


async def test_the_limits_of_a_key_win(store: Store) -> None:
    """Shorter and longer ones, of days and of bytes, and nobody else is touched by them."""
    for namespace in ("short", "long", "plain", "large", "small"):
        for age in (1 * DAY, 5 * DAY):
            await finished(store, age, b"x" * 99, namespace)
    await key_of(store, "k1", "short", retention_days=2)
    await key_of(store, "k2", "long", retention_days=300)
    await key_of(store, "k3", "small", retention_bytes=150)
    await key_of(store, "k4", "large", retention_bytes=10**6)
    now = 8 * DAY
    assert await names(store, (0, 0), now) == [f"short-{DAY}", f"short-{5 * DAY}"]
    # The texts of both sessions are the same: the total is below.
    assert sorted(await names(store, (6, 0), now)) == sorted(
        [f"short-{DAY}", f"short-{5 * DAY}", *(f"{name}-{DAY}" for name in ("plain", "large", "small"))]
    )
    await finished(store, 6 * DAY, b"y" * 99, "small")
    by_bytes = await names(store, (0, 0), now)
    assert by_bytes[2:] == [f"small-{DAY}"]
    assert sorted(await names(store, (0, 50), now - 7 * DAY)) == [
        *(f"{name}-{DAY}" for name in ("long", "plain", "short", "small"))
    ]


async def test_of_several_keys_the_valid_ones_and_the_largest_limit_count(store: Store) -> None:
    await finished(store, 1 * DAY, b"q")
    first = await key_of(store, "k1", "ns", retention_days=50)
    await key_of(store, "k2", "ns", retention_days=100)
    assert await names(store, (10, 0), 99 * DAY) == []
    assert await store.accounts.revoke_key("k2", 2.0)
    assert await names(store, (10, 0), 99 * DAY) == [f"ns-{DAY}"]
    # None is valid any more: what was agreed holds.
    assert await store.accounts.revoke_key(first.id, 2.0)
    assert await names(store, (10, 0), 99 * DAY) == []
    assert await names(store, (10, 0), 102 * DAY) == [f"ns-{DAY}"]
    # A key without limits takes them back, and the general ones hold.
    await key_of(store, "k3", "ns")
    assert await names(store, (10, 0), 99 * DAY) == [f"ns-{DAY}"]
    assert await names(store, (0, 0), 999 * DAY) == []


async def test_a_session_with_an_open_exchange_is_never_due_and_never_erased(store: Store) -> None:
    talk = await finished(store, 10.0, b"q")
    opened = await talk.asks([b"q", b"a", b"more"], stored=2, continues=True)
    everything = (1, 1)
    assert await names(store, everything, 99 * DAY) == []
    later = talk.clock + 1
    assert await store.erasure.session("ns", talk.session, [], later, unused_since=later) is None
    await talk.hears(opened)
    assert await names(store, everything, 99 * DAY) == [talk.session]
    assert await store.erasure.session("ns", talk.session, [], later, unused_since=later + 9)
    assert await names(store, everything, 99 * DAY) == []


async def test_a_session_that_was_used_meanwhile_stays(store: Store) -> None:
    talk = await finished(store, 10.0, b"q")
    (old,) = await due_in(store, 1, 0, 99 * DAY)
    opened = await talk.asks([b"q", b"a", b"more"], stored=2, continues=True)
    await talk.hears(opened, talk.answer(opened, b"b", answers=2))
    assert await store.erasure.session("ns", talk.session, [], 1.0, unused_since=old.updated_at) is None
    # It is not taken for erased, either: what follows is stored.
    assert await talk.said([b"q", b"a", b"more", b"b"]) == [b"q", b"a", b"more", b"b"]
    again = await talk.asks([b"q", b"a", b"more", b"b", b"still"], stored=4, continues=True)
    await talk.hears(again)
    assert await store.history.message("ns", again.head[:12]) is not None


def retention_of(store: Store, stack: list[Jobs], now: float) -> RetentionSweep:
    """RetentionSweep of ten days, as a server runs it."""
    jobs, gone, never = Jobs(), RecentlyErased(), asyncio.Event()
    stack.append(jobs)
    scrubber = Scrubber(store.erasure, jobs, never, Again(1.0))
    reader, tombstones = (
        MessageReader(lambda _: lambda _: 1, 10**6),
        Tombstones(store.erasure, Pepper(bytes(32))),
    )
    forgetting = Forgetting(jobs, jobs, never, InFlight(), reader, Again(60.0))
    eraser = Eraser(store, jobs, gone, scrubber, tombstones, forgetting, None, lambda: now)
    return RetentionSweep(store, eraser, 10, 0, lambda: now)


async def test_of_two_servers_one_erases(store: Store) -> None:
    """The other leaves it to the first, and takes over when that is gone."""
    for age in range(12):
        await finished(store, float(age), b"%d" % age)
    now = 99.0 * DAY
    jobs: list[Jobs] = []
    assert await store.journal.take_lease("retention", "another", now, 60.0)
    assert await retention_of(store, jobs, now).run() == 0
    assert len(await names(store, (10, 0), now)) == 12
    assert await retention_of(store, jobs, now + 61).run() == 12
    # It lets go: the next one need not wait.
    assert not await store.journal.is_leased("retention", now + 61)
    assert await names(store, (10, 0), now) == []
    for each in jobs:
        await each.drain(60.0, 1.0)


async def test_who_has_lost_its_lease_stops(store: Store) -> None:
    for age in range(3):
        await finished(store, float(age), b"%d" % age)
    now = 99.0 * DAY
    found = await due_in(store, 10, 0, now)
    assert await store.journal.take_lease("retention", "another", now, 60.0)
    assert await retention_of(store, [], now)._erased(found) == 0
    assert len(await names(store, (10, 0), now)) == 3
