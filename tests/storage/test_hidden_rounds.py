"""What was told to a model alone stands beside the answer, byte for byte, and in no path (rule 31, P6)."""

from __future__ import annotations

import pytest
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, answered

# Spaces, escapes and a lone surrogate: what was sent is what is sent again.
CALL = rb'{"role": "assistant", "content":null,"tool_calls":[ ]}'
RESULT = rb'{"role":"tool","tool_call_id":"g1","content":"\ud800 \u00e4"}'
ROUNDS = HiddenRounds((CALL, RESULT), 40)
MIXED = HiddenRounds((), 0, b'{"role":"assistant","content":"both"}', None, 9)


@pytest.mark.spec("P4")
async def test_rounds_come_back_as_they_were_and_in_no_path(store: Store) -> None:
    talk, opened, answer = await answered(store, hidden=ROUNDS)
    chains = [opened.head, answer.chain]
    assert await store.exchanges.hidden_rounds("ns", talk.session, chains) == {answer.chain: ROUNDS}
    assert await store.exchanges.hidden_rounds("ns", talk.session, chains * 200) == {answer.chain: ROUNDS}
    assert await talk.said([b"q", b"a"]) == [b"q", b"a"]
    rows = await store.history.transcript("ns", talk.session, answer.chain)
    assert [row.body for row in rows] == [b"q", b"a"]
    for namespace, session in (("other", talk.session), ("ns", "other")):
        assert await store.exchanges.hidden_rounds(namespace, session, chains) == {}
    assert await store.exchanges.hidden_rounds("ns", talk.session, []) == {}


@pytest.mark.spec("W48")
@pytest.mark.parametrize("hidden", [ROUNDS, MIXED, HiddenRounds(), None])
async def test_an_answer_known_by_its_id_says_whether_anything_was_hidden(
    store: Store, hidden: HiddenRounds | None
) -> None:
    _talk, _opened, answer = await answered(store, hidden=hidden, response_id="resp_1")
    found = await store.history.response("ns", "resp_1")
    assert found is not None
    assert (found.chain, found.has_hidden) == (answer.chain, hidden is not None)
    assert await store.history.response("other", "resp_1") is None


async def test_siblings_have_their_own_and_several_answers_none(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    first, second = talk.answer(opened, b"a"), talk.answer(opened, b"b")
    await talk.hears(opened, first, hidden=ROUNDS)
    await talk.hears(await talk.asks([b"q"]), second)
    await talk.hears(await talk.asks([b"q"]), first, second, hidden=MIXED)
    found = await store.exchanges.hidden_rounds("ns", talk.session, [first.chain, second.chain])
    assert found == {first.chain: ROUNDS}


async def test_the_newest_rounds_of_one_answer_stand(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    answer = talk.answer(opened, b"a")
    for rounds in (MIXED, ROUNDS):
        await talk.hears(opened, answer, hidden=rounds)
        assert await store.exchanges.hidden_rounds("ns", talk.session, [answer.chain]) == {
            answer.chain: rounds
        }


@pytest.mark.spec("P10")
@pytest.mark.parametrize("first", [ROUNDS, None])
async def test_what_went_on_goes_on_with_the_same_rounds(store: Store, first: HiddenRounds | None) -> None:
    """Asked again, the model may find other things and say the same."""
    talk, _opened, answer = await answered(store, hidden=first)
    await talk.asks([b"q", b"a", b"q2"], stored=2, answers=1)
    await talk.hears(await talk.asks([b"q"]), answer, hidden=MIXED)
    found = await store.exchanges.hidden_rounds("ns", talk.session, [answer.chain])
    assert found == ({answer.chain: first} if first else {})


@pytest.mark.spec("F21")
async def test_results_are_added_once_and_outlive_a_repeated_close(store: Store) -> None:
    talk, opened, answer = await answered(store, hidden=MIXED)
    key = ("ns", talk.session, answer.chain)
    assert await store.exchanges.add_hidden_results(*key, [RESULT], 21)
    assert not await store.exchanges.add_hidden_results(*key, [CALL], 1)
    await talk.hears(opened, answer, hidden=MIXED)
    whole = HiddenRounds((), 0, MIXED.written, (RESULT,), 21)
    assert await store.exchanges.hidden_rounds(*key[:2], [answer.chain]) == {answer.chain: whole}


@pytest.mark.spec("F21")
async def test_results_that_come_after_the_next_turn_are_not_kept(store: Store) -> None:
    talk, _opened, answer = await answered(store, hidden=MIXED)
    await talk.asks([b"q", b"a", b"q2"], stored=2, answers=1)
    assert not await store.exchanges.add_hidden_results("ns", talk.session, answer.chain, [RESULT], 21)
    assert await store.exchanges.hidden_rounds("ns", talk.session, [answer.chain]) == {answer.chain: MIXED}


@pytest.mark.spec("P6")
async def test_nothing_is_kept_of_what_was_erased(store: Store) -> None:
    talk, _opened, answer = await answered(store, hidden=MIXED)
    late = await talk.asks([b"q"])
    counts = await store.erasure.session("ns", talk.session, [], 1.0)
    assert counts is not None
    assert counts["hidden_rounds"] == 1
    await talk.hears(late, answer, hidden=ROUNDS)
    assert not await store.exchanges.add_hidden_results("ns", talk.session, answer.chain, [RESULT], 21)
    assert await store.exchanges.hidden_rounds("ns", talk.session, [answer.chain]) == {}
