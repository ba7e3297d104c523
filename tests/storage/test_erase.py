"""Of what is erased nothing is left, of everything else all, and nothing comes back (P6, rule 30)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from palimpsest.core.view.compaction import Compaction
from palimpsest.storage.erasure import OF_NAMESPACE, OF_SESSION
from palimpsest.storage.exchange_units import Variant
from palimpsest.storage.journal import CheckpointRow, EventRow, JournalEntries, MemoryRow
from palimpsest.storage.migrate import with_connection
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.store import Store, open_store
from palimpsest.storage.tables import METADATA
from sqlalchemy import Connection, text

from tests.kit.remains import remains
from tests.storage.conftest import new_id
from tests.storage.talk import Talk, digest
from tests.storage.test_standing import fills_every_table, rows_in

# Who may come in, what belongs to nobody, and the index of words, which has rules of its own.
KEPT = {"namespaces", "credentials", "keys", "pepper"}
# And what accounts have used: an erase gives nobody a new quota.
KEPT |= {"heartbeat", "servers", "usage", "reserved"}
INDEXED = {"recall_marks", "recall_words"}


async def of_namespace(url: str, namespace: str) -> Mapping[str, int]:
    """Rows by table, those that are kept left out."""

    def count(connection: Connection) -> dict[str, int]:
        return {
            table.name: connection.execute(
                text(f"SELECT count(*) FROM {table.name} WHERE namespace = :namespace"),
                {"namespace": namespace},
            ).scalar_one()
            for table in METADATA.sorted_tables
            if "namespace" in table.c and table.name not in KEPT
        }

    return await with_connection(url, count)


def compaction_of(watermark: bytes, ident: str = "late") -> Compaction:
    return Compaction(
        id=ident, kind="message_removal", watermark=watermark, kept=(), masks=(), summary="s", policy="",
        trigger="proactive", author="model", model="m", tokens_before=2, tokens_after=1, messages_folded=1,
        parents=(), reason="",
    )  # fmt: skip


def test_every_table_has_its_rule() -> None:
    ruled = set(OF_SESSION) | set(OF_NAMESPACE) | {"bodies"}
    assert set(METADATA.tables) == ruled | KEPT | INDEXED


async def test_a_session_is_erased_from_every_table_and_nobody_elses(store: Store, url: str) -> None:
    talk = await fills_every_table(store, b"one")
    other = await fills_every_table(store, b"other")
    before = await of_namespace(url, talk.namespace)
    untouched = await of_namespace(url, other.namespace)
    counts = await store.erasure.session(talk.namespace, talk.session, [], 1.0)
    assert counts == {
        **{table: before[table] for table in (*OF_SESSION, "bodies") if table in before},
        "leases": 1,
    }
    left = {table for table, rows in (await of_namespace(url, talk.namespace)).items() if rows}
    assert left == {"spending", "tombstones", "learned_windows", "calibrations"}
    assert await of_namespace(url, other.namespace) == untouched
    assert await store.history.session(talk.namespace, talk.session) is None


@pytest.mark.spec("P6")
@pytest.mark.parametrize("was_cut", [False, True])
async def test_no_spelling_of_an_answer_is_left(store: Store, url: str, was_cut: bool) -> None:
    """Regenerated, it may be the same answer with other thoughts beside it; so may one that was cut."""
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    answer = talk.answer(opened, b"the same")
    if was_cut:
        await talk.hears(opened, answer, answer_state="incomplete", state="incomplete")
    else:
        await talk.hears(opened, answer)
    for body in (b"the same, thought otherwise", b"the same, and once more"):
        again = await talk.asks([b"q"], stored=1)
        respelled = replace(answer, body=body, digest=digest(body))
        closed = await talk.hears(again, respelled)
        await store.exchanges.close(closed)
    stored = await of_namespace(url, talk.namespace)
    assert (stored["messages"], stored["variants"], stored["bodies"]) == (2, 2, 4)
    await store.erasure.session(talk.namespace, talk.session, [], 1.0)
    assert (await of_namespace(url, talk.namespace))["bodies"] == 0


async def test_what_is_not_there_is_erased_once(store: Store) -> None:
    talk = Talk(store)
    await talk.asks([b"q"])
    assert await store.erasure.session("other", talk.session, [], 1.0) is None
    assert await store.erasure.session("ns", "unknown", [], 1.0) is None
    at_once = [store.erasure.session("ns", talk.session, [], 1.0) for _ in range(3)]
    assert sorted(counts is not None for counts in await asyncio.gather(*at_once)) == [False, False, True]


# Everything is recent, and nothing is.
@pytest.mark.parametrize("now", [1.0, 1e9])
async def test_a_body_goes_with_the_last_that_names_it(store: Store, url: str, now: float) -> None:
    """A message, a variant and an instruction of one session, each the same bytes as something of another."""
    first, second = Talk(store), Talk(store)
    opened = await first.asks([b"a question", b"shared"], preamble=[b"be kind", b"of a variant"])
    await second.asks([b"shared"], preamble=[b"of a message", b"be kind"])
    third = Talk(store)
    asked = await third.asks([b"of a message", b"own"])
    variant = Variant(asked.messages[0].chain, b"of a variant", digest(b"of a variant"))
    await third.opens(messages=[], base=b"", head=asked.head, variants=[variant])
    stored = {b"a question", b"shared", b"be kind", b"of a variant", b"of a message", b"own"}
    assert await _bodies(url) == stored
    await store.erasure.session("ns", first.session, [], now)
    assert await _bodies(url) == stored - {b"a question"}
    assert [
        row.body for row in await store.history.messages("ns", second.session, second.chains([b"shared"])[-1])
    ]
    await store.erasure.session("ns", third.session, [], now)
    assert await _bodies(url) == {b"shared", b"of a message", b"be kind"}
    assert opened.preamble_digest
    await store.erasure.session("ns", second.session, [], now)
    assert await _bodies(url) == set()


async def _bodies(url: str) -> set[bytes]:
    def read(connection: Connection) -> set[bytes]:
        return {bytes(row[0]) for row in connection.execute(text("SELECT body FROM bodies"))}

    return await with_connection(url, read)


Late = Callable[[Store, Talk], Coroutine[Any, Any, object]]


async def _events(store: Store, talk: Talk) -> None:
    await store.journal.add_events("ns", talk.session, [EventRow("late", "context_summarized", b"{}", 1.0)])


async def _checkpoint(store: Store, talk: Talk) -> None:
    late = CheckpointRow("late", "periodic", b"late", 1.0)
    assert not await store.journal.add_checkpoint("ns", talk.session, late)


async def _compaction(store: Store, talk: Talk) -> None:
    also = JournalEntries(
        [MemoryRow("late", "summary", b"s", "late", 1.0)], [EventRow("late", "x", b"{}", 1.0)]
    )
    assert not await store.compactions.add("ns", talk.session, 0, compaction_of(b"w"), 1.0, also)


async def _block(store: Store, talk: Talk) -> None:
    late = MemoryRow("late", "block", b"b", None, 1.0)
    assert not await store.journal.replace_memory_block("ns", talk.session, [], late)


LATE: dict[str, Late] = {
    "events": _events,
    "checkpoint": _checkpoint,
    "compaction": _compaction,
    "block": _block,
    "memory": lambda store, talk: store.journal.add_memory(
        "ns", talk.session, MemoryRow("l", "entry", b"m", None, 1.0)
    ),
    "settings": lambda store, talk: store.journal.put_settings("ns", talk.session, b"{}"),
    "pin": lambda store, talk: store.history.add_pin("ns", talk.session, b"chain", 1.0),
    "request": lambda store, talk: talk.asks([b"q", b"next"], stored=1, preamble=[b"p"], continues=True),
    "the request that began it": lambda store, talk: talk.asks([b"q"], preamble=[b"p"]),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
async def test_what_comes_too_late_stores_nothing(store: Store, url: str, late: Late) -> None:
    empty = await rows_in(url)
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    await talk.hears(opened, talk.answer(opened, b"a"))
    await store.erasure.session("ns", talk.session, [], 1.0)
    await late(store, talk)
    after = await rows_in(url)
    assert {**after, "namespaces": 0} == {**empty, "namespaces": 0}


async def test_the_answer_of_an_erased_exchange_stores_nothing(store: Store, url: str) -> None:
    """Also where the session goes on for another request of the client that was on its way."""
    empty = await rows_in(url)
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    await store.erasure.session("ns", talk.session, [], 1.0)
    await store.exchanges.save_partial("ns", talk.session, opened.exchange, b"half an answer")
    await talk.hears(opened, talk.answer(opened, b"a whole answer"))
    assert await rows_in(url) == empty
    assert not (await store.accounts.status("ns")).proven


async def test_a_namespace_is_erased_and_its_key_goes_on(store: Store, url: str) -> None:
    talk = await fills_every_table(store, b"one")
    again = Talk(store, namespace=talk.namespace)
    opened = await again.asks([b"q"])
    await again.hears(opened, again.answer(opened, b"a"))
    await store.erasure.session(talk.namespace, talk.session, [b"mark"], 1.0)
    other = await fills_every_table(store, b"other")
    untouched = await of_namespace(url, other.namespace)
    counts = await store.erasure.namespace(talk.namespace, 1.0)
    assert (counts["sessions"], counts["messages"], counts["tombstones"], counts["spending"]) == (1, 2, 2, 1)
    assert not any((await of_namespace(url, talk.namespace)).values())
    assert await of_namespace(url, other.namespace) == untouched
    assert await store.accounts.namespace_of(b"one", 2.0) == talk.namespace
    assert (await store.accounts.status(talk.namespace)).proven
    assert not any((await store.erasure.namespace(talk.namespace, 1.0)).values())


async def test_the_marks_of_a_session_are_its_first_answers(store: Store) -> None:
    talk = Talk(store)
    first = await talk.asks([b"q"])
    answer = talk.answer(first, b"a")
    await talk.hears(first, answer)
    second = await talk.asks([b"q", b"a", b"q2"], stored=2)
    await talk.hears(second, talk.answer(second, b"a2", answers=2))
    assert await store.erasure.marks("ns", talk.session) == [answer.chain]
    retold = await talk.asks([b"q", b"retold", b"q3"], stored=1)
    other = talk.answer(retold, b"a3")
    await talk.hears(retold, other)
    marks = await store.erasure.marks("ns", talk.session)
    assert sorted(marks) == sorted([answer.chain, talk.chains([b"q", b"retold"])[1], other.chain])
    silent = Talk(store)
    asked = await silent.asks([b"nobody answered"])
    assert await store.erasure.marks("ns", silent.session) == [asked.head]


async def test_a_tombstone_is_found_by_its_mark_in_its_namespace(store: Store) -> None:
    talk = Talk(store)
    await talk.asks([b"q"])
    marks = [digest(b"%d" % i) for i in range(100)]
    assert not await store.erasure.has_tombstones("ns")
    await store.erasure.session("ns", talk.session, [marks[70]], 1.0)
    assert await store.erasure.has_tombstones("ns")
    assert await store.erasure.is_buried("ns", marks)
    assert not await store.erasure.is_buried("ns", marks[:70])
    assert not await store.erasure.is_buried("other", marks)


async def test_a_body_that_another_session_takes_meanwhile_stays(store: Store, url: str) -> None:
    """Sessions of the same text begin and are erased at once: no message loses its bytes."""
    said = [b"the same words", b"for everybody"]
    for _ in range(15):
        talks = [Talk(store) for _ in range(6)]
        await asyncio.gather(*(talk.asks(said) for talk in talks[:3]))
        erased = [store.erasure.session("ns", talk.session, [], 1.0) for talk in talks[:3]]
        await asyncio.gather(*(talk.asks(said) for talk in talks[3:]), *erased)
        for talk in talks[3:]:
            assert await talk.said(said) == said
            await store.erasure.session("ns", talk.session, [], 1.0)
        assert await _bodies(url) == set()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_an_erase_waits_for_who_takes_a_body_just_now(store: Store, url: str) -> None:
    """Another server has begun to write a session of the same text, and has not committed it yet."""
    first = Talk(store)
    await first.asks([b"shared"])
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            for table in ("sessions", "bodies", "messages"):
                await connection.execute(_copied(table, first.session))
            erasing = asyncio.ensure_future(store.erasure.session("ns", first.session, [], 1.0))
            _, waiting = await asyncio.wait({erasing}, timeout=0.5)
            assert waiting
        assert (await erasing or {})["messages"] == 1
    finally:
        await connection.close()
    assert await _bodies(url) == {b"shared"}
    second = Talk(store, session="second")
    assert await second.said([b"shared"]) == [b"shared"]


def _copied(table: str, session: str) -> str:
    """The row of the session, once more for another one; a body is there already."""
    names = [column.name for column in METADATA.tables[table].columns]
    own = {"sessions": "id", "messages": "session"}.get(table)
    taken = ", ".join("'second'" if name == own else name for name in names)
    where = f" WHERE {own} = '{session}'" if own else ""
    return (
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {taken} FROM {table}{where} ON CONFLICT DO NOTHING"
    )


async def test_a_kill_before_the_scrub_is_made_good_by_the_next_start(
    sqlite_url: str, tmp_path: Path
) -> None:
    store = await open_store(sqlite_url, new_id=new_id)
    talk = Talk(store)
    await talk.asks([b"Kanarienvogel77"])
    await store.erasure.session("ns", talk.session, [], 1.0)
    killed = _as_killed(tmp_path)
    await store.close()
    assert remains(killed, "Kanarienvogel77")
    after = await open_store(f"sqlite:///{killed / 'store.db'}", new_id=new_id, sole=True)
    assert remains(killed, "Kanarienvogel77") == {}
    await after.close()


def _as_killed(folder: Path) -> Path:
    """The database's files as they are now, elsewhere."""
    killed = folder / "killed"
    killed.mkdir()
    for file in folder.glob("store.db*"):
        shutil.copy(file, killed)
    return killed


async def test_a_reader_holds_the_scrub_back_for_a_while_only(sqlite_url: str, tmp_path: Path) -> None:
    store = await open_store(sqlite_url, new_id=new_id)
    talk = Talk(store)
    await talk.asks([b"Kanarienvogel77"])
    reader = driver.connect(tmp_path / "store.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM bodies").fetchall()
    await store.erasure.session("ns", talk.session, [], 1.0)
    assert await store.erasure.scrub() == "pending"
    assert remains(tmp_path, "Kanarienvogel77")
    reader.close()
    assert await store.erasure.scrub() == "scrubbed"
    assert remains(tmp_path, "Kanarienvogel77") == {}
    await store.close()
