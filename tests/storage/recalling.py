"""Catching up with a conversation as the program does; words are simply what stands between spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palimpsest.core.view.compaction import Compaction
from palimpsest.storage.search import RecallRow, Stretch
from palimpsest.storage.store import Store

from tests.storage.talk import Talk


def split(row: RecallRow) -> Sequence[str]:
    """The words of a row's bytes."""
    return row.body.decode("utf-8", "replace").split()


async def catches_up(
    talk: Talk, words: Callable[[RecallRow], Sequence[str]] = split, limit: int = 64
) -> list[bytes]:
    """Everything in the session is indexed; the bodies in the order they came."""
    told: list[bytes] = []
    while (missing := await talk.store.search.unindexed(talk.namespace, talk.session, limit)) is not None:
        entries = [(row.arrival, words(row)) for row in missing.rows]
        assert await talk.store.search.index(talk.namespace, talk.session, missing, entries)
        told += [row.body for row in missing.rows]
    return told


async def lacks(talk: Talk, limit: int = 64) -> Stretch:
    """What of the session is not indexed yet."""
    missing = await talk.store.search.unindexed(talk.namespace, talk.session, limit)
    assert missing is not None
    return missing


async def finds(talk: Talk, *words: str, limit: int = 50, everywhere: bool = False) -> list[bytes]:
    """The bodies that are found in the session, best first, or in all of the namespace."""
    session = None if everywhere else talk.session
    return [row.body for row in (await talk.store.search.find(talk.namespace, session, words, limit)).rows]


async def is_summarised(store: Store, talk: Talk, watermark: bytes, summary: str, ident: str = "c") -> None:
    """A compaction with this summary is stored."""
    compaction = Compaction(
        id=ident, kind="message_removal", watermark=watermark, kept=(), masks=(), summary=summary, policy="",
        trigger="proactive", author="model", model="m", tokens_before=2, tokens_after=1, messages_folded=1,
        parents=(), reason="",
    )  # fmt: skip
    assert await store.compactions.add(talk.namespace, talk.session, 0, compaction, 7.0)
