"""Imports and erases are written in slices: nobody reads a part, and what a failure leaves is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from palimpsest.errors import Conflict, StoreUnavailable
from palimpsest.storage.database import SqlDatabase, Unit
from palimpsest.storage.exchange_units import OpenExchange
from palimpsest.storage.journal import EventRow
from palimpsest.storage.store import Store

from tests.storage.talk import Talk
from tests.storage.test_erase import of_namespace
from tests.storage.test_imports import opened

ROWS = 1_500
# A slice, and the steps that every unit has.
MOST_ROWS = 300


class Slices:
    """A database that notes the rows of each unit, and fails from its unit `last` on."""

    def __init__(self, database: SqlDatabase, last: int = 1_000) -> None:
        self._database = database
        self._left = last
        self.rows: list[int] = []

    async def write(self, unit: Unit, **more: Any) -> Sequence[int]:
        self._left -= 1
        if self._left < 0:
            raise StoreUnavailable("it is gone")
        touched = await self._database.write(unit, **more)
        self.rows.append(sum(touched))
        return touched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def large(talk: Talk) -> OpenExchange:
    """An import of many messages."""
    bodies = [b"message %d" % place for place in range(ROWS)]
    chains = talk.chains(bodies)
    messages = [
        talk.message(body, chain=chain, parent=parent, depth=depth)
        for depth, (body, chain, parent) in enumerate(zip(bodies, chains, [b"", *chains], strict=False), 1)
    ]
    return replace(opened(talk), head=chains[-1], messages=messages)


EVENTS = [EventRow(f"e{place}", "usage", b"{}", 5.0) for place in range(ROWS)]
TIMES = [1.0] * ROWS


async def test_no_unit_of_an_import_or_an_erase_is_large(store: Store, url: str) -> None:
    talk = Talk(store)
    slices = Slices(store.exchanges._db)
    store.exchanges._db = store.erasure._db = slices
    await store.exchanges.import_session(large(talk), TIMES, EVENTS)
    assert sum(slices.rows) >= 3 * ROWS
    assert len(await store.history.messages("ns", talk.session, large(talk).head)) == ROWS
    counts = await store.erasure.session("ns", talk.session, [], 1.0)
    assert counts is not None
    assert (counts["messages"], counts["events"], counts["bodies"]) == (ROWS, ROWS, ROWS + 1)
    assert max(slices.rows) <= MOST_ROWS
    assert not any((await of_namespace(url, "ns")).values())


async def test_a_long_history_that_a_request_brings_is_stored_as_a_short_one(store: Store) -> None:
    talk = Talk(store)
    slices = Slices(store.exchanges._db)
    store.exchanges._db = slices
    bodies = [b"message %d" % place for place in range(ROWS)]
    await Talk(store).asks([b"q"], external_id="name")
    for _ in range(2):
        request = await talk.asks(
            bodies, external_id="name", takes_name=True, exchange="x", preamble=[b"be kind"]
        )
    assert max(slices.rows) <= MOST_ROWS
    assert await talk.said(bodies) == bodies
    (head,) = await store.history.heads("ns", talk.session)
    assert (head.chain, head.depth) == (request.head, ROWS)
    assert await store.history.preamble("ns", talk.session, head.preamble) == [b"be kind"]
    row = await store.history.session("ns", "name")
    assert row is not None
    assert (row.id, row.messages, row.exchanges) == (talk.session, ROWS, 1)
    await talk.hears(request, talk.answer(request, b"answer"))
    assert await talk.said([*bodies, b"answer"]) == [*bodies, b"answer"]


async def test_a_long_history_that_meets_a_taken_name_leaves_nothing(store: Store, url: str) -> None:
    await Talk(store, namespace="other").asks([b"q"], external_id="name")
    first, second = Talk(store), Talk(store)
    await first.asks([b"q"], external_id="name")
    with pytest.raises(Conflict):
        await second.asks([b"message %d" % place for place in range(ROWS)], external_id="name")
    assert await store.history.session("ns", second.session) is None
    await store.erasure.scrub()
    left = await of_namespace(url, "ns")
    assert (left["sessions"], left["messages"], left["bodies"], left["exchanges"]) == (1, 1, 1, 1)


@pytest.mark.parametrize("last", [1, 3, 10])
async def test_an_import_that_fails_is_not_there_and_the_next_scrub_deletes_it(
    store: Store, url: str, last: int
) -> None:
    talk, database = Talk(store), store.exchanges._db
    store.exchanges._db = Slices(database, last)
    with pytest.raises(StoreUnavailable):
        await store.exchanges.import_session(large(talk), TIMES, EVENTS)
    store.exchanges._db = database
    assert await store.history.session("ns", talk.session) is None
    assert await store.history.session("ns", "tour") is None
    assert await store.history.known("ns", talk.chains([b"message 0"]), None) == []
    await store.erasure.drop_import("ns", talk.session)
    assert await store.erasure.is_unfinished()
    await store.erasure.scrub()
    assert not any((await of_namespace(url, "ns")).values())
    assert not await store.erasure.is_unfinished()


async def test_an_import_that_was_cut_is_completed_by_the_same_call(store: Store) -> None:
    talk, database = Talk(store), store.exchanges._db
    store.exchanges._db = Slices(database, 4)
    with pytest.raises(StoreUnavailable):
        await store.exchanges.import_session(large(talk), TIMES, EVENTS)
    store.exchanges._db = database
    for _ in range(2):
        await store.exchanges.import_session(large(talk), TIMES, EVENTS)
    row = await store.history.session("ns", "tour")
    assert row is not None
    assert (row.messages, row.found_by) == (ROWS, "import")
    assert len(await store.journal.events("ns", talk.session, 0, 10_000)) == ROWS


@pytest.mark.parametrize("last", [1, 2, 9])
async def test_an_erase_that_fails_is_finished_by_the_next_scrub(store: Store, url: str, last: int) -> None:
    talk, database = Talk(store), store.erasure._db
    await store.exchanges.import_session(large(talk), TIMES, EVENTS)
    other = Talk(store)
    await other.asks([b"message 7"])
    store.erasure._db = Slices(database, last)
    with pytest.raises(StoreUnavailable):
        await store.erasure.session("ns", talk.session, [], 1.0)
    store.erasure._db = database
    assert await store.history.session("ns", talk.session) is None
    await store.erasure.scrub()
    left = await of_namespace(url, "ns")
    assert (left["sessions"], left["messages"], left["bodies"], left["events"]) == (1, 1, 1, 0)
    assert await other.said([b"message 7"]) == [b"message 7"]
