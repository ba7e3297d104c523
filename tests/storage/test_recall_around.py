"""Reading messages by their names, and a session from its end."""

from __future__ import annotations

from palimpsest.storage.search import RecallRow
from palimpsest.storage.store import Store

from tests.storage.recalling import is_summarised
from tests.storage.talk import Talk, talked


async def test_messages_are_read_by_their_names_in_one_session_alone(store: Store) -> None:
    talk, said = await talked(store, 40)
    chains = talk.chains(said)
    found = await store.search.those("ns", talk.session, [*chains[::-1], b"unknown" * 4])
    assert {row.chain: row.body for row in found} == dict(zip(chains, said, strict=True))
    rows = await store.history.those("ns", talk.session, [chains[3], b"unknown" * 4, chains[1]])
    assert [row.body for row in rows] == [said[3], said[1]]
    for other in (("other", talk.session), ("ns", "other")):
        assert await store.search.those(*other, chains) == []
        assert await store.history.those(*other, chains) == []


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
