"""Compactions are fenced by the epoch, stored whole or not at all, and undone once; pins are kept once."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.errors import StoreError
from palimpsest.storage.journal import EventRow, JournalEntries, MemoryRow
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, talked

COMPACTION = Compaction(
    id="c1",
    kind="message_removal",
    watermark=b"w" * 32,
    kept=(b"a" * 32, b"b" * 32),
    masks=(Mask(b"m" * 32, 1200), Mask(b"n" * 32, 2**40)),
    summary="what was \0 said \ud83d",
    policy="auto",
    trigger="proactive",
    author="model",
    model="m",
    tokens_before=9000,
    tokens_after=4000,
    messages_folded=20,
    parents=("c0",),
    reason="90 % full",
    memory="what is kept \0 \ud83d",
    state=b'{"x":"\x00\xff"}',
    details=b'{"steps":[]}',
)


async def test_a_compaction_reads_back_as_it_was_stored(store: Store) -> None:
    talk, _ = await talked(store, 1)
    bare = replace(COMPACTION, id="c2", watermark=b"", kept=(), masks=(), summary="", model=None, parents=())
    assert await store.compactions.add("ns", talk.session, 0, COMPACTION, 5.0)
    assert await store.compactions.add("ns", talk.session, 0, bare, 4.0)
    stored = await store.compactions.of_session("ns", talk.session)
    assert [row.compaction for row in stored] == [COMPACTION, bare]
    assert [row.created_at for row in stored] == [5.0, 4.0]
    assert stored[0].arrival < stored[1].arrival
    assert (await talk.row()).compactions == 2


async def test_settings_and_compactions_are_read_together(store: Store) -> None:
    talk, other = Talk(store), Talk(store, session="other")
    for each in (talk, other):
        await each.turns(1)
    assert await store.compactions.with_settings("ns", "nobody") == (None, [])
    assert await store.compactions.with_settings("ns", talk.session) == (None, [])
    await store.journal.put_settings("ns", talk.session, b"")
    await store.journal.put_settings("ns", other.session, b"{}")
    assert await store.compactions.with_settings("ns", talk.session) == (b"", [])
    for number in range(3):
        added = replace(COMPACTION, id=f"c{number + 1}")
        assert await store.compactions.add("ns", talk.session, 0, added, 5.0)
    stored = await store.compactions.of_session("ns", talk.session)
    assert [row.compaction.id for row in stored] == ["c1", "c2", "c3"]
    assert await store.compactions.with_settings("ns", talk.session) == (b"", stored)
    await store.journal.put_settings("ns", talk.session, None)
    assert await store.compactions.with_settings("ns", talk.session) == (None, stored)
    assert await store.compactions.with_settings("ns", other.session) == (b"{}", [])


async def test_a_compaction_is_found_by_its_id_alone(store: Store) -> None:
    talks = [Talk(store, session=f"s{i}") for i in range(2)] + [Talk(store, "other", session="s9")]
    for talk in talks:
        await talk.turns(1)
        assert await store.compactions.add(talk.namespace, talk.session, 0, COMPACTION, 5.0)
    # An import may bring the id that another session has: the newest session's is meant.
    found = await store.compactions.get("ns", "c1")
    assert found is not None
    assert (found[0], found[1].compaction) == ("s1", COMPACTION)
    assert await store.compactions.get("ns", "c2") is None
    assert await store.compactions.get("nobody", "c1") is None


async def test_pins_are_kept_once_in_their_order(store: Store) -> None:
    talk, said = await talked(store, 2)
    chains = talk.chains(said)
    for chain in (chains[2], chains[0], chains[2]):
        await store.history.add_pin("ns", talk.session, chain, 1.0)
    assert [pin.chain for pin in await store.history.pins("ns", talk.session)] == [chains[2], chains[0]]
    assert await store.history.remove_pin("ns", talk.session, chains[2])
    assert not await store.history.remove_pin("ns", talk.session, chains[2])
    assert not await store.history.remove_pin("other", talk.session, chains[0])
    assert [pin.chain for pin in await store.history.pins("ns", talk.session)] == [chains[0]]


ALSO = JournalEntries(
    memories=[MemoryRow("m1", "flush", b"f", None, 5.0), MemoryRow("m2", "summary", b"s", "c1", 5.0)],
    events=[EventRow("e1", "flushed", b"{}", 5.0), EventRow("e2", "context_summarized", b"{}", 5.0)],
)


async def beside(store: Store, session: str) -> list[str]:
    """Ids of all that was stored together, in order of arrival."""
    compactions = await store.compactions.of_session("ns", session)
    rows = [(row.arrival, row.compaction.id) for row in compactions]
    rows += [(row.arrival, row.id) for row in await store.journal.memories("ns", session, 9)]
    rows += [(row.seq, row.id) for row in await store.journal.events("ns", session, 0, 9)]
    return [ident for _, ident in sorted(rows)]


async def test_a_compaction_is_stored_with_its_memories_and_events(store: Store) -> None:
    talk, _ = await talked(store, 1)
    for _ in range(2):
        assert await store.compactions.add("ns", talk.session, 0, COMPACTION, 5.0, ALSO)
        assert await beside(store, talk.session) == ["c1", "m1", "m2", "e1", "e2"]
    await talk.asks([b"elsewhere"])
    assert await store.compactions.add("ns", talk.session, 0, replace(COMPACTION, id="c2"), 5.0)
    assert await beside(store, talk.session) == ["c1", "m1", "m2", "e1", "e2", "c2"]


async def test_one_that_comes_too_late_leaves_nothing_behind(store: Store) -> None:
    talk, _ = await talked(store, 1)
    assert not await store.compactions.add("ns", talk.session, 1, COMPACTION, 5.0, ALSO)
    for namespace, session in (("other", talk.session), ("ns", "no such session")):
        assert not await store.compactions.add(namespace, session, 0, COMPACTION, 5.0, ALSO)
    assert await beside(store, talk.session) == []


async def test_one_that_cannot_be_stored_whole_leaves_nothing_behind(store: Store) -> None:
    talk, _ = await talked(store, 1)
    refused = JournalEntries(
        memories=ALSO.memories, events=[*ALSO.events, EventRow("e3", "t", cast(bytes, None), 5.0)]
    )
    with pytest.raises(StoreError):
        await store.compactions.add("ns", talk.session, 0, COMPACTION, 5.0, refused)
    assert await beside(store, talk.session) == []
    assert await store.compactions.add("ns", talk.session, 0, COMPACTION, 5.0, ALSO)


async def test_a_compaction_is_undone_once(store: Store) -> None:
    talk, twin = Talk(store), Talk(store, namespace="other")
    for each in (talk, twin):
        await each.turns(1)
        assert await store.compactions.add(each.namespace, each.session, 0, COMPACTION, 5.0)
    assert not await store.compactions.undo("other", talk.session, "c1", 6.0)
    assert not await store.compactions.undo("ns", twin.session, "c1", 6.0)
    assert not await store.compactions.undo("ns", talk.session, "c2", 6.0)
    assert await store.compactions.undo("ns", talk.session, "c1", 7.0)
    assert not await store.compactions.undo("ns", talk.session, "c1", 8.0)
    # Stored again, it is still undone.
    assert await store.compactions.add("ns", talk.session, 0, COMPACTION, 9.0)
    (stored,) = await store.compactions.of_session("ns", talk.session)
    assert (stored.compaction, stored.created_at, stored.undone_at) == (COMPACTION, 5.0, 7.0)
    (other,) = await store.compactions.of_session("other", twin.session)
    assert other.undone_at is None
