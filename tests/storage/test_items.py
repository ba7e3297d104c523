"""Items of answers are found by their ids, in their own namespace, until they are erased (P5, P6)."""

from __future__ import annotations

import pytest
from palimpsest.storage.exchange_units import OpenExchange
from palimpsest.storage.exchanges import MOST_ANSWERS
from palimpsest.storage.store import Store

from tests.storage.talk import Talk


async def hears(talk: Talk, body: bytes, *items: str, after: bytes = b"q") -> OpenExchange:
    """An answer that holds these items."""
    opened = await talk.asks([after])
    await talk.hears(opened, talk.answer(opened, body), items=items)
    return opened


@pytest.mark.spec("P5", "W55")
async def test_an_item_leads_to_its_answer_in_its_own_namespace(store: Store) -> None:
    talk = Talk(store)
    await hears(talk, b"[1, 2]", "rs_1", "msg_1")
    await hears(Talk(store), b"[3]", "msg_3")
    wanted = {"rs_1": [b"[1, 2]"], "msg_1": [b"[1, 2]"], "msg_3": [b"[3]"]}
    assert await store.exchanges.answers_with("ns", ["rs_1", "msg_3", "msg_1", "msg_4"]) == wanted
    many = [f"msg_{n}" for n in range(200)]
    assert await store.exchanges.answers_with("ns", [*many, "rs_1"]) == wanted
    assert await store.exchanges.answers_with("other", ["rs_1", "msg_1"]) == {}
    assert await store.exchanges.answers_with("ns", []) == {}


async def test_an_id_that_a_column_refuses_is_found(store: Store) -> None:
    await hears(Talk(store), b"[1]", "a\0b\ud800")
    assert await store.exchanges.answers_with("ns", ["a\0b\ud800"]) == {"a\0b\ud800": [b"[1]"]}


async def test_answers_that_share_an_id_are_told_apart_by_what_they_follow(store: Store) -> None:
    talk = Talk(store)
    first = await hears(talk, b"[1]", "msg_1")
    second = await hears(Talk(store), b"[2]", "msg_1", after=b"another")
    both = await store.exchanges.answers_with("ns", ["msg_1"])
    assert sorted(both["msg_1"]) == [b"[1]", b"[2]"]
    for opened, body in ((first, b"[1]"), (second, b"[2]")):
        assert await store.exchanges.answers_with("ns", ["msg_1"], opened.head) == {"msg_1": [body]}
    assert await store.exchanges.answers_with("ns", ["msg_1"], b"nowhere") == {}


async def test_the_same_answer_told_twice_is_one(store: Store) -> None:
    for _ in range(MOST_ANSWERS + 3):
        await hears(Talk(store), b"[1]", "msg_1")
    assert await store.exchanges.answers_with("ns", ["msg_1"]) == {"msg_1": [b"[1]"]}


async def test_an_id_of_too_many_answers_names_none_but_in_its_place(store: Store) -> None:
    opened = [
        await hears(Talk(store), b"[%d]" % n, "msg_1", after=b"%d" % n) for n in range(MOST_ANSWERS + 1)
    ]
    assert await store.exchanges.answers_with("ns", ["msg_1"]) == {"msg_1": []}
    assert await store.exchanges.answers_with("ns", ["msg_1"], opened[0].head) == {"msg_1": [b"[0]"]}


@pytest.mark.spec("P6")
async def test_nothing_is_left_of_an_erased_one(store: Store) -> None:
    """Not even of an answer that was given once more, with another id and the same words."""
    talk, other = Talk(store), Talk(store)
    opened = await talk.asks([b"q"])
    first = talk.answer(opened, b"a")
    await talk.hears(opened, first, items=["msg_1"])
    again = talk.message(b"WRITTEN", chain=first.chain, parent=first.parent, role="assistant")
    await talk.hears(await talk.asks([b"q"]), again, items=["msg_2"])
    await hears(other, b"[other]", "msg_3")
    assert await store.exchanges.answers_with("ns", ["msg_2"]) == {"msg_2": [b"WRITTEN"]}
    assert sorted(await store.exchanges.items_of("ns", talk.session)) == ["msg_1", "msg_2"]
    assert await store.exchanges.items_of("other", talk.session) == []
    counts = await store.erasure.session("ns", talk.session, [], talk.clock)
    assert counts is not None
    assert counts["items"] == 2
    # The answer and its other spelling; the question is the other session's, too.
    assert counts["bodies"] == 2
    assert await store.exchanges.answers_with("ns", ["msg_1", "msg_2", "msg_3"]) == {"msg_3": [b"[other]"]}
    assert await store.exchanges.items_of("ns", talk.session) == []
