"""Summaries are found from all sessions of one namespace, and stand in a daily log if there is one."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, carries_out, compacted, events, read
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied

WINDOW = 8_000
pytestmark = pytest.mark.timeout(60)


def telling(fact: str) -> Any:
    """A summarizer that adds a fact to what it is asked for."""

    def tells(seen: Seen) -> Says:
        told = plain_summary(seen).replace("## Entry\n### What was said", f"## Entry\n### Birds\n- {fact}")
        return Says({"role": "assistant", "content": told})

    return tells


async def found(proxy: Proxy, chat: Chat, words: str) -> list[dict[str, Any]]:
    """What the chat's caller finds by these words."""
    memories: list[dict[str, Any]] = (await read(proxy.http, chat, f"memory/search?q={words}"))["memories"]
    return memories


@pytest.mark.spec("A30")
async def test_a_summary_is_found_from_another_session_and_by_nobody_else(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=telling("The heron nests in Marzahn."))
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        one = proxy.chat(key="mine", session="one")
        await compacted(one)
        model.summary = telling("The stork nests in Pankow.")
        two = proxy.chat(key="mine", session="two")
        await compacted(two)
        other = proxy.chat(key="somebody else's", session="one")
        await other.says("What nests where?")
        (compaction,) = await one.compactions()
        (heron,) = await found(proxy, two, "HERON marzahn")
        assert (heron["session"], heron["kind"]) == (one.session, "summary")
        assert heron["compaction"] == compaction["id"]
        # The fence is for the model's eyes.
        assert f"\n{heron['text']}\n" in compaction["summary"]
        assert [memory["session"] for memory in await found(proxy, one, "nests")] == [
            two.session,
            one.session,
        ]
        assert await found(proxy, one, "heron pankow") == []
        assert await found(proxy, other, "nests") == []
        assert await found(proxy, other, "") == []
        (told,) = await events(proxy.http, one, ["memory"])
        assert told["payload"] == {"compactionId": compaction["id"], "memoryId": heron["id"]}


@pytest.mark.spec("A30", "P5")
async def test_the_daily_log_has_a_file_for_each_namespace_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END | {"compaction.daily_log_folder": folder}) as proxy:
        one, two = proxy.chat(key="mine", session="one"), proxy.chat(key="yours", session="two")
        await compacted(one, rounds=2)
        await compacted(two)
        summaries = {chat: [row["summary"] for row in await chat.compactions()] for chat in (one, two)}
        sessions = {chat: chat.session for chat in (one, two)}
    # The server has ended, and what it had begun to write with it.
    files = sorted(folder.iterdir())
    assert len(files) == 2
    texts = [file.read_text() for file in files]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    for chat in (one, two):
        (text,) = [text for text in texts if sessions[chat] in text]
        assert text.count("## ") >= len(summaries[chat])
        for summary in summaries[chat]:
            assert "\n".join(summary.splitlines()[1:-1]).strip() in text
    assert not any(sessions[one] in text and sessions[two] in text for text in texts)


@pytest.mark.spec("A30")
@pytest.mark.parametrize("kind", ["absent", "file", "link"])
async def test_a_daily_log_that_cannot_be_written_costs_nothing(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    target = tmp_path / "target"
    if kind == "file":
        folder.write_text("in the way")
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END | {"compaction.daily_log_folder": folder}) as proxy:
        chat = proxy.chat(session="one")
        await chat.says("We begin.")
        if kind == "link":
            # Somebody put a link where the file of a day would be: it is not followed.
            folder.mkdir()
            target.write_text("kept")
            for name in _names(tmp_path):
                (folder / name).symlink_to(target)
        await compacted(chat)
        assert await chat.transcript() == chat.said
    assert kind != "absent" or not folder.exists()
    assert kind != "file" or folder.read_text() == "in the way"
    assert kind != "link" or target.read_text() == "kept"


def _names(folder: Path) -> list[str]:
    """The names that the file may have: today's or, if midnight passes, tomorrow's."""
    (namespace,) = carries_out(folder, "SELECT DISTINCT namespace FROM sessions")
    now = datetime.now(UTC)
    return [f"{day:%Y-%m-%d}-{namespace}.md" for day in (now, now + timedelta(days=1))]
