"""A session goes on after a kill as if there had been none: the same view, from what is stored (A33)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from benchmarks.kill_loop import server
from tests.kit.chat import Chat
from tests.kit.journal import checkpoints, compacted, events
from tests.kit.model import ModelServer
from tests.kit.serving import served
from tests.kit.words import prose

WINDOW = 8_000
pytestmark = pytest.mark.timeout(60)
ENVIRONMENT = {
    "PALIMPSEST_COMPACTION__BACKGROUND": "false",
}


@asynccontextmanager
async def started(folder: Path, upstream: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server process on the database in `folder`, which is killed at the end."""
    async with (
        server(folder, upstream, WINDOW, **ENVIRONMENT) as running,
        httpx.AsyncClient(base_url=running.url, timeout=30, trust_env=False, verify=False) as http,
    ):
        yield http
        running.kill()


@pytest.mark.spec("A33", "P10")
async def test_a_kill_between_turns_changes_no_byte_of_the_next_view(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with served(model, lifespan="off") as upstream:
        async with started(tmp_path, upstream) as http:
            chat = Chat(http, session="notes", system="You keep notes.")
            await compacted(chat, rounds=2)
            await chat.says("One more.")
            before = model.prompts[-1]
            view = (await chat.view())["parts"]
            told = await events(http, chat)
        async with started(tmp_path, upstream) as http:
            again = Chat(http, session="notes")
            again.said, again.replies = chat.said, chat.replies
            assert (await again.view())["parts"] == view
            assert await events(http, again) == told
            await again.says("Go on.")
            after = model.prompts[-1]
            assert after.extends(before)
            assert len(after.spans) == len(before.spans) + 2
            assert await again.transcript() == again.said


@pytest.mark.spec("A33")
async def test_the_state_of_a_session_goes_on_after_a_kill(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with served(model, lifespan="off") as upstream:
        async with started(tmp_path, upstream) as http:
            chat = Chat(http, session="notes")
            await compacted(chat, rounds=2)
            before = await checkpoints(http, chat, "pre_compaction")
        async with started(tmp_path, upstream) as http:
            again = Chat(http, session="notes")
            again.said, again.replies = chat.said, chat.replies
            assert await checkpoints(http, again, "pre_compaction") == before
            while len(await again.compactions()) < 3:
                await again.says(f"Later. {prose(len(again.replies), 500)}")
            kept = await checkpoints(http, again, "pre_compaction")
            one, two, three = [checkpoint["payload"]["runtime"] for checkpoint in kept]
            assert [each["loop"]["compactionCount"] for each in (one, two, three)] == [0, 1, 2]
            # No token is lost with the process.
            assert three["usage"]["requests"] == len(again.replies) - 1
            assert two["usage"]["requests"] > one["usage"]["requests"] > 0
            assert two["loop"]["lastFlush"] == three["loop"]["lastFlush"] is not None
