"""A session goes on after a kill as if there had been none: the same view, from what is stored (A33)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.core.runtime.foreign import Stored
from app.core.runtime.restore import restored
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
    "PALIMPSEST_POLICY__OBJECTIVE": "off",
}


@pytest.mark.spec("A33", "A40", "P10")
async def test_a_kill_between_turns_changes_no_byte_of_the_next_view(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with served(model, lifespan="off") as upstream:
        async with (
            server(tmp_path, upstream, WINDOW, **ENVIRONMENT) as running,
            httpx.AsyncClient(base_url=running.url, timeout=30, trust_env=False) as http,
        ):
            chat = Chat(http, session="notes", system="You keep notes.")
            await compacted(chat, rounds=2)
            await chat.says("One more.")
            before = model.prompts[-1]
            view = (await chat.view())["parts"]
            told = await events(http, chat)
            running.kill()
        async with (
            server(tmp_path, upstream, WINDOW, **ENVIRONMENT) as running,
            httpx.AsyncClient(base_url=running.url, timeout=30, trust_env=False) as http,
        ):
            again = Chat(http, session="notes")
            again.said, again.replies = list(chat.said), list(chat.replies)
            assert (await again.view())["parts"] == view
            assert await events(http, again) == told
            state = restored(
                [Stored(event["type"], event["payload"], event["created_at"], event["id"]) for event in told]
            )
            assert state is not None
            assert state.form == "checkpoint_v2"
            assert state.snapshot.loop.compaction_count == 1
            await again.says("Go on.")
            after = model.prompts[-1]
            assert after.extends(before)
            assert len(after.spans) == len(before.spans) + 2
            # The counters go on, too: the next state is built on the one before the kill.
            while len(await again.compactions()) < 3:
                await again.says(f"Later. {prose(len(again.replies), 500)}")
            states = [
                checkpoint["payload"]["runtime"]
                for checkpoint in await checkpoints(http, again, "pre_compaction")
            ]
            assert [each["loop"]["compactionCount"] for each in states] == [0, 1, 2]
            assert states[-1]["verification"]["audits"] >= 1
            assert states[-1]["usage"]["requests"] > states[-2]["usage"]["requests"] > 0
            assert states[-1]["loop"]["lastFlush"] == states[0]["loop"]["lastFlush"] is not None
            assert await again.transcript() == again.said
