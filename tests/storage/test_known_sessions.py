"""What turns need not read or write again: it is never told where it may be wrong."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.journal import KnownSessions
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.store import Store, open_store

from tests.storage.conftest import new_id
from tests.storage.talk import Talk, digest
from tests.storage.test_compactions import COMPACTION


@pytest.fixture
async def sole(sqlite_url: str) -> AsyncIterator[Store]:
    """The store of a server that has its database alone."""
    store = await open_store(sqlite_url, new_id=new_id, deadline_seconds=30, sole=True)
    yield store
    await store.close()


async def _read(store: Store, session: str) -> tuple[bytes | None, list[Any]]:
    payload, made = await store.compactions.with_settings("ns", session)
    return payload, [row.compaction for row in made]


async def test_what_is_written_is_seen_after_its_session_was_read_as_plain(sole: Store) -> None:
    talk, other = Talk(sole), Talk(sole)
    for each in (talk, other):
        await each.turns(1)
        for _ in range(2):
            assert await _read(sole, each.session) == (None, [])
    assert await sole.compactions.add("ns", talk.session, 0, COMPACTION, 5.0)
    assert await _read(sole, talk.session) == (None, [COMPACTION])
    await sole.journal.put_settings("ns", other.session, b"{}")
    assert await _read(sole, other.session) == (b"{}", [])
    await sole.journal.put_settings("ns", other.session, None)
    assert await _read(sole, other.session) == (None, [])


async def test_a_write_that_its_caller_has_given_up_is_seen(sole: Store) -> None:
    talk = Talk(sole)
    await talk.turns(1)
    assert await _read(sole, talk.session) == (None, [])
    writing = asyncio.create_task(sole.compactions.add("ns", talk.session, 0, COMPACTION, 5.0))
    await asyncio.sleep(0)
    writing.cancel()
    # Perhaps before it is committed.
    await _read(sole, talk.session)
    # Commits in order: this one behind it.
    await talk.turns(1)
    assert await _read(sole, talk.session) == (None, [COMPACTION])


async def test_another_server_s_compactions_are_always_read(sqlite_url: str) -> None:
    """On a database that others may share nothing is remembered."""
    one, other = [await open_store(sqlite_url, new_id=new_id, deadline_seconds=30) for _ in range(2)]
    talk = Talk(one)
    await talk.turns(1)
    assert await _read(one, talk.session) == (None, [])
    assert await other.compactions.add("ns", talk.session, 0, COMPACTION, 5.0)
    assert await _read(one, talk.session) == (None, [COMPACTION])
    await one.close()
    await other.close()


def test_what_is_remembered_is_bounded() -> None:
    known = KnownSessions(is_sole=True)
    for number in range(20_001):
        known.plain("ns", str(number))
        known.has_written(str(number), b"rules")
    assert not known.is_plain("ns", "0")
    assert not known.holds("0", b"rules")
    assert known.is_plain("ns", "20000")
    assert known.holds("20000", b"rules")
    assert not known.holds("20000", b"others")
    assert not known.is_plain("other", "20000")


async def test_instructions_are_written_once_and_those_of_each_session(sole: Store, sqlite_url: str) -> None:
    path = sqlite_path(sqlite_url)
    assert path is not None
    rules, others = digest(b"rules"), digest(b"rules", b"others")
    for _ in range(2):
        talk, said = Talk(sole), [b"q1"]
        for turn, preamble in enumerate([[b"rules"], [b"rules"], [b"rules", b"others"], [b"rules"]]):
            more: dict[str, Any] = {"preamble": preamble, "continues": turn > 0, "answers": turn}
            asked = await talk.asks(said, stored=max(0, len(said) - 1), **more)
            answer = talk.answer(asked, b"a%d" % turn, answers=turn + 1)
            await talk.hears(asked, answer)
            said = [*said, answer.body, b"q%d" % (turn + 2)]
            stored = await sole.history.preamble("ns", talk.session, digest(*preamble))
            assert stored == preamble
    connection = driver.connect(path)
    rows = connection.execute("SELECT digest, count(*) FROM preambles GROUP BY digest").fetchall()
    connection.close()
    assert dict(rows) == {rules: 2, others: 2}


async def test_an_erased_session_s_instructions_come_back_with_a_new_one(sole: Store) -> None:
    first = Talk(sole)
    await first.asks([b"q"], preamble=[b"rules"])
    assert await sole.erasure.session("ns", first.session, (), 10.0) is not None
    second = Talk(sole)
    await second.asks([b"q"], preamble=[b"rules"])
    assert await sole.history.preamble("ns", second.session, digest(b"rules")) == [b"rules"]
    assert hashlib.sha256(b"rules").digest() in await sole.erasure.body_digests("ns", second.session)
    # What was begun before the erase stores nothing.
    late = replace(await second.asks([b"late"]), session=first.session, preamble=[], continues=True)
    await sole.exchanges.open(late)
    assert await sole.history.session("ns", first.session) is None
