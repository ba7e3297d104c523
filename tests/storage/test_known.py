"""What the store says about points of history."""

from __future__ import annotations

from palimpsest.storage.store import Store

from tests.storage.talk import Talk, canonical_of, talked


async def test_the_deepest_point_is_found_however_long_the_list(store: Store) -> None:
    talk, said = await talked(store, 3)
    for extra in (0, 1, 3, 10, 40, 300, 700):
        chains = talk.chains([*said, *(b"unknown %d" % i for i in range(extra))])
        (known,) = await store.history.known("ns", chains, None)
        assert (known.chain, known.answers, known.extended) == (talk.chains(said)[-1], 3, False)
    (inner,) = await store.history.known("ns", talk.chains(said)[:3], None)
    assert (inner.depth, inner.answers, inner.extended, inner.relayed) == (3, 1, True, False)
    assert await store.history.known("ns", talk.chains([b"unknown"]), None) == []
    assert await store.history.known("ns", [], None) == []


async def test_twins_are_all_returned_and_a_session_narrows(store: Store) -> None:
    first, second = Talk(store), Talk(store)
    said = await first.turns(1)
    await second.turns(1)
    both = await store.history.known("ns", first.chains([*said, b"x"]), None)
    assert {known.session for known in both} == {first.session, second.session}
    (one,) = await store.history.known("ns", first.chains([*said, b"x"]), first.session)
    assert one.session == first.session


async def test_an_answered_point_is_found_behind_a_deeper_unanswered_one(store: Store) -> None:
    told = Talk(store)
    relayed = Talk(store)
    said = await relayed.turns(1)
    # The other session brought the same words as history: the answer in it is not ours.
    await told.asks([*said, b"q"], answers=0)
    found = await store.history.known("ns", told.chains([*said, b"q", b"more"]), None)
    assert [(k.session, k.depth, k.answers) for k in found] == [(told.session, 3, 0), (relayed.session, 2, 1)]
    far = await store.history.known("ns", told.chains([*said, b"q", *(b"%d" % i for i in range(100))]), None)
    assert far == found


async def test_many_sessions_with_one_greeting_do_not_make_it_slow_to_read(store: Store) -> None:
    for i in range(80):
        await Talk(store, session=f"s{i:03}").asks([b"hello"])
    found = await store.history.known("ns", Talk(store).chains([b"hello"]), None)
    assert [known.session for known in found] == [f"s{i:03}" for i in range(79, 15, -1)]


async def test_relayed_answers_are_found_in_the_order_asked(store: Store) -> None:
    talk, said = await talked(store, 12)
    asked = [canonical_of(body) for body in reversed(said)]
    found = await store.history.relayed("ns", asked, None)
    assert [known.chain for known in found] == talk.chains(said)[1::2][::-1]
    assert all(known.relayed for known in found)
    assert [known.extended for known in found] == [False, *[True] * 11]
    assert await store.history.relayed("ns", asked, "other") == []
    assert await store.history.relayed("ns", [], None) == []


async def test_known_says_how_the_newest_exchange_ended(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"], preamble=[b"old"])
    (known,) = await store.history.known("ns", [opened.head], None)
    assert (known.failed, known.replied) == (False, False)
    await talk.hears(opened, state="failed")
    (known,) = await store.history.known("ns", [opened.head], None)
    assert (known.failed, known.replied) == (True, False)
    again = await talk.opens(messages=[], base=opened.head, head=opened.head, preamble=[b"new"])
    answer = talk.answer(again, b"a")
    await talk.hears(again, answer)
    (known,) = await store.history.known("ns", [opened.head], None)
    assert (known.failed, known.replied, known.preamble) == (False, True, again.preamble_digest)
    (known,) = await store.history.known("ns", [answer.chain], None)
    assert known.preamble == again.preamble_digest


async def test_a_point_knows_the_newest_instructions_it_was_continued_under(store: Store) -> None:
    talk, said = await talked(store, 1)
    opened = await talk.asks([*said, b"q"], stored=2, preamble=[b"rules"])
    (known,) = await store.history.known("ns", talk.chains(said), None)
    assert known.preamble == opened.preamble_digest
