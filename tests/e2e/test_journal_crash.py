"""A compaction that breaks off: what came before it is there, nothing of it is, and the next one is made."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from benchmarks.kill_loop import server
from tests.kit.chat import Chat
from tests.kit.journal import (
    AT_THE_END,
    carries_out,
    checkpoints,
    compacted,
    events,
    memories,
    refuses_compactions,
)
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied
from tests.kit.serving import served
from tests.kit.words import prose

WINDOW = 8_000
pytestmark = pytest.mark.timeout(60)
# As the environment says it.
ENVIRONMENT = {
    "PALIMPSEST_COMPACTION__BACKGROUND": "false",
}


async def refused(chat: Chat) -> httpx.Response:
    """The answer of the first turn that is not a 200, as a compaction was due and not stored."""
    for number in range(40):
        question = {"role": "user", "content": f"Note {number}. {prose(number, 500)}"}
        reply = await chat.posts([*chat.said, question])
        if reply.status_code != 200:
            # An error names no session: the chat goes on from the answer before it.
            return chat.replies.pop()
        chat.said += [question, reply.json()["choices"][0]["message"]]
    raise AssertionError("no compaction was due")


@pytest.mark.spec("A36", "B13")
async def test_a_kill_right_after_the_checkpoint_leaves_it_and_the_whole_transcript(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with served(model, lifespan="off") as upstream:
        async with (
            server(tmp_path, upstream, WINDOW, **ENVIRONMENT) as running,
            httpx.AsyncClient(base_url=running.url, timeout=30, trust_env=False, verify=False) as http,
        ):
            chat = Chat(http, session="notes")
            await chat.says("We begin.")
            refuses_compactions(tmp_path)
            reply = await refused(chat)
            assert reply.is_server_error
            running.kill()
        refuses_compactions(tmp_path, refuses=False)
        async with (
            server(tmp_path, upstream, WINDOW, **ENVIRONMENT) as running,
            httpx.AsyncClient(base_url=running.url, timeout=30, trust_env=False, verify=False) as http,
        ):
            again = Chat(http, session="notes")
            again.said, again.replies = chat.said, chat.replies
            (kept,) = await checkpoints(http, again, "pre_compaction")
            assert kept["payload"]["runtime"]["transcript"]["messageCount"] == len(chat.sent[-1])
            assert await again.compactions() == []
            rows = await again.transcript()
            assert rows == chat.sent[-1]
            # The retry is compacted and answered.
            await again.sends(chat.sent[-1][-1])
            assert again.reply.headers["x-palimpsest-view"] == "compacted"
            assert len(await again.compactions()) == 1
            assert await again.transcript() == again.said


@pytest.mark.spec("B13", "F17", "P8")
async def test_a_compaction_that_cannot_be_stored_changes_nothing(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="notes")
        await compacted(chat)
        (before,) = await chat.compactions()
        parts = (await chat.view())["parts"]
        refuses_compactions(tmp_path)
        answered = len(model.prompts)
        for _ in range(2):
            assert (await refused(chat)).is_server_error
        assert await chat.compactions() == [before]
        summaries = await memories(proxy.http, chat, "summary")
        assert [one["compaction"] for one in summaries] == [before["id"]]
        failed = await events(proxy.http, chat, ["compaction_failed"])
        assert {event["payload"]["reason"] for event in failed} == {"not_stored"}
        completed = await events(proxy.http, chat, ["context_summarized", "compaction_completed"])
        assert {event["payload"]["compactionId"] for event in completed} == {before["id"]}
        # What could be answered until then was answered under the view as it stood.
        prompts = model.prompts[answered - 1 :]
        assert all(later.extends(earlier) for earlier, later in pairwise(prompts))
        assert (await chat.view())["parts"][: len(parts)] == parts
        refuses_compactions(tmp_path, refuses=False)
        await chat.sends(chat.sent[-1][-1])
        assert len(await chat.compactions()) == 2
        assert await chat.transcript() == chat.said


@pytest.mark.spec("A36", "P8")
async def test_without_its_checkpoint_no_compaction_is_made(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="notes")
        await chat.says("We begin.")
        carries_out(
            tmp_path,
            "CREATE TRIGGER unkept BEFORE INSERT ON checkpoints WHEN NEW.kind = 'pre_compaction'"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        assert (await refused(chat)).is_server_error
        assert await chat.compactions() == []
        carries_out(tmp_path, "DROP TRIGGER unkept")
        await chat.sends(chat.sent[-1][-1])
        assert len(await chat.compactions()) == 1
        assert await chat.transcript() == chat.said


async def test_a_periodic_checkpoint_that_cannot_be_kept_costs_no_turn(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="notes")
        await chat.says("We begin.")
        carries_out(
            tmp_path,
            "CREATE TRIGGER unkept BEFORE INSERT ON checkpoints WHEN NEW.kind = 'periodic'"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        await compacted(chat)
        assert len(await chat.compactions()) == 1
        assert await chat.transcript() == chat.said


@pytest.mark.spec("F17", "A45")
async def test_a_summarizer_that_fails_leaves_history_and_watermark(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=lambda _: Says(status=500, error={"error": {"message": "no"}}))
    background = {"summarizer.window_tokens": 100_000}
    async with proxied(model, tmp_path, background) as proxy:
        chat = proxy.chat(session="notes")
        while not model.summaries:
            await chat.says(f"Note {len(chat.replies)}. {prose(len(chat.replies), 300)}")
        # Asked in the background, in vain: nothing is folded, nothing is told, everything is sent.
        await chat.says("And now?")
        assert chat.reply.headers["x-palimpsest-view"] == "original"
        assert await chat.compactions() == []
        told = await events(proxy.http, chat, ["compaction_started", "context_summarized"])
        assert told == []
        assert model.prompts[-1].messages == chat.said[:-1]
        await compacted(chat)
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "deterministic"
        (summarized,) = await events(proxy.http, chat, ["context_summarized"])
        assert summarized["payload"]["passes"] == 0
        assert summarized["payload"]["author"] == "deterministic"
        assert await chat.transcript() == chat.said
