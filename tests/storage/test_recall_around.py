"""What stands beside what was found, whether a path holds it, and reading a session from its end."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.storage.search import RecallRow
from palimpsest.storage.store import Store

from tests.storage.recalling import is_summarised
from tests.storage.talk import Talk, talked
from tests.storage.test_rebases import slid


async def beside(talk: Talk, chain: bytes) -> tuple[bytes | None, list[bytes]]:
    there = (await talk.store.search.neighbours(talk.namespace, talk.session, [chain]))[chain]
    return there.before.body if there.before else None, [row.body for row in there.after]


async def held(talk: Talk, head: bytes, chains: Sequence[bytes]) -> set[bytes]:
    return set(await talk.store.search.on_path(talk.namespace, talk.session, head, chains))


async def test_beside_a_message_stands_what_it_follows_and_what_follows_it(store: Store) -> None:
    talk, said = await talked(store, 2)
    chains = talk.chains(said)
    there = await store.search.neighbours("ns", talk.session, [*chains, b"unknown" * 4, chains[0]])
    assert set(there) == set(chains)
    assert await beside(talk, chains[0]) == (None, [said[1]])
    assert await beside(talk, chains[1]) == (said[0], [said[2]])
    assert await beside(talk, chains[3]) == (said[2], [])
    after = there[chains[0]].after[0]
    assert (after.role, after.relayed, after.state, after.depth) == ("assistant", True, "live", 2)
    assert await store.search.neighbours("other", talk.session, chains) == {}
    assert await store.search.neighbours("ns", "other", chains) == {}
    assert await store.search.neighbours("ns", talk.session, []) == {}


async def test_every_branch_follows_in_order_of_arrival(store: Store) -> None:
    talk, said = await talked(store, 1)
    for text in (b"first", b"second", b"bad"):
        opened = await talk.asks([*said, text], stored=2)
    await talk.hears(opened, state="rejected", withdrawn=[opened.head], status=400)
    answer = talk.chains(said)[1]
    assert await beside(talk, answer) == (said[0], [b"first", b"second", b"bad"])
    after = (await store.search.neighbours("ns", talk.session, [answer]))[answer].after
    assert [row.state for row in after] == ["live", "live", "rejected"]


async def test_beside_a_list_that_was_put_together_anew(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps(said[2:], b"next")
    anchor = talk.at[said[-1]]
    assert await beside(talk, opened.head) == (said[-1], [])
    assert await beside(talk, anchor) == (said[-2], [b"next"])


async def test_many_are_asked_for_at_once(store: Store) -> None:
    talk, said = await talked(store, 40)
    chains = talk.chains(said)
    there = await store.search.neighbours("ns", talk.session, chains)
    assert set(there) == set(chains[:64])
    assert all(there[chain].after for chain in chains[:64])
    assert await held(talk, chains[-1], chains) == set(chains)


async def test_a_path_holds_what_leads_to_its_end_and_nothing_else(store: Store) -> None:
    talk, said = await talked(store, 3)
    old = talk.chains(said)
    edited = await talk.asks([*said[:2], b"edited"], stored=2)
    answer = talk.answer(edited, b"new answer", answers=2)
    await talk.hears(edited, answer)
    everything = [*old, edited.head, answer.chain, b"unknown" * 4]
    assert await held(talk, answer.chain, everything) == {*old[:2], edited.head, answer.chain}
    assert await held(talk, edited.head, everything) == {*old[:2], edited.head}
    assert await held(talk, old[-1], everything) == set(old)
    assert await held(talk, old[-1], [edited.head]) == set()
    assert await held(talk, old[-1], [old[0]]) == {old[0]}
    assert await held(talk, b"unknown" * 4, everything) == set()
    assert await held(talk, old[-1], []) == set()
    assert await store.search.on_path("other", talk.session, old[-1], old) == frozenset()
    assert await store.search.on_path("ns", "other", old[-1], old) == frozenset()


async def test_a_path_holds_what_a_rebased_list_kept_and_not_what_it_dropped(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps([said[4], b"note", said[5]], b"next", base=said[:2], new=[b"note"])
    answer = await talk.is_answered(opened, b"answer")
    kept = {talk.at[body] for body in (*said[:2], said[4], b"note", said[5], b"next", b"answer")}
    assert await held(talk, answer.chain, [*talk.at.values(), opened.rebase.chain]) == kept  # type: ignore[union-attr]
    # One at a time, the walk back ends elsewhere.
    for body, chain in talk.at.items():
        assert await held(talk, answer.chain, [chain]) == ({chain} & kept), body
        assert await held(talk, opened.head, [chain]) == ({chain} & kept) - {answer.chain}, body


async def test_a_long_path_is_as_right_as_a_short_one(store: Store) -> None:
    talk = Talk(store)
    said = [b"row %d" % i for i in range(2_400)]
    await talk.asks(said)
    line = talk.chains(said)
    assert await held(talk, line[-1], [*line, b"unknown" * 4]) == set(line)
    assert await held(talk, line[2_300], line) == set(line[:2_301])
    edited = await talk.asks([*said[:100], b"edited"], stored=100)
    everything = [*line, edited.head]
    assert await held(talk, line[-1], everything) == set(line)
    assert await held(talk, edited.head, everything) == {*line[:100], edited.head}


async def test_a_long_path_that_jumps_holds_what_was_kept(store: Store) -> None:
    talk, said = await slid(store, 1)
    more = [b"row %d" % i for i in range(2_400)]
    await talk.asks([*said, *more], stored=2)
    line = talk.chains([*said, *more])
    opened = await talk.jumps(said[1:], b"next")
    assert await held(talk, opened.head, [*line, opened.head]) == {line[1], opened.head}
    assert await held(talk, line[-1], [*line, opened.head]) == set(line)


async def test_a_scan_reads_from_the_end(store: Store) -> None:
    talk, said = await talked(store, 3)
    await is_summarised(store, talk, talk.chains(said)[-1], "in short 1")
    asked: list[RecallRow] = []

    def holds_one(row: RecallRow) -> bool:
        asked.append(row)
        return b"1" in row.body

    scanned = await store.search.scan("ns", [talk.session], holds_one, 50)
    assert [row.body for row in scanned.rows] == [b"in short 1", b"answer 1", b"question 1"]
    assert scanned.is_all
    assert len(asked) == 7
    first = await store.search.scan("ns", [talk.session], holds_one, 2)
    assert (list(first.rows), first.is_all) == (list(scanned.rows[:2]), False)
    nobody = await store.search.scan("other", [talk.session], holds_one, 50)
    assert (list(nobody.rows), nobody.is_all) == ([], True)


async def test_a_scan_of_all_sessions_begins_with_the_newest(store: Store) -> None:
    talks = [Talk(store, session=f"0000{i}") for i in range(3)]
    for i, talk in enumerate(talks):
        await talk.asks([b"first %d" % i, b"second %d" % i])
    await Talk(store, namespace="other", session="00009").asks([b"first 9"])
    scanned = await store.search.scan("ns", None, lambda row: b"first" in row.body, 50)
    assert [row.body for row in scanned.rows] == [b"first 2", b"first 1", b"first 0"]
    assert scanned.is_all
    assert not (await store.search.scan("ns", None, lambda row: b"first" in row.body, 2)).is_all


async def test_a_scan_ends_after_five_thousand_rows(store: Store) -> None:
    talk = Talk(store)
    await talk.asks([b"row %d" % i for i in range(5_300)])
    scanned = await store.search.scan("ns", [talk.session], lambda row: row.depth % 1_000 == 1, 50)
    assert [row.depth for row in scanned.rows] == [5_001, 4_001, 3_001, 2_001, 1_001]
    assert not scanned.is_all
