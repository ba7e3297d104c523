"""A compaction with what belongs to it is stored at once or not at all, and can be undone."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from palimpsest.errors import StoreError
from palimpsest.storage.compactions import JournalEntries
from palimpsest.storage.journal import EventRow, MemoryRow
from palimpsest.storage.store import Store

from tests.storage.talk import Talk
from tests.storage.test_compactions import COMPACTION

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


async def test_state_and_details_come_back(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    made = replace(COMPACTION, state=b'{"x":"\x00\xff"}', details=b'{"steps":[]}')
    assert await store.compactions.add("ns", talk.session, 0, made, 5.0)
    (stored,) = await store.compactions.of_session("ns", talk.session)
    assert stored.compaction == made


async def test_a_compaction_is_stored_with_its_memories_and_events(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    for _ in range(2):
        assert await store.compactions.add("ns", talk.session, 0, COMPACTION, 5.0, ALSO)
        assert await beside(store, talk.session) == ["c1", "m1", "m2", "e1", "e2"]
    await talk.asks([b"elsewhere"])
    assert await store.compactions.add("ns", talk.session, 0, replace(COMPACTION, id="c2"), 5.0)
    assert await beside(store, talk.session) == ["c1", "m1", "m2", "e1", "e2", "c2"]


async def test_one_that_comes_too_late_leaves_nothing_behind(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    assert not await store.compactions.add("ns", talk.session, 1, COMPACTION, 5.0, ALSO)
    assert not await store.compactions.add("other", talk.session, 0, COMPACTION, 5.0, ALSO)
    assert await beside(store, talk.session) == []


async def test_one_that_cannot_be_stored_whole_leaves_nothing_behind(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
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
