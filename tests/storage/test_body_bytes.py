"""A namespace's total is the sum of its bodies' lengths, whatever has stored and deleted them."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from palimpsest.cli.backups import back_up, restore
from palimpsest.core.budget.quota import StorageBound
from palimpsest.errors import StorageFull
from palimpsest.proxy.stored_bytes import FRESH_SECONDS, StorageBounds
from palimpsest.settings.serving import Database
from palimpsest.storage.copying import copy_store
from palimpsest.storage.exchange_units import Variant
from palimpsest.storage.migrate import migrate, with_connection
from palimpsest.storage.store import Store, open_store
from pydantic import SecretStr
from sqlalchemy import Connection, text

from tests.storage.conftest import new_id
from tests.storage.talk import Talk, digest

NAMESPACES = ("one", "two", "three")
# Few, so that sessions share most of them.
TEXTS = [bytes([65 + n]) * (n * n + 1) for n in range(12)]
STEPS = 60


def _sums(connection: Connection) -> dict[str, int]:
    lengths = "SELECT namespace, sum(length(body)) FROM bodies GROUP BY namespace"
    return {row[0]: int(row[1]) for row in connection.execute(text(lengths))}


async def is_right(store: Store, url: str) -> dict[str, int]:
    """The totals are the sums, to the byte; returns them."""
    sums = await with_connection(url, _sums)
    assert {name: size for name, size in (await store.body_bytes.all()).items() if size} == sums
    for namespace in NAMESPACES:
        assert await store.body_bytes.of(namespace) == sums.get(namespace, 0)
    each = await store.body_bytes.of_each([*NAMESPACES, "nobody"])
    assert {name: size for name, size in each.items() if size} == {
        name: size for name, size in sums.items() if name in NAMESPACES
    }
    return sums


@dataclass
class Days:
    """What may happen to a database, at random; `talks` are the sessions that are there."""

    store: Store
    chance: random.Random
    talks: list[Talk] = field(default_factory=list)

    async def talks_on(self) -> None:
        """A turn, new or of a session that is there, with texts that others may have too."""
        talk = Talk(self.store, namespace=self.chance.choice(NAMESPACES))
        bodies = self.chance.choices(TEXTS, k=self.chance.randint(1, 5))
        variants = [Variant(digest(b"x"), each, digest(b"body", each)) for each in bodies[:1]]
        opened = await talk.asks(bodies, variants=variants, preamble=self.chance.choices(TEXTS, k=2))
        # Again: a repeated write changes nothing.
        await self.store.exchanges.open(opened)
        await talk.hears(opened, talk.answer(opened, self.chance.choice(TEXTS)))
        self.talks.append(talk)

    async def erases(self) -> None:
        """A session goes, and what no other one has."""
        if self.talks:
            gone = self.talks.pop(self.chance.randrange(len(self.talks)))
            assert await self.store.erasure.session(gone.namespace, gone.session, [], gone.clock)

    async def erases_all(self) -> None:
        """A namespace goes."""
        namespace = self.chance.choice(NAMESPACES)
        await self.store.erasure.namespace(namespace, 1.0)
        self.talks = [talk for talk in self.talks if talk.namespace != namespace]

    async def retires(self) -> None:
        """The oldest session of a namespace goes, as by retention."""
        for old in await self.store.old_sessions.oldest(self.chance.choice(NAMESPACES), 1):
            place = old.namespace, old.session
            assert await self.store.erasure.session(*place, [], 9e9, unused_since=old.updated_at)
            self.talks = [talk for talk in self.talks if talk.session != old.session]

    async def many_at_once(self) -> None:
        """Sessions of a namespace that store the same texts at the same moment."""
        await asyncio.gather(*(self.talks_on() for _ in range(6)))

    async def adds_up(self) -> None:
        """The rows become few, beside somebody who writes."""
        await asyncio.gather(self.store.body_bytes.add_up(), self.talks_on(), self.store.body_bytes.add_up())


@pytest.mark.parametrize("seed", range(3))
async def test_the_total_is_the_sum_after_anything(store: Store, url: str, seed: int) -> None:
    days = Days(store, random.Random(seed))
    doings = [days.talks_on] * 6 + [
        days.erases,
        days.retires,
        days.erases_all,
        days.many_at_once,
        days.adds_up,
    ]
    for _ in range(STEPS):
        await days.chance.choice(doings)()
    await is_right(store, url)
    await store.body_bytes.add_up()
    assert sum((await is_right(store, url)).values()) > 0
    rows = await with_connection(url, partial(_rows, "SELECT namespace FROM body_bytes"))
    assert len(rows) == len(set(rows))
    for namespace in NAMESPACES:
        await store.erasure.namespace(namespace, 1.0)
    assert await is_right(store, url) == {}


def _rows(statement: str, connection: Connection) -> list[Any]:
    rows = [row[0] for row in connection.execute(text(statement))]
    connection.commit()
    return rows


async def test_the_sum_that_is_compared_with_would_notice(store: Store, url: str) -> None:
    """The control: a body that nobody has counted."""
    await Days(store, random.Random(1)).talks_on()
    await is_right(store, url)
    await with_connection(url, partial(_rows, "DELETE FROM body_bytes RETURNING id"))
    with pytest.raises(AssertionError):
        await is_right(store, url)


async def test_a_namespace_that_was_never_proven_leaves_no_total(store: Store, url: str) -> None:
    talk = Talk(store, namespace=await store.accounts.namespace_of(b"made up", 1.0))
    opened = await talk.asks([b"q" * 500])
    await talk.hears(opened, talk.answer(opened, b"a"), state="failed", status=None)
    assert await store.body_bytes.of(talk.namespace) == 501
    assert await store.erasure.unproven(9e9) == [talk.namespace]
    await store.body_bytes.add_up()
    assert await with_connection(url, partial(_rows, "SELECT namespace FROM body_bytes")) == []


def _forgotten(connection: Connection) -> None:
    """The database as revision 0019 left it, with what it held then."""
    for trigger in ("body_bytes_added", "body_bytes_removed"):
        of_table = " ON bodies" if connection.dialect.name == "postgresql" else ""
        connection.execute(text(f"DROP TRIGGER {trigger}{of_table}"))
        if of_table:
            connection.execute(text(f"DROP FUNCTION {trigger}()"))
    connection.execute(text("DROP TABLE body_bytes"))
    for name in ("max_bytes", "retention_days", "retention_bytes"):
        connection.execute(text(f"ALTER TABLE keys DROP COLUMN {name}"))
    connection.execute(text("UPDATE alembic_version SET version_num = '0019'"))
    connection.commit()


async def test_migrating_counts_what_is_there(empty_url: str) -> None:
    await migrate(empty_url)
    store = await open_store(empty_url, deadline_seconds=20, new_id=new_id)
    days = Days(store, random.Random(2))
    for _ in range(9):
        await days.talks_on()
    await with_connection(empty_url, _forgotten)
    await migrate(empty_url)
    assert await is_right(store, empty_url)
    await days.erases()
    await is_right(store, empty_url)
    await store.close()


async def test_a_restored_backup_has_its_totals(sqlite_url: str, tmp_path: Path) -> None:
    store = await open_store(sqlite_url, new_id=new_id)
    days = Days(store, random.Random(3))
    for doing in (*[days.talks_on] * 9, days.erases):
        await doing()
    await store.close()
    (tmp_path / "pepper").write_bytes(bytes(32))
    (tmp_path / "pepper").chmod(0o600)
    url = f"sqlite:///{tmp_path}/again/b.db"
    await asyncio.to_thread(back_up, _database(sqlite_url, tmp_path), tmp_path / "backup")
    there = _database(url, tmp_path / "again")
    await asyncio.to_thread(partial(restore, there, tmp_path / "backup", force=False))
    again = await open_store(url, new_id=new_id)
    assert await is_right(again, url) != {}
    await again.close()


def _database(url: str, folder: Path) -> Database:
    return Database(url=SecretStr(url), data_folder=folder)


async def test_a_copy_has_its_totals(store: Store, url: str, empty_url: str, tmp_path: Path) -> None:
    days = Days(store, random.Random(4))
    for doing in (*[days.talks_on] * 9, days.erases):
        await doing()
    sums = await is_right(store, url)
    target = empty_url if empty_url != url else f"sqlite:///{tmp_path}/copy.db"
    await copy_store(url, target, 0.3)
    copied = await open_store(target, deadline_seconds=20, new_id=new_id)
    try:
        assert await is_right(copied, target) == sums
        rows = await with_connection(target, partial(_rows, "SELECT namespace FROM body_bytes"))
        assert len(rows) == len(set(rows))
    finally:
        await copied.close()


class Clock:
    """Monotonic seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def stores(store: Store, size: int, namespace: str = "ns") -> Talk:
    """A session whose texts take so many bytes."""
    talk = Talk(store, namespace=namespace)
    opened = await talk.asks([talk.session.encode() + b"x" * (size - 33)])
    await talk.hears(opened, talk.answer(opened, b"a"))
    return talk


async def test_nothing_is_read_while_there_is_room_and_no_refusal_is_stale(store: Store) -> None:
    clock = Clock()
    bounds, bound = StorageBounds(store.body_bytes, clock), StorageBound("ns", 1_000)
    talk = await stores(store, 700)
    await bounds.admit(bound, 10)
    await stores(store, 400)
    # Of the room of 299 bytes 10 are used: what was read counts for ten seconds.
    await bounds.admit(bound, 10)
    clock.now += FRESH_SECONDS
    with pytest.raises(StorageFull, match=r"1,099 bytes are stored.*of 1,000.*access\.max_bytes"):
        await bounds.admit(bound, 10)
    # As soon as something is erased there is room.
    await store.erasure.session("ns", talk.session, [], 1.0)
    await bounds.admit(bound, 10)
    await bounds.admit(StorageBound("other", 1), 10)


async def test_requests_that_came_since_are_taken_for_stored(store: Store) -> None:
    bounds, bound = StorageBounds(store.body_bytes, Clock()), StorageBound("ns", 1_000, "k1")
    await bounds.admit(bound, 400)
    await stores(store, 1_000)
    await bounds.admit(bound, 100)
    # Half of what was free may be used by now: it is looked at, whatever the time is.
    with pytest.raises(StorageFull, match="palimpsest keys set k1 --max-bytes"):
        await bounds.admit(bound, 1)


async def filled(store: Store, bounds: StorageBounds, bound: StorageBound, size: int) -> int:
    """Sessions of so many bytes are stored until one is refused; returns how many bytes that were."""
    stored = 0
    with suppress(StorageFull):
        while stored < 10 * bound.max_bytes:
            await bounds.admit(bound, size)
            await stores(store, size)
            stored += size
    return stored


async def test_how_much_two_servers_can_have_above_the_bound(store: Store, url: str) -> None:
    """The second goes for ten seconds by half of the room that it saw; no longer, and no further."""
    beside = await open_store(url, deadline_seconds=20, new_id=new_id)
    bound = StorageBound("ns", 10_000)
    here, there = StorageBounds(store.body_bytes, Clock()), StorageBounds(beside.body_bytes, Clock())
    await there.admit(bound, 0)
    assert await filled(store, here, bound, 1_500) == 10_500
    assert await filled(beside, there, bound, 1_500) == 6_000
    for bounds in (here, there):
        with pytest.raises(StorageFull):
            await bounds.admit(bound, 0)
    await beside.close()
