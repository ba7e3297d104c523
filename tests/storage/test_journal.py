"""Events, checkpoints, settings and spending: in order, once, and each namespace's own."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from palimpsest.storage.journal import CheckpointKind, CheckpointRow, EventRow, MemoryRow, TokensSpent
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, talked

HOSTILE = b'{"text":"\x00 raw NUL, \xff not UTF-8, \\ud83d half a pair"}'


def event(ident: str, type_: str = "started") -> EventRow:
    return EventRow(ident, type_, b'{"of":"%s"}' % ident.encode(), 5.0)


def checkpoint(ident: str, kind: CheckpointKind = "periodic", point: bytes = b"\x00\xff") -> CheckpointRow:
    return CheckpointRow(ident, kind, point, 5.0)


async def types_of(store: Store, session: str, after: int = 0, limit: int = 99) -> list[str]:
    return [stored.id for stored in await store.journal.events("ns", session, after, limit)]


async def test_events_read_back_in_their_order_and_page_by_page(store: Store) -> None:
    talk, _ = await talked(store, 1)
    said = [event("a"), replace(event("b"), payload=HOSTILE, type="na\0me"), event("c")]
    await store.journal.add_events("ns", talk.session, said)
    await store.journal.add_events("ns", talk.session, [event("d")])
    await store.journal.add_events("ns", talk.session, [])
    stored = await store.journal.events("ns", talk.session, 0, 99)
    assert stored == [said[0], replace(said[1], type="na\\x00me"), said[2], event("d")]
    places = [row.seq for row in stored]
    assert places == sorted(set(places))
    assert await types_of(store, talk.session, limit=2) == ["a", "b"]
    assert await types_of(store, talk.session, after=places[1]) == ["c", "d"]
    assert await types_of(store, talk.session, after=places[-1]) == []


async def test_an_event_stands_after_what_arrived_before_it(store: Store) -> None:
    talk, said = await talked(store, 1)
    await store.journal.add_events("ns", talk.session, [event("a")])
    await talk.asks([*said, b"more"], stored=2)
    (stored,) = await store.journal.events("ns", talk.session, 0, 9)
    rows = await store.history.messages("ns", talk.session, talk.chains([*said, b"more"])[-1])
    assert rows[1].arrival < stored.seq < rows[2].arrival


async def test_events_are_found_by_their_types(store: Store) -> None:
    talk, _ = await talked(store, 1)
    await store.journal.add_events(
        "ns", talk.session, [event(str(i), c) for i, c in enumerate([*"abcab", "z\0"])]
    )
    for types in (["a"], ["a", "c"], ["a"] * 3, [*"abc", "z\0", "none"]):
        found = await store.journal.events("ns", talk.session, 0, 99, types)
        assert {row.type for row in found} == {t.replace("\0", "\\x00") for t in types} - {"none"}
    assert len(await store.journal.events("ns", talk.session, 0, 2, ["a", "b"])) == 2
    assert await store.journal.events("ns", talk.session, 0, 9, ["none"]) == []


async def test_an_event_added_again_changes_nothing(store: Store) -> None:
    talk, _ = await talked(store, 1)
    for _ in range(2):
        await store.journal.add_events("ns", talk.session, [event("a"), event("b")])
    await store.journal.add_events("ns", talk.session, [event("a", "other"), event("c")])
    stored = await store.journal.events("ns", talk.session, 0, 99)
    assert stored == [event("a"), event("b"), event("c")]


async def test_two_servers_that_add_events_lose_none(store: Store, beside: Store) -> None:
    talk, _ = await talked(store, 1)
    writing = [
        (store, beside)[i % 2].journal.add_events("ns", talk.session, [event(f"{i}-{j}") for j in range(3)])
        for i in range(20)
    ]
    await asyncio.gather(*writing)
    stored = await store.journal.events("ns", talk.session, 0, 99)
    assert len({row.seq for row in stored}) == 60
    named = [row.id for row in stored]
    # What came in one call stands together.
    assert all(named[i : i + 3] == [f"{named[i][:-2]}-{j}" for j in range(3)] for i in range(0, 60, 3))


async def test_checkpoints_are_kept_once_newest_first(store: Store) -> None:
    talk, _ = await talked(store, 1)
    first, second, third = checkpoint("1"), checkpoint("2", "pre_compaction"), checkpoint("3")
    for new in (first, second, third):
        assert await store.journal.add_checkpoint("ns", talk.session, new)
    assert not await store.journal.add_checkpoint("ns", talk.session, first)
    assert not await store.journal.add_checkpoint("ns", talk.session, checkpoint("3", point=b"other"))
    stored = await store.journal.checkpoints("ns", talk.session, 9)
    assert stored == [third, second, first]
    assert [row.arrival for row in stored] == sorted((row.arrival for row in stored), reverse=True)
    assert await store.journal.checkpoints("ns", talk.session, 2) == stored[:2]
    assert await store.journal.checkpoints("ns", talk.session, 9, stored[0].arrival) == stored[1:]
    assert await store.journal.checkpoint("ns", talk.session, "2") == stored[1]
    assert await store.journal.checkpoint("ns", talk.session, "4") is None
    twin = Talk(store)
    await twin.turns(1)
    assert await store.journal.checkpoint("ns", twin.session, "2") is None
    assert await store.journal.add_checkpoint("ns", twin.session, first)


async def test_what_is_told_with_a_checkpoint_comes_behind_it(store: Store) -> None:
    talk, _ = await talked(store, 1)
    note = MemoryRow("m", "flush", b"note", None, 5.0)
    for _ in range(2):
        await store.journal.add_checkpoint(
            "ns", talk.session, checkpoint("1"), [event("a"), event("b")], [note]
        )
    (kept,) = await store.journal.checkpoints("ns", talk.session, 9)
    (memory,) = await store.journal.memories("ns", talk.session, 9)
    told = await store.journal.events("ns", talk.session, 0, 9)
    assert [row.id for row in told] == ["a", "b"]
    assert [kept.arrival, memory.arrival, *(row.seq for row in told)] == list(
        range(kept.arrival, kept.arrival + 4)
    )


async def test_settings_are_replaced_and_taken_away(store: Store) -> None:
    talk, _ = await talked(store, 1)
    assert await store.journal.settings_of("ns", talk.session) is None
    for payload in (HOSTILE, HOSTILE, b""):
        await store.journal.put_settings("ns", talk.session, payload)
        assert await store.journal.settings_of("ns", talk.session) == payload
    for _ in range(2):
        await store.journal.put_settings("ns", talk.session, None)
        assert await store.journal.settings_of("ns", talk.session) is None


async def test_spending_adds_up_for_each_day(store: Store) -> None:
    assert await store.journal.spending("ns", "2026-11-22") == TokensSpent()
    spent = [TokensSpent(1, 100, i, 90) for i in range(5)]
    await asyncio.gather(*(store.journal.add_spending("ns", "2026-11-22", one) for one in spent))
    await store.journal.add_spending("ns", "2026-11-23", TokensSpent(1, 2**40, 0))
    await store.journal.add_spending("other", "2026-11-22", TokensSpent(9, 9, 9, 9))
    # From a day on.
    assert await store.journal.spending("ns", "2026-11-22") == TokensSpent(6, 500 + 2**40, 10, 450)
    assert await store.journal.spending("ns", "2026-11-23") == TokensSpent(1, 2**40, 0, 0)
    assert await store.journal.spending("other", "2026-11-23") == TokensSpent()


@pytest.mark.spec("P5")
async def test_no_journal_crosses_a_namespace(store: Store) -> None:
    mine, theirs = Talk(store, session="same"), Talk(store, namespace="other", session="same")
    await mine.turns(1)

    async def written(namespace: str, payload: bytes) -> None:
        await store.journal.add_events(namespace, "same", [replace(event("e"), payload=payload)])
        await store.journal.add_checkpoint(namespace, "same", checkpoint("c", point=payload))
        await store.journal.put_settings(namespace, "same", payload)

    async def read(namespace: str) -> list[bytes | None]:
        events = [row.payload for row in await store.journal.events(namespace, "same", 0, 9)]
        listed = [row.point for row in await store.journal.checkpoints(namespace, "same", 9)]
        one = await store.journal.checkpoint(namespace, "same", "c")
        settings = await store.journal.settings_of(namespace, "same")
        return [*events, *listed, one.point if one else None, settings]

    await written("ns", b"mine")
    # There is no such session over there yet: nothing is written, nothing is seen.
    await written("other", b"theirs")
    assert await read("other") == [None, None]
    await theirs.turns(1)
    assert await read("other") == [None, None]
    await written("other", b"theirs")
    await store.journal.put_settings("nobody", "same", None)
    assert await read("other") == [b"theirs"] * 4
    assert await read("ns") == [b"mine"] * 4
