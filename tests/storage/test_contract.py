"""What every store keeps: bytes, idempotence, order, namespaces."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import replace

import pytest
from palimpsest.errors import Conflict
from palimpsest.storage.accounts import Calibration, KeyRow, LearnedWindow
from palimpsest.storage.exchange_units import Variant
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, digest, talked

HOSTILE = [
    b'{"role":"user","content":"\\u0000"}',
    b'{"role":"user","content":"\x00 raw NUL"}',
    b'{"role":"user","content":"\\ud83d lone surrogate"}',
    b'{"role":"user","content":1e2,"x":1.10,"x":12345678901234567890123456}',
    b"\xff\xfe not UTF-8 at all \x80",
    '{"role":"user","content":"\U0001f600\u202e"}'.encode(),
    b"",
    b"x" * 1_000_000,
]


async def test_a_conversation_reads_back_as_it_was_said(store: Store) -> None:
    talk, said = await talked(store, 5)
    assert await talk.said(said) == said
    assert await talk.heads() == [talk.chains(said)[-1]]
    row = await talk.row()
    assert (row.messages, row.exchanges, row.compactions) == (10, 5, 0)
    entries = await store.history.path("ns", talk.session, talk.chains(said)[-1])
    assert [e.chain for e in entries] == talk.chains(said)
    assert [e.relayed for e in entries] == [False, True] * 5
    assert [e.digest for e in entries] == [hashlib.sha256(b).digest() for b in said]


async def test_the_path_to_a_point_in_the_middle_ends_there(store: Store) -> None:
    talk, said = await talked(store, 3)
    assert await talk.said(said[:3]) == said[:3]
    assert await store.history.path("ns", talk.session, b"\x00" * 32) == []
    assert await store.history.messages("ns", "nobody", talk.chains(said)[-1]) == []


async def test_the_end_of_a_path_is_read_from_a_message_on(store: Store) -> None:
    talk, said = await talked(store, 4)
    chains = talk.chains(said)

    async def since(chain: bytes) -> list[bytes]:
        return [row.body for row in await store.history.messages("ns", talk.session, chains[-1], chain)]

    assert await since(chains[5]) == said[5:]
    assert await since(chains[-1]) == said[-1:]
    assert await since(chains[0]) == said
    # What does not stand on the path cuts nothing off.
    aside = await talk.asks([*said[:3], b"aside"], stored=3)
    assert await since(aside.head) == said
    assert await since(b"\x00" * 32) == said


@pytest.mark.spec("P4")
async def test_every_byte_comes_back(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks(HOSTILE, preamble=[HOSTILE[1], HOSTILE[4]])
    answer = talk.answer(opened, b'{"content":"\x00\xff"}')
    await talk.hears(opened, answer)
    assert await talk.said([*HOSTILE, answer.body]) == [*HOSTILE, answer.body]
    assert await store.history.preamble("ns", talk.session, opened.preamble_digest) == [
        HOSTILE[1],
        HOSTILE[4],
    ]
    found = await store.history.message("ns", talk.chains(HOSTILE)[4][:12])
    assert found is not None
    assert (found[0], found[1].body) == (talk.session, HOSTILE[4])


async def test_names_that_a_database_refuses_are_stored_all_the_same(store: Store) -> None:
    talk = Talk(store)
    await talk.asks([b"q"], external_id="a\0b\ud83d", model="m\0", idempotency_key="k\ud800")
    row = await store.history.session("ns", "a\0b\ud83d")
    assert row is not None
    assert row.id == talk.session
    assert await store.exchanges.of_key("ns", "k\ud800") is not None
    assert await store.history.session("ns", "a\0b") is None


async def test_a_repeated_request_adds_no_message(store: Store) -> None:
    talk, said = await talked(store, 2)
    again = await talk.asks([*said, b"more"], stored=4)
    before = await store.history.messages("ns", talk.session, again.head)
    for _ in range(2):
        await store.exchanges.open(again)
    await talk.asks([*said, b"more"], stored=0)
    row = await talk.row()
    assert (row.messages, row.exchanges) == (5, 4)
    assert await store.history.messages("ns", talk.session, again.head) == before
    assert await talk.heads() == [again.head]


async def test_a_repeated_close_changes_nothing(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    answer = talk.answer(opened, b"a")
    closed = await talk.hears(opened, answer)
    follow_up = await talk.asks([b"q", b"a", b"q2"], stored=2)
    await store.exchanges.close(closed)
    assert await talk.heads() == [follow_up.head]
    assert await talk.said([b"q", b"a", b"q2"]) == [b"q", b"a", b"q2"]


async def test_arrival_grows_along_every_path(store: Store) -> None:
    talk, said = await talked(store, 4)
    branch = await talk.asks([*said[:2], b"other", b"x", b"y"], stored=2)
    for chain in (talk.chains(said)[-1], branch.head):
        arrivals = [row.arrival for row in await store.history.messages("ns", talk.session, chain)]
        assert arrivals == sorted(set(arrivals))


async def test_writers_of_one_session_do_not_lose_each_other(store: Store) -> None:
    talk, said = await talked(store, 1)

    async def branch(i: int) -> bytes:
        opened = await talk.asks([*said, b"branch %d" % i], stored=2)
        answer = talk.answer(opened, b"answer of %d" % i, answers=2)
        await talk.hears(opened, answer)
        return answer.chain

    chains = await asyncio.gather(*(branch(i) for i in range(20)))
    assert sorted(await talk.heads()) == sorted(chains)
    arrivals = [(await store.history.messages("ns", talk.session, chain))[-1].arrival for chain in chains]
    assert len(set(arrivals)) == 20


async def test_sessions_that_share_texts_do_not_block_each_other(store: Store) -> None:
    talks = [Talk(store) for _ in range(8)]
    texts = [b"shared %d" % i for i in range(30)]

    async def play(talk: Talk, at: int) -> None:
        turned = texts[at:] + texts[:at]
        await talk.hears(await talk.asks(turned), state="failed")

    await asyncio.gather(*(play(talk, 3 * i) for i, talk in enumerate(talks)))
    assert await talks[0].said(texts) == texts


async def test_a_clients_name_belongs_to_one_session(store: Store) -> None:
    first, second = Talk(store), Talk(store)
    await first.asks([b"q"], external_id="mine")
    with pytest.raises(Conflict):
        await second.asks([b"q"], external_id="mine")
    row = await store.history.session("ns", "mine")
    assert row is not None
    assert row.id == first.session
    assert await store.history.session("ns", second.session) is None
    elsewhere = Talk(store, namespace="other")
    await elsewhere.asks([b"q"], external_id="mine")


@pytest.mark.spec("P5")
async def test_nothing_crosses_a_namespace(store: Store) -> None:
    mine = Talk(store, namespace="mine", session="same")
    theirs = Talk(store, namespace="theirs", session="same")
    said = await mine.turns(2)
    opened = await mine.asks([*said, b"secret"], stored=4, idempotency_key="key", preamble=[b"rules"])
    chains = mine.chains(said)
    for session in (None, "same"):
        assert await store.history.known("theirs", chains, session) == []
        assert await store.history.relayed("theirs", [digest(b"canonical", said[1])], session) == []
    assert await store.history.path("theirs", "same", chains[-1]) == []
    assert await store.history.messages("theirs", "same", chains[-1]) == []
    assert await store.history.transcript("theirs", "same", chains[-1]) == []
    assert await store.history.message("theirs", chains[-1]) is None
    assert await store.history.preamble("theirs", "same", opened.preamble_digest) == []
    assert await store.history.session("theirs", "same") is None
    assert await store.history.sessions("theirs", 10, None) == []
    assert await store.history.heads("theirs", "same") == []
    assert await store.exchanges.of_key("theirs", "key") is None
    assert await store.compactions.of_session("theirs", "same") == []
    assert await store.history.pins("theirs", "same") == []
    # The same name and the same words over there are another session, and change nothing here.
    before = await store.history.messages("mine", "same", opened.head)
    await theirs.turns(1)
    await theirs.hears(await theirs.asks([b"question 0"]), state="rejected", withdrawn=chains)
    assert await store.history.messages("mine", "same", opened.head) == before
    assert await mine.heads() == [opened.head]


async def test_variants_are_kept_and_change_no_message(store: Store) -> None:
    talk, said = await talked(store, 1)
    respelled = b'{ "content" : "other spelling" }'
    variant = Variant(talk.chains(said)[1], respelled, hashlib.sha256(respelled).digest())
    await talk.asks([*said, b"q"], stored=2, variants=[variant])
    assert await talk.said(said) == said


async def test_sessions_are_listed_newest_first_and_paged(store: Store) -> None:
    for i in range(5):
        await Talk(store, session=f"s{i}").asks([b"q"])
    first = await store.history.sessions("ns", 2, None)
    rest = await store.history.sessions("ns", 9, first[-1].id)
    assert [row.id for row in (*first, *rest)] == ["s4", "s3", "s2", "s1", "s0"]


async def test_the_newest_exchange_of_an_idempotency_key_is_found(store: Store) -> None:
    talk = Talk(store)
    await talk.asks([b"a"], idempotency_key="k", exchange="1")
    newer = await talk.asks([b"b"], idempotency_key="k", exchange="2")
    assert await store.exchanges.of_key("ns", "k") == (talk.session, newer.head)
    assert await store.exchanges.of_key("ns", "other") is None


async def test_a_prefix_too_short_names_no_message(store: Store) -> None:
    talk, said = await talked(store, 1)
    assert await store.history.message("ns", talk.chains(said)[0][:11]) is None
    assert await store.history.message("ns", b"\xff" * 12) is None


async def test_credentials_keep_their_namespace(store: Store) -> None:
    names = await asyncio.gather(*(store.accounts.namespace_of(b"a" * 32, 1.0) for _ in range(8)))
    assert len(set(names)) == 1
    assert await store.accounts.namespace_of(b"b" * 32, 1.0) != names[0]
    assert await store.accounts.namespace_of(b"a" * 32, 2.0) == names[0]


async def test_keys_are_valid_until_revoked(store: Store) -> None:
    old = KeyRow("k1", "laptop", "ns1", 1.0, None)
    new = KeyRow("k2", "phone", "ns2", 2.0, None)
    await store.accounts.add_key(old, b"1" * 32)
    await store.accounts.add_key(new, b"2" * 32)
    await store.accounts.add_key(new, b"2" * 32)
    assert await store.accounts.keys() == [new, old]
    assert await store.accounts.key_of(b"1" * 32) == old
    assert await store.accounts.revoke_key("k1", 9.0)
    assert not await store.accounts.revoke_key("k1", 10.0)
    assert not await store.accounts.revoke_key("k3", 10.0)
    assert await store.accounts.key_of(b"1" * 32) is None
    assert not await store.accounts.change_key(replace(old, label="gone"))
    assert (await store.accounts.keys())[1].revoked_at == 9.0


async def test_what_an_operator_sets_for_a_key_can_be_changed(store: Store) -> None:
    made = KeyRow("k1", "laptop", "ns1", 1.0, expires_at=9.0, daily_tokens=5)
    await store.accounts.add_key(made, b"1" * 32)
    await store.accounts.add_key(KeyRow("k2", "phone", "ns2", 2.0), b"2" * 32)
    await store.accounts.key_used("k1", 7.0)
    used = replace(made, last_used_at=7.0)
    assert await store.accounts.key_of(b"1" * 32) == used
    changed = replace(used, label="desk", expires_at=None, daily_tokens=None)
    # Only what an operator sets: neither the namespace nor the times are written.
    assert await store.accounts.change_key(
        replace(changed, namespace="ns2", created_at=3.0, last_used_at=1.0)
    )
    assert await store.accounts.keys() == [KeyRow("k2", "phone", "ns2", 2.0), changed]


async def test_what_was_learned_is_replaced(store: Store) -> None:
    await store.accounts.save_calibration(Calibration("ns1", "m", 1.1, 3, 1.0, 0), 1.0)
    await store.accounts.save_calibration(Calibration("ns1", "m", 1.2, 4, 1.1, 1), 2.0)
    await store.accounts.save_calibration(Calibration("ns2", "m", 0.9, 1, 1.0, 0), 3.0)
    assert await store.accounts.calibrations() == [
        Calibration("ns2", "m", 0.9, 1, 1.0, 0),
        Calibration("ns1", "m", 1.2, 4, 1.1, 1),
    ]


@pytest.mark.spec("H01")
async def test_windows_are_each_namespaces_own_grow_old_and_are_forgotten(store: Store) -> None:
    first = LearnedWindow("ns1", "u", "m", 1_000, "overflow", 1.0)
    newer = replace(first, tokens=2_000, learned_at=2.0)
    other = replace(first, namespace="ns2", learned_at=3.0)
    stated = replace(first, namespace="", source="upstream", learned_at=4.0)
    for window in (first, newer, other, stated):
        await store.accounts.learn_window(window, 0.0)
    assert await store.accounts.learned_windows(0.0) == [stated, other, newer]
    assert await store.accounts.learned_windows(3.0) == [stated, other]
    assert await store.accounts.forget_windows("m", "ns2") == 1
    assert await store.accounts.forget_windows("another", None) == 0
    await store.accounts.learn_window(replace(stated, model="n", learned_at=9.0), 3.0)
    assert await store.accounts.learned_windows(0.0) == [replace(stated, model="n", learned_at=9.0), stated]
    assert await store.accounts.forget_windows("m", None) == 1


async def test_ping_writes_and_reads(store: Store) -> None:
    await store.ping()
    await store.ping()
    assert await store.unready() is None


async def test_the_size_is_that_of_what_is_stored(store: Store) -> None:
    before = await store.size_bytes()
    # Random, so that no database stores it in less.
    text = random.Random(1).randbytes(1_000_000).hex().encode()
    await Talk(store).asks([b'{"role": "user", "content": "' + text + b'"}'])
    assert before + 1_000_000 < await store.size_bytes() < before + 10_000_000
