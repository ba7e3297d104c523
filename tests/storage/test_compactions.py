"""Compactions are fenced by the epoch and kept in order; pins are kept once."""

from __future__ import annotations

from dataclasses import replace

from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.storage.store import Store

from tests.storage.talk import Talk

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
)


async def test_a_compaction_reads_back_as_it_was_stored(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    bare = replace(COMPACTION, id="c2", watermark=b"", kept=(), masks=(), summary="", model=None, parents=())
    assert await store.compactions.add("ns", talk.session, 0, COMPACTION, 5.0)
    assert await store.compactions.add("ns", talk.session, 0, bare, 4.0)
    stored = await store.compactions.of_session("ns", talk.session)
    assert [row.compaction for row in stored] == [COMPACTION, bare]
    assert [row.created_at for row in stored] == [5.0, 4.0]
    assert stored[0].arrival < stored[1].arrival
    row = await store.history.session("ns", talk.session)
    assert row is not None
    assert row.compactions == 2


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


async def test_the_same_compaction_is_stored_once(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    for _ in range(2):
        assert await store.compactions.add("ns", talk.session, 0, COMPACTION, 5.0)
    assert len(await store.compactions.of_session("ns", talk.session)) == 1


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


async def test_a_compaction_of_another_epoch_stores_nothing(store: Store) -> None:
    talk = Talk(store)
    await talk.turns(1)
    assert not await store.compactions.add("ns", talk.session, 1, COMPACTION, 5.0)
    assert not await store.compactions.add("ns", "no such session", 0, COMPACTION, 5.0)
    assert not await store.compactions.add("other", talk.session, 0, COMPACTION, 5.0)
    assert await store.compactions.of_session("ns", talk.session) == []


async def test_pins_are_kept_once_in_their_order(store: Store) -> None:
    talk = Talk(store)
    said = await talk.turns(2)
    chains = talk.chains(said)
    for chain in (chains[2], chains[0], chains[2]):
        await store.history.add_pin("ns", talk.session, chain, 1.0)
    assert [pin.chain for pin in await store.history.pins("ns", talk.session)] == [chains[2], chains[0]]
    assert await store.history.remove_pin("ns", talk.session, chains[2])
    assert not await store.history.remove_pin("ns", talk.session, chains[2])
    assert not await store.history.remove_pin("other", talk.session, chains[0])
    assert [pin.chain for pin in await store.history.pins("ns", talk.session)] == [chains[0]]
