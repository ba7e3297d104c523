"""Which messages are the heads of branches, after everything that can happen to an exchange."""

from __future__ import annotations

import pytest
from palimpsest.storage.history import MessageRow
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, answered, talked


async def _row(talk: Talk, chain: bytes) -> MessageRow:
    found = await talk.store.history.message(talk.namespace, chain)
    assert found is not None
    return found[1]


async def test_the_request_then_its_answer_is_the_head(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    assert await talk.heads() == [opened.head]
    answer = talk.answer(opened, b"a")
    await talk.hears(opened, answer)
    assert await talk.heads() == [answer.chain]


async def test_a_regenerated_answer_is_a_branch_beside_the_first(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    first, second = talk.answer(opened, b"a"), talk.answer(opened, b"b")
    await talk.hears(opened, first)
    again = await talk.opens(messages=[], base=opened.head, head=opened.head)
    await talk.hears(again, second)
    assert await talk.heads() == [second.chain, first.chain]


async def test_a_failed_regenerate_leaves_the_first_answer(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    first = talk.answer(opened, b"a")
    await talk.hears(opened, first)
    for state in ("failed", "rejected", "refused"):
        again = await talk.opens(messages=[], base=opened.head, head=opened.head)
        await talk.hears(again, state=state)
        assert await talk.heads() == [first.chain]


async def test_of_several_answers_none_is_head_until_one_comes_back(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    a, b = talk.answer(opened, b"a"), talk.answer(opened, b"b")
    await talk.hears(opened, a, b)
    assert await talk.heads() == [opened.head]
    rows = [await _row(talk, answer.chain) for answer in (a, b)]
    assert all(row.relayed for row in rows)
    follow_up = await talk.asks([b"q", b"b", b"q2"], stored=2)
    assert await talk.heads() == [follow_up.head]


async def test_a_failed_exchange_leaves_its_question_as_the_head(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    await talk.hears(opened, state="failed")
    assert await talk.heads() == [opened.head]
    (known,) = await store.history.known("ns", [opened.head], None)
    assert (known.failed, known.extended, known.answers) == (True, False, 0)


@pytest.mark.parametrize("state", ["rejected", "refused"])
async def test_a_rejected_exchange_gives_its_base_back(store: Store, state: str) -> None:
    talk, said = await talked(store, 1)
    opened = await talk.asks([*said, b"bad image", b"and more"], stored=2)
    withdrawn = [message.chain for message in opened.messages]
    assert await talk.heads() == [opened.head]
    await talk.hears(opened, state=state, withdrawn=withdrawn)  # type: ignore[arg-type]
    assert await talk.heads() == [talk.chains(said)[-1]]
    (known,) = await store.history.known("ns", talk.chains([*said, b"bad image", b"and more"]), None)
    assert (known.chain, known.extended) == (talk.chains(said)[-1], False)
    for chain in withdrawn:
        assert (await _row(talk, chain)).state == state


async def test_a_rejected_message_that_comes_again_is_on_the_path_again(store: Store) -> None:
    talk, said = await talked(store, 1)
    opened = await talk.asks([*said, b"q"], stored=2)
    await talk.hears(opened, state="rejected", withdrawn=[opened.head])
    again = await talk.asks([*said, b"q"], stored=2)
    assert await talk.heads() == [again.head]
    assert (await _row(talk, again.head)).state == "live"
    await talk.hears(again, talk.answer(again, b"a", answers=2))
    assert (await talk.row()).messages == 4


@pytest.mark.parametrize("is_answered_first", [True, False])
async def test_what_one_exchange_answered_another_s_rejection_does_not_take(
    store: Store, is_answered_first: bool
) -> None:
    talk, said = await talked(store, 1)
    first, second = [await talk.asks([*said, b"q"], stored=2) for _ in range(2)]
    answer = talk.answer(second, b"a", answers=2)
    if is_answered_first:
        await talk.hears(second, answer)
    await talk.hears(first, state="rejected", withdrawn=[first.head])
    if not is_answered_first:
        await talk.hears(second, answer)
    assert await talk.heads() == [answer.chain]
    assert (await _row(talk, first.head)).state == "live"


async def test_a_rejected_first_request_leaves_no_head(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    await talk.hears(opened, state="rejected", withdrawn=[opened.head])
    assert await talk.heads() == []
    assert await store.history.known("ns", [opened.head], None) == []


async def test_a_cut_answer_completed_later_is_live(store: Store) -> None:
    talk, opened, answer = await answered(store, state="incomplete", answer_state="incomplete")
    assert await talk.heads() == [answer.chain]
    assert (await _row(talk, answer.chain)).state == "incomplete"
    (known,) = await store.history.known("ns", [opened.head], None)
    assert (known.failed, known.extended) == (True, True)
    again = await talk.opens(messages=[], base=opened.head, head=opened.head)
    await talk.hears(again, answer)
    assert (await _row(talk, answer.chain)).state == "live"
    assert await talk.heads() == [answer.chain]
    assert (await talk.row()).messages == 2


async def test_a_whole_answer_is_not_made_incomplete(store: Store) -> None:
    talk, opened, answer = await answered(store)
    again = await talk.opens(messages=[], base=opened.head, head=opened.head)
    await talk.hears(again, answer, state="incomplete", answer_state="incomplete")
    assert (await _row(talk, answer.chain)).state == "live"


async def test_a_side_request_is_never_the_default_branch(store: Store) -> None:
    talk, said = await talked(store, 3)
    talk.mark = "side"
    title = await talk.asks([b"write a title"])
    answer = talk.answer(title, b"Title")
    await talk.hears(title, answer)
    heads = await store.history.heads("ns", talk.session)
    assert [head.chain for head in heads] == [talk.chains(said)[-1], answer.chain]
    assert [head.answers for head in heads] == [3, 1]
    assert [head.kind for head in heads] == ["main", "side"]
    assert heads[1].beside == heads[0].chain
