"""A compaction with what belongs to it is stored at once or not at all, and can be undone."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from app.errors import StoreError
from app.storage.contract import Store
from app.storage.journal import Also, Event, Memory
from tests.storage.talk import Talk
from tests.storage.test_compactions import COMPACTION

ALSO = Also(
    memories=[Memory("m1", "flush", b"f", None, 5.0), Memory("m2", "summary", b"s", "c1", 5.0)],
    events=[Event("e1", "flushed", b"{}", 5.0), Event("e2", "context_summarized", b"{}", 5.0)],
)


async def beside(store: Store, session: str) -> list[str]:
    """Ids of all that was stored together, in order of arrival."""
    compactions = await store.compactions("ns", session)
    rows = [(row.arrival, row.compaction.id) for row in compactions]
    rows += [(row.arrival, row.memory.id) for row in await store.memories("ns", session, 9)]
    rows += [(row.seq, row.event.id) for row in await store.events("ns", session, 0, 9)]
    return [ident for _, ident in sorted(rows)]


async def test_state_and_details_come_back(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    made = replace(COMPACTION, state=b'{"x":"\x00\xff"}', details=b'{"steps":[]}')
    assert await store.add_compaction("ns", talk.session, 0, made, 5.0)
    (stored,) = await store.compactions("ns", talk.session)
    assert stored.compaction == made


async def test_a_compaction_is_stored_with_its_memories_and_events(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    for _ in range(2):
        assert await store.add_compaction("ns", talk.session, 0, COMPACTION, 5.0, ALSO)
        assert await beside(store, talk.session) == ["c1", "m1", "m2", "e1", "e2"]
    await talk.asks([b"elsewhere"])
    assert await store.add_compaction("ns", talk.session, 0, replace(COMPACTION, id="c2"), 5.0)
    assert await beside(store, talk.session) == ["c1", "m1", "m2", "e1", "e2", "c2"]


async def test_one_that_comes_too_late_leaves_nothing_behind(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    assert not await store.add_compaction("ns", talk.session, 1, COMPACTION, 5.0, ALSO)
    assert not await store.add_compaction("other", talk.session, 0, COMPACTION, 5.0, ALSO)
    assert await beside(store, talk.session) == []


async def test_one_that_cannot_be_stored_whole_leaves_nothing_behind(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    refused = Also(memories=ALSO.memories, events=[*ALSO.events, Event("e3", "t", cast(bytes, None), 5.0)])
    with pytest.raises(StoreError):
        await store.add_compaction("ns", talk.session, 0, COMPACTION, 5.0, refused)
    assert await beside(store, talk.session) == []
    assert await store.add_compaction("ns", talk.session, 0, COMPACTION, 5.0, ALSO)


async def test_a_compaction_is_undone_once(store: Store) -> None:
    talk, twin = Talk(store), Talk(store, namespace="other")
    for each in (talk, twin):
        await each.turns(1)
        assert await store.add_compaction(each.namespace, each.session, 0, COMPACTION, 5.0)
    assert not await store.undo_compaction("other", talk.session, "c1", 6.0)
    assert not await store.undo_compaction("ns", twin.session, "c1", 6.0)
    assert not await store.undo_compaction("ns", talk.session, "c2", 6.0)
    assert await store.undo_compaction("ns", talk.session, "c1", 7.0)
    assert not await store.undo_compaction("ns", talk.session, "c1", 8.0)
    # Stored again, it is still undone.
    assert await store.add_compaction("ns", talk.session, 0, COMPACTION, 9.0)
    (stored,) = await store.compactions("ns", talk.session)
    assert (stored.compaction, stored.created_at, stored.undone_at) == (COMPACTION, 5.0, 7.0)
    (other,) = await store.compactions("other", twin.session)
    assert other.undone_at is None
