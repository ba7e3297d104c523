"""What messages mean is kept beside the index of words: for what is in it, in a session that is there."""

from __future__ import annotations

import pytest
from palimpsest.storage.search import StoredVector
from palimpsest.storage.store import Store

from tests.storage.recalling import catches_up
from tests.storage.talk import Talk


async def embedded(talk: Talk, limit: int = 64) -> list[bytes]:
    """The messages that had no vector and have their own body as one now."""
    missing = await talk.store.search.unembedded(talk.namespace, talk.session, limit)
    if missing is None:
        return []
    vectors = {row.arrival: row.body for row in missing.rows}
    assert await talk.store.search.embed(talk.namespace, talk.session, missing.epoch, vectors)
    return list(vectors.values())


async def vectors(talk: Talk, limit: int = 64, *, everywhere: bool = False) -> list[bytes]:
    """What is kept, the newest first."""
    session = None if everywhere else talk.session
    return [each.vector for each in await talk.store.search.vectors(talk.namespace, session, limit)]


async def indexed(store: Store, *bodies: bytes, namespace: str = "ns") -> Talk:
    talk = Talk(store, namespace=namespace)
    await talk.asks(list(bodies))
    await catches_up(talk)
    return talk


async def test_only_what_is_indexed_gets_a_vector_and_once(store: Store) -> None:
    talk = Talk(store)
    await talk.asks([b"a", b"b", b"c"])
    assert await embedded(talk) == []
    await catches_up(talk)
    assert await embedded(talk, 2) == [b"a", b"b"]
    assert await embedded(talk) == [b"c"]
    assert await embedded(talk) == []
    assert await vectors(talk) == [b"c", b"b", b"a"]
    assert await vectors(talk, 2) == [b"c", b"b"]


async def test_an_empty_vector_is_none_and_is_not_asked_for_again(store: Store) -> None:
    talk = await indexed(store, b"a", b"b")
    missing = await store.search.unembedded(talk.namespace, talk.session, 64)
    assert missing is not None
    places = [row.arrival for row in missing.rows]
    empty = dict.fromkeys(places, b"")
    assert await store.search.embed(talk.namespace, talk.session, missing.epoch, empty)
    assert await vectors(talk) == []
    assert await store.search.unembedded(talk.namespace, talk.session, 64) is None


async def test_only_users_and_models_mean_something(store: Store) -> None:
    talk = Talk(store)
    roles = ("system", "user", "tool", "assistant")
    chains = talk.chains([role.encode() for role in roles])
    messages = [
        talk.message(role.encode(), chain=chain, parent=parent, depth=depth, role=role)
        for depth, (role, chain, parent) in enumerate(zip(roles, chains, [b"", *chains], strict=False), 1)
    ]
    await talk.opens(messages=messages, base=b"", head=chains[-1])
    await catches_up(talk)
    assert await embedded(talk) == [b"user", b"assistant"]


async def test_nobody_is_given_vectors_of_others(store: Store) -> None:
    mine = await indexed(store, b"a")
    beside = await indexed(store, b"b")
    other = await indexed(store, b"c", namespace="other")
    for talk in (mine, beside, other):
        await embedded(talk)
    assert await vectors(mine) == [b"a"]
    assert sorted(await vectors(mine, everywhere=True)) == [b"a", b"b"]
    assert len(await vectors(mine, 1, everywhere=True)) == 1
    assert await vectors(other, everywhere=True) == [b"c"]
    assert await store.search.vectors("other", mine.session, 64) == []


async def test_messages_are_read_by_their_places_in_this_order(store: Store) -> None:
    talk, beside = await indexed(store, b"a", b"bb"), await indexed(store, b"ccc")
    for each in (talk, beside):
        await embedded(each)
    kept = await store.search.vectors("ns", None, 64)
    places = [(each.session, each.arrival) for each in sorted(kept, key=lambda each: each.vector)]
    rows = await store.search.messages_at("ns", [places[2], places[0], (talk.session, 999)], 100)
    assert [(row.session, row.body) for row in rows] == [(beside.session, b"ccc"), (talk.session, b"a")]
    assert [row.body for row in await store.search.messages_at("ns", places, 1)] == [b"a"]
    assert await store.search.messages_at("other", places, 100) == []


@pytest.mark.parametrize("how", ["forgotten", "erased", "switched on again"])
async def test_nothing_is_kept_of_what_is_gone_and_nothing_comes_back(store: Store, how: str) -> None:
    talk, other = await indexed(store, b"a"), await indexed(store, b"b")
    await embedded(talk)
    await embedded(other)
    late = await indexed(store, b"late")
    missing = await store.search.unembedded("ns", late.session, 64)
    assert missing is not None
    for each in (talk, late):
        if how == "erased":
            await store.erasure.session("ns", each.session, [], 1.0)
        else:
            await store.search.forget("ns", each.session)
    # Who began before comes too late.
    given = {row.arrival: row.body for row in missing.rows}
    assert not await store.search.embed("ns", late.session, missing.epoch, given)
    assert await vectors(talk) == await vectors(late) == []
    assert await store.search.vectors("ns", None, 64) == [
        StoredVector(other.session, kept.arrival, b"b")
        for kept in await store.search.vectors("ns", other.session, 64)
    ]
    if how == "switched on again":
        await catches_up(talk)
        assert await embedded(talk) == [b"a"]
