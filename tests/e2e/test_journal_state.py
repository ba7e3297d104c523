"""The state of a session between its checkpoints: which one counts, what was used, what a log refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.history.message import Conversation
from palimpsest.core.runtime.checkpoint import checkpoint_of
from palimpsest.core.runtime.evidence import ArchivedMessage
from palimpsest.core.runtime.snapshot import TranscriptSection, UsageSection, new_snapshot
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.journal.runtime import RuntimeHistory, StoredPath, Usages
from palimpsest.proxy.journal_rows import KeptCheckpoint

from tests.core.histories import assistant, conversation, user
from tests.core.runtime.records import NEW_YEAR, compaction, entries, exchanges
from tests.kit.journal import AT_THE_END, compacted, events
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied


def kept(ident: str, talk: Conversation, of: Sequence[ArchivedMessage]) -> KeptCheckpoint:
    """A checkpoint that knows of the whole of `talk`."""
    state = new_snapshot(TranscriptSection(head=talk.head.hex()))
    return KeptCheckpoint(ident, checkpoint_of("pre_compaction", of, NEW_YEAR, state))


def names(folder: Path) -> list[str]:
    """What lies in it."""
    return sorted(path.name for path in folder.iterdir())


def test_the_state_that_counts_is_the_one_furthest_along_the_path() -> None:
    fields = exchanges(6)
    whole, long, short = conversation(fields), conversation(fields[:8]), conversation(fields[:4])
    branch = conversation([*fields[:8], user("Another way.")])
    of = entries(fields[:2])
    # The newest first: one that was made beside the turns came later and knows less.
    rows = [kept("short", short, of), kept("branch", branch, of), kept("long", long, of)]
    state, counted = RuntimeHistory(rows, (), ()).on_path(whole)
    assert state is rows[2].checkpoint.runtime
    assert counted == 8
    assert RuntimeHistory(rows[:2], (), ()).on_path(conversation([assistant("Elsewhere.")])) == (None, 0)


async def test_what_was_used_counts_once_whoever_takes_it() -> None:
    usages = Usages()
    for _ in range(3):
        usages.count("ns", "s", Usage(100, 10, 5))
    usages.count("ns", "s", Usage())
    usages.count("ns", "other", Usage(1, 1))
    total: list[UsageSection] = []

    async def stores(*, works: bool) -> None:
        async with usages.taken("ns", "s") as taken:
            await asyncio.sleep(0)
            taken.is_stored = works
            if works:
                total.append(taken.usage)

    async def breaks() -> None:
        async with usages.taken("ns", "s"):
            raise ZeroDivisionError

    await stores(works=False)
    with pytest.raises(ZeroDivisionError):
        await breaks()
    await asyncio.gather(stores(works=True), stores(works=True))
    used = UsageSection(input_tokens=300, output_tokens=30, cached_tokens=15, requests=3)
    assert total == [used, UsageSection()]


def test_what_a_checkpoint_reads_is_bounded_and_ends_with_the_newest_message() -> None:
    read = entries(exchanges(20))
    path = StoredPath(tuple(read), 20)
    assert list(path.after(10, 10**6)) == read[10:]
    assert list(path.after(10, 1)) == read[-1:]
    assert list(path.after(len(read), 10**6)) == read[-1:]
    assert list(StoredPath((), 0).after(0, 10**6)) == []
    few = path.after(0, 300)
    assert 1 < len(few) < len(read)
    assert few[-1] is read[-1]


async def test_a_daily_log_leaves_its_folder_for_no_name_and_raises_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    await DailyLog(folder).write("ns", "s", compaction(), NEW_YEAR)
    assert not folder.exists()
    folder.mkdir()
    for namespace in ("../../outside", "ns", "ns"):
        await DailyLog(folder).write(namespace, "s", compaction(summary="Half \ud800 a pair."), NEW_YEAR)
    assert names(tmp_path) == ["log"]
    named = folder / "2026-01-01-ns.md"
    assert named.read_text().count("Half \ufffd a pair.") == 2
    assert len(names(folder)) == 2


@pytest.mark.spec("B09")
@pytest.mark.timeout(60)
async def test_a_delta_that_cannot_be_read_is_an_event(tmp_path: Path) -> None:
    text = "## KEY FACTS\n- The harbour is closed.\n## CONVERSATION FLOW\n- On.\n## OPEN THREADS\n- The rest."
    broken = {"role": "assistant", "content": f"{text}\n\n```json\n{{broken\n```"}
    model = ModelServer(window=8_000, summary=lambda _: Says(broken))
    rolling: dict[str, Any] = {"policy.name": "rolling", "policy.advanced.trigger_reserve_tokens": 0}
    async with proxied(model, tmp_path, AT_THE_END | rolling) as proxy:
        chat = proxy.chat()
        await compacted(chat)
        (row,) = await chat.compactions()
        told = await events(proxy.http, chat)
    (event,) = [one for one in told if one["type"] == "state_delta_invalid"]
    assert event["payload"]["compactionId"] == row["id"]
    assert row["author"] == "model"
    assert told.index(event) > [one["type"] for one in told].index("compaction_completed")
