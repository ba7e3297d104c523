"""What is found by its words, and how the index catches up with what is said."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest
from palimpsest.core.recall.words import CorpusStatistics
from palimpsest.errors import SettingsError
from palimpsest.storage import search_index
from palimpsest.storage.journal import EventRow
from palimpsest.storage.migrate import migrate, with_connection
from palimpsest.storage.store import Store
from sqlalchemy import Connection, text

from tests.storage.recalling import catches_up, finds, is_summarised, lacks
from tests.storage.talk import Talk, talked

# 10,000 characters that no database makes shorter.
DATA = "".join(hashlib.sha256(b"%d" % i).hexdigest() for i in range(160))[:10_000]
# Each is a word of its own, whatever a query language, a tokenizer or an encoding makes of it.
SIGNS = "\" ' * a* ( ) ^a -a +a a:b col:x {a} % _ __ _5f \\ ;-- _e _h"
LETTERS = "AND and OR NOT NEAR NEAR(a a b A \u00c4 \u00e4 a\u0308 \u65e5\u672c \U0001f600 \u202e \u00a0"
HOSTILE = (
    *SIGNS.split(" "),
    *LETTERS.split(" "),
    *("", " ", "a b", "a AND b", "NEAR(a b)", "\t", "\n", "\0", "a\0b", "\ud83d", "\\ud83d", "\udc80a"),
    *("x" * 10_000, "x" * 9_999, "\u00e9" * 5_000, DATA, DATA[:-1], "_n" + "0" * 16, "_s" + "0" * 16),
)


async def test_what_holds_any_of_the_words_is_found_with_its_facts(store: Store) -> None:
    talk, said = await talked(store, 3)
    assert await catches_up(talk) == said
    found = await store.search.find("ns", talk.session, ["1", "nowhere"], 50)
    assert [row.body for row in found.rows] == [b"answer 1", b"question 1"]
    answer = found.rows[0]
    assert (answer.kind, answer.role, answer.depth, answer.state) == ("message", "assistant", 4, "live")
    assert (answer.session, answer.relayed, answer.at) == (talk.session, True, 1004.0)
    chains = talk.chains(said)
    assert (answer.chain, answer.parent, answer.ref) == (chains[3], chains[2], chains[3])
    assert found.holdings == CorpusStatistics(6, 2.0, {"1": 2, "nowhere": 0})
    assert (await store.search.find("ns", talk.session, ["1", "nowhere"], 0)).holdings == found.holdings


async def test_more_and_rarer_words_come_first_and_of_equals_the_newest(store: Store) -> None:
    talk = Talk(store)
    bodies = [b"common", b"rare common", b"common", b"rare", b"rare common other", b"nothing"]
    await talk.asks(bodies)
    await catches_up(talk)
    expected = [bodies[4], bodies[1], bodies[3], bodies[2], bodies[0]]
    assert await finds(talk, "common", "rare") == expected
    assert await finds(talk, "rare", "common", "rare", limit=2) == expected[:2]
    assert await finds(talk, "common", "rare", limit=0) == []
    assert await finds(talk) == []


async def test_of_large_rows_those_are_told_that_fit_together(store: Store) -> None:
    """The best always; then what follows, but for what is too large for what is left."""
    talk = Talk(store)
    bodies = [b"rare x" + b"." * 994, b"rare y" + b"." * 294, b"rare z" + b"." * 994, b"rare common"]
    await talk.asks([*bodies, b"other"])
    await catches_up(talk, lambda row: row.body.decode().replace(".", "").split())

    async def told(most_bytes: int) -> list[bytes]:
        found = await store.search.find("ns", talk.session, ["rare", "x"], 50, most_bytes)
        return [row.body for row in found.rows]

    assert await told(10_000) == [bodies[0], bodies[3], bodies[2], bodies[1]]
    assert await told(1_400) == [bodies[0], bodies[3], bodies[1]]
    assert await told(10) == [bodies[0]]


async def test_no_word_is_taken_for_anything_else(store: Store) -> None:
    talk = Talk(store)
    bodies = [b"%d" % i for i in range(len(HOSTILE))]
    await talk.asks(bodies)
    await catches_up(talk, lambda row: ["all", HOSTILE[int(row.body)]])
    for body, word in zip(bodies, HOSTILE, strict=True):
        assert await finds(talk, word) == [body], repr(word[:20])
    assert len(await finds(talk, "all", *HOSTILE)) == 50
    assert set(await finds(talk, *HOSTILE, limit=500)) == set(bodies)
    padding = [f"nobody {i}" for i in range(96 - len(HOSTILE) + 1)]
    assert set(await finds(talk, *padding, *HOSTILE, limit=500)) == set(bodies[:-1])
    assert await finds(talk, "x" * 9_998) == []


@pytest.mark.parametrize("everywhere", [False, True])
async def test_a_namespace_sees_and_feels_nothing_of_another(store: Store, *, everywhere: bool) -> None:
    talks = [Talk(store, namespace, session="same") for namespace in ("one", "other")]
    for talk in talks:
        await talk.asks([b"our secret", b"their word", b"word word"])
    await catches_up(talks[0])
    session = None if everywhere else "same"
    alone = await store.search.find("one", session, ["secret", "word"], 50)
    assert (await store.search.find("other", session, ["secret", "word"], 50)).rows == ()
    await catches_up(talks[1])
    await Talk(store, "other").asks([b"secret secret"])
    assert await store.search.find("one", session, ["secret", "word"], 50) == alone
    there = await store.search.find("other", session, ["secret", "word"], 50)
    assert [row.chain for row in there.rows] != [row.chain for row in alone.rows]
    assert there.holdings == alone.holdings


async def test_another_session_is_found_only_where_all_are_asked(store: Store) -> None:
    talks = [Talk(store) for _ in range(3)]
    for i, talk in enumerate(talks):
        await talk.asks([b"shared", b"own %d" % i])
        await catches_up(talk)
    assert await finds(talks[0], "shared", "own", "1") == [b"own 0", b"shared"]
    assert set(await finds(talks[0], "own", everywhere=True)) == {b"own 0", b"own 1", b"own 2"}
    everywhere = await store.search.find("ns", None, ["1"], 50)
    assert [row.session for row in everywhere.rows] == [talks[1].session]
    assert everywhere.holdings == CorpusStatistics(6, 1.5, {"1": 1})


async def test_the_index_lags_and_catches_up_in_order(store: Store) -> None:
    talk, said = await talked(store, 4)
    first = await lacks(talk, 3)
    assert [row.body for row in first.rows] == said[:3]
    words = [(row.arrival, ["early"]) for row in first.rows]
    assert await store.search.index("ns", talk.session, first, words)
    assert set(await finds(talk, "early", "answer")) == set(said[:3])
    await store.journal.add_events("ns", talk.session, [EventRow("e", "context_summarized", b"{}", 1.0)])
    assert await catches_up(talk, limit=2) == said[3:]
    assert len(await finds(talk, "early", "answer", "question")) == 8
    # Events are nothing to be found, and leave nothing to be done.
    await store.journal.add_events("ns", talk.session, [EventRow("f", "context_summarized", b"{}", 1.0)])
    missing = await lacks(talk)
    assert missing.rows == []
    assert await store.search.index("ns", talk.session, missing, [])
    assert await store.search.unindexed("ns", talk.session, 64) is None
    await talk.asks([*said, b"late words"], stored=8)
    assert await catches_up(talk) == [b"late words"]
    assert await finds(talk, "late") == [b"late words"]


async def test_a_stretch_is_added_once(store: Store) -> None:
    talk, _ = await talked(store, 2)
    missing = await lacks(talk)
    entries = [(row.arrival, ["word"]) for row in missing.rows]
    results = await asyncio.gather(
        *(store.search.index("ns", talk.session, missing, entries) for _ in range(8))
    )
    assert sorted(results) == [False] * 7 + [True]
    assert (await store.search.find("ns", talk.session, ["word"], 0)).holdings == CorpusStatistics(
        4, 1.0, {"word": 4}
    )
    assert not await store.search.index("ns", talk.session, missing, entries)


async def test_a_part_of_a_stretch_may_be_added(store: Store) -> None:
    talk, _ = await talked(store, 2)
    missing = await lacks(talk)
    part = replace(missing, upto=missing.rows[1].arrival)
    assert await store.search.index("ns", talk.session, part, [(missing.rows[0].arrival, ["one"])])
    rest = await lacks(talk)
    assert [row.body for row in rest.rows] == [b"question 1", b"answer 1"]


async def test_nothing_is_added_to_a_session_that_is_gone_or_began_anew(store: Store, url: str) -> None:
    talk, _ = await talked(store, 1)
    missing = await lacks(talk)
    entries = [(row.arrival, ["word"]) for row in missing.rows]
    stale = replace(missing, epoch=missing.epoch - 1)
    assert not await store.search.index("ns", talk.session, stale, entries)
    assert not await store.search.index("ns", "nobody", missing, entries)
    assert not await store.search.index("other", talk.session, missing, entries)
    later = replace(missing, after=1)
    assert not await store.search.index("ns", talk.session, later, entries)
    assert (await store.search.find("ns", talk.session, ["word"], 0)).holdings == CorpusStatistics(0, 1.0, {})

    def forget(connection: Connection) -> None:
        connection.execute(text("DELETE FROM sessions"))
        connection.commit()

    await with_connection(url, forget)
    assert not await store.search.index("ns", talk.session, missing, entries)
    assert await finds(talk, "word") == []
    assert await store.search.unindexed("ns", talk.session, 64) is None


async def test_summaries_are_found_and_say_when_they_are_undone(store: Store) -> None:
    talk, said = await talked(store, 1)
    watermark = talk.chains(said)[-1]
    await is_summarised(store, talk, watermark, "what was said \ud83d")
    await catches_up(talk)
    await is_summarised(store, talk, watermark, "and then", ident="d")
    assert await catches_up(talk) == [b"and then"]
    (row,) = (await store.search.find("ns", talk.session, ["said"], 50)).rows
    assert (row.kind, row.ref, row.chain, row.state, row.role) == ("summary", b"c", watermark, "live", "")
    assert (row.body, row.at) == ("what was said \ud83d".encode("utf-8", "surrogatepass"), 7.0)
    assert await store.compactions.undo("ns", talk.session, "c", 9.0)
    (row,) = (await store.search.find("ns", talk.session, ["said"], 50)).rows
    assert row.state == "undone"


async def test_what_was_rejected_is_found_and_says_so(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"a bad picture"])
    await catches_up(talk)
    await talk.hears(opened, state="rejected", withdrawn=[opened.head], status=400)
    (row,) = (await store.search.find("ns", talk.session, ["picture"], 50)).rows
    assert row.state == "rejected"


async def test_long_bodies_come_a_few_at_a_time(store: Store) -> None:
    talk = Talk(store)
    bodies = [b"A" * 5_000_000, b"B" * 3_000_000, b"C" * 3_000_000]
    await talk.asks(bodies)
    missing = await lacks(talk)
    assert [row.body for row in missing.rows] == bodies[:1]
    assert await catches_up(talk, lambda row: ["long", chr(row.body[0]).lower()]) == bodies
    assert (await store.search.find("ns", talk.session, ["long"], 50, 20_000_000)).rows[0].body == bodies[2]
    assert await finds(talk, "long", "b") == [bodies[1]]


async def test_a_sqlite_that_cannot_keep_the_index_is_refused(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "has_word_index", lambda: False)
    with pytest.raises(SettingsError, match="Install pysqlite3-binary, or use PostgreSQL"):
        await migrate(sqlite_url)


async def test_sessions_that_lag_are_named_the_last_written_first(store: Store) -> None:
    talks = [Talk(store) for _ in range(3)]
    for talk, clock in zip(talks, (10.0, 20.0, 30.0), strict=True):
        talk.clock = clock
        await talk.asks([b"q"])
    talks[0].clock = 40.0
    await talks[0].asks([b"q", b"more"], stored=1)
    await Talk(store, namespace="other").asks([b"q"])
    first, second, third = (talk.session for talk in talks)
    assert await store.search.lagging("ns", 9) == [first, third, second]
    assert await store.search.lagging("ns", 2) == [first, third]
    await catches_up(talks[2])
    assert await store.search.lagging("ns", 9) == [first, second]
    await talks[2].asks([b"q", b"new"], stored=1)
    assert third in await store.search.lagging("ns", 9)
