"""Memories: kept once, found by their words, folded into a block by one of those who try."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from palimpsest.storage.journal import MemoryKind, MemoryRow
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, talked


def memory(ident: str, text: str = "text", kind: MemoryKind = "entry") -> MemoryRow:
    return MemoryRow(ident, kind, text.encode("utf-8", "surrogatepass"), None, 5.0)


async def ids_of(store: Store, session: str, *kinds: MemoryKind) -> list[str]:
    return [row.id for row in await store.journal.memories("ns", session, 99, kinds)]


async def found(store: Store, *words: str) -> list[str]:
    return [row.id for row in await store.journal.search_memories("ns", words, 99)]


async def remembers(store: Store, *memories: MemoryRow) -> Talk:
    talk, _ = await talked(store, 1)
    for each in memories:
        await store.journal.add_memory("ns", talk.session, each)
    return talk


async def test_memories_are_listed_newest_first_and_kept_once(store: Store) -> None:
    kept = [
        replace(memory("b", kind="summary"), compaction="c1", text=b"\x00 NUL \xff \xed\xa0\xbd"),
        memory("a", kind="flush"),
        memory("c"),
    ]
    talk = await remembers(store, *kept, replace(kept[0], text=b"other"))
    stored = await store.journal.memories("ns", talk.session, 99)
    assert stored == kept[::-1]
    assert {row.session for row in stored} == {talk.session}
    assert [row.arrival for row in stored] == sorted((row.arrival for row in stored), reverse=True)
    assert await store.journal.memories("ns", talk.session, 2) == stored[:2]
    assert await store.journal.memories("ns", talk.session, 9, (), stored[0].arrival) == stored[1:]
    assert await ids_of(store, talk.session, "summary", "entry") == ["c", "b"]
    assert await ids_of(store, talk.session, "block") == []


async def test_every_word_must_be_there_in_upper_or_lower_case(store: Store) -> None:
    await remembers(store, memory("1", "The Red fox"), memory("3", "a red Hen"))
    await remembers(store, memory("2", "RED herring"))
    assert await found(store, "red") == ["3", "2", "1"]
    assert await found(store, "HE", "rEd") == ["3", "2", "1"]
    assert await found(store, "hen", "red") == ["3"]
    assert await found(store, "fox", "hen") == []
    assert await found(store) == ["3", "2", "1"]
    assert len(await store.journal.search_memories("ns", ["red"], 2)) == 2
    older = await store.journal.search_memories("ns", ["red"], 9, "3")
    assert [row.id for row in older] == ["2", "1"]


@pytest.mark.parametrize(
    ("text", "word", "others"),
    [
        ("100% sure", "0% s", "100 % sure"),
        ("a_b", "A_B", "axb"),
        ("a/b and a\\b", "a\\B", "a|b"),
        ("either/or", "r/O", "either or"),
        ('it\'s "quoted" -- ?', "'s \"QUO", "its quoted"),
        ("STRASSE and Straße", "straße and STRASSE", "Strase"),
        ("ÄÖ ПРИВЕТ", "привет", "пока"),
        ("half \ud83d a pair", "HALF \ud83d", "half a pair"),
        ("before \0 after", "AFTER", "before \0"),
        ("before \0 after", "e \0 a", "before after"),
    ],
)
async def test_a_word_is_found_as_it_is_written(store: Store, text: str, word: str, others: str) -> None:
    await remembers(store, memory("wanted", text), memory("other", others))
    assert await found(store, word) == ["wanted"]


async def test_a_search_is_bounded_in_words_and_letters(store: Store) -> None:
    await remembers(store, memory("long", "x" * 30_000))
    assert await found(store, "x" * 29_000) == ["long"]
    assert await found(store, *"x" * 16, "no longer looked at") == ["long"]
    assert await found(store, *"x" * 15, "looked at") == []


async def test_entries_are_folded_into_a_block(store: Store) -> None:
    talk = await remembers(store, *(memory(str(i)) for i in range(5)))
    block = memory("b1", "block", "block")
    assert await store.journal.replace_memory_block("ns", talk.session, ["0", "1", "1"], block)
    assert await ids_of(store, talk.session) == ["b1", "4", "3", "2"]
    # Repeated, or by somebody who has seen what is gone: nothing happens.
    assert not await store.journal.replace_memory_block("ns", talk.session, ["0", "1"], block)
    assert not await store.journal.replace_memory_block("ns", talk.session, ["2", "1"], memory("b2"))
    assert await ids_of(store, talk.session) == ["b1", "4", "3", "2"]
    later = memory("b3", "later", "block")
    assert await store.journal.replace_memory_block("ns", talk.session, ["b1", "2"], later)
    assert await ids_of(store, talk.session) == ["b3", "4", "3"]
    assert await found(store, "block") == []


async def test_a_block_takes_the_place_of_one_with_its_id(store: Store) -> None:
    talk = await remembers(store, memory("0"))
    for text in ("first", "second"):
        assert await store.journal.replace_memory_block("ns", talk.session, [], memory("b", text, "block"))
        assert await found(store, text) == ["b"]
        assert await ids_of(store, talk.session) == ["b", "0"]
        await store.journal.add_memory("ns", talk.session, memory("0"))
    assert await found(store, "first") == []
    assert await store.journal.replace_memory_block(
        "ns", talk.session, ["0", "b"], memory("b", "third", "block")
    )
    (stored,) = await store.journal.memories("ns", talk.session, 9)
    assert stored == memory("b", "third", "block")
    assert await found(store, "second") == []
    assert await found(store, "third") == ["b"]
    with pytest.raises(ValueError, match="256"):
        await store.journal.replace_memory_block(
            "ns", talk.session, [str(i) for i in range(257)], memory("b")
        )


async def test_of_two_servers_one_folds(store: Store, beside: Store) -> None:
    entries = [str(i) for i in range(10)]
    talk = await remembers(store, *(memory(i) for i in entries))
    done = await asyncio.gather(
        *(
            (store, beside)[i % 2].journal.replace_memory_block("ns", talk.session, entries, memory(f"b{i}"))
            for i in range(6)
        )
    )
    assert done.count(True) == 1
    assert await ids_of(store, talk.session) == [f"b{done.index(True)}"]


@pytest.mark.spec("P5")
async def test_no_memory_crosses_a_namespace(store: Store) -> None:
    mine, theirs = Talk(store, session="same"), Talk(store, namespace="other", session="same")
    await mine.turns(1)
    await store.journal.add_memory("ns", "same", memory("m", "mine"))
    await store.journal.add_memory("other", "same", memory("m", "theirs"))
    assert not await store.journal.replace_memory_block("other", "same", [], memory("b"))
    assert await store.journal.search_memories("other", [], 9) == []
    await theirs.turns(1)
    assert await store.journal.memories("other", "same", 9) == []
    assert not await store.journal.replace_memory_block("other", "same", ["m"], memory("b"))
    await store.journal.add_memory("other", "same", memory("m", "theirs"))
    assert await store.journal.replace_memory_block(
        "other", "same", ["m"], memory("b", "their block", "block")
    )
    assert await found(store) == ["m"]
    assert [row.id for row in await store.journal.search_memories("other", [], 9)] == ["b"]
    assert [row.text for row in await store.journal.memories("ns", "same", 9)] == [b"mine"]
