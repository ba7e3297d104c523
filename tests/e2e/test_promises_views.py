"""P8 and P9 on the running proxy, and the marks at which a prompt is compacted."""

from __future__ import annotations

import asyncio
import math
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.model import ModelServer, Says, tokens_of
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(60)


def history(turns: int, words: int) -> list[Json]:
    messages: list[Json] = [{"role": "system", "content": "You keep the log."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Entry {turn}. {prose(turn, words)}"})
        messages.append({"role": "assistant", "content": f"Noted {turn}."})
    return [*messages, {"role": "user", "content": "And now?"}]


@pytest.mark.spec("A02", "A26")
async def test_a_prompt_is_compacted_at_ninety_percent_and_not_below(tmp_path: Path) -> None:
    messages = history(12, 300)
    tokens = tokens_of(messages)
    reached = math.floor(tokens / 0.9)
    assert math.ceil(0.9 * reached) <= tokens < math.ceil(0.9 * (reached + 1))
    windows = {"below": reached + 1, "at": reached, "full": tokens, "over": tokens - 1}
    overrides = {
        "compaction.background": False,
        "policy.name": "auto",
        "models": [{"match": name, "window_tokens": window} for name, window in windows.items()],
    }
    triggers: dict[str, list[str]] = {}
    async with proxied(ModelServer(), tmp_path, overrides) as proxy:
        for name in windows:
            before = len(proxy.model.summaries)
            chat = proxy.chat(extra={"model": name})
            assert (await chat.posts(messages)).status_code == 200
            triggers[name] = [compaction["trigger"] for compaction in await chat.compactions()]
            assert (len(proxy.model.summaries) > before) == bool(triggers[name])
    assert triggers == {"below": [], "at": ["proactive"], "full": ["reactive"], "over": ["reactive"]}


@pytest.mark.spec("P9")
async def test_what_cannot_fit_is_refused_by_name_and_does_no_harm(tmp_path: Path) -> None:
    model = ModelServer(window=4_000)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the log.")
        await chat.says("Hello.")
        huge = {"role": "user", "content": prose(1, 6_000)}
        reply = await chat.posts([*chat.said, huge])
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "context_length_exceeded"
        assert reply.json()["error"]["param"] == "messages"
        assert len(model.prompts) == 1
        # The message is kept, off the path: the conversation goes on without it.
        await chat.says("Something shorter, then.")
        assert await chat.transcript() == chat.said
        instructions = {"role": "system", "content": prose(2, 6_000)}
        reply = await chat.posts([instructions, *chat.said[1:], {"role": "user", "content": "Hello?"}])
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
        await chat.says("Still here?")
        assert len(model.prompts) == 3
        assert await chat.transcript() == chat.said


@pytest.mark.spec("P8", "P9")
async def test_with_a_guessed_window_the_upstream_decides(tmp_path: Path) -> None:
    model = ModelServer(window=400_000, models=False)
    async with proxied(model, tmp_path, {"window.default_window_tokens": 2_000}) as proxy:
        chat = proxy.chat()
        await chat.says(prose(1, 6_000))
        assert model.prompts[0].messages == chat.said[:1]


@pytest.mark.spec("P8")
async def test_a_compaction_that_cannot_be_read_costs_no_answer(tmp_path: Path) -> None:
    model = ModelServer(window=6_000)
    async with proxied(model, tmp_path, {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep the log.")
        for turn in range(10):
            await chat.says(f"Entry {turn}. {prose(turn, 500)}")
        assert await chat.compactions()
        await damage(tmp_path)
        # Nothing can be planned any more: the request goes out as it came, and what the upstream says
        # of it is what the client hears.
        model.window = 100_000
        await chat.says("Does it still answer?")
        assert model.prompts[-1].messages == chat.said[:-1]
        model.window = 5_000
        reply = await chat.posts([*chat.said, {"role": "user", "content": "And now?"}])
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "context_length_exceeded"
        assert await chat.transcript() == chat.said


async def damage(folder: Path) -> None:
    """No compaction can be read any more. In a process of its own: locks of one process do not conflict."""
    code = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute(sys.argv[2]); d.commit()"
    change = "UPDATE compactions SET kept = x'ff00', masks = x'ff00'"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(folder / "palimpsest.db"), change
    )
    assert await child.wait() == 0


@asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[None]:
    """Nobody can write to the database."""
    code = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "d.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(folder / "palimpsest.db"), stdin=PIPE, stdout=PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"locked\n"
        yield
    finally:
        child.stdin.close()
        await child.wait()


@pytest.mark.spec("P8")
@pytest.mark.parametrize("choice", ["refuse", "passthrough"])
async def test_only_a_store_that_cannot_record_stops_a_request(choice: str, tmp_path: Path) -> None:
    model = ModelServer()
    overrides = {"database.on_store_failure": choice, "database.store_deadline_seconds": 0.3}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat()
        await chat.says("Hello.")
        async with locked(tmp_path):
            reply = await chat.posts([*chat.said, {"role": "user", "content": "Are you there?"}])
        if choice == "refuse":
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "store_unavailable")
            assert len(model.prompts) == 1
        else:
            assert (reply.status_code, reply.headers["x-palimpsest-store"]) == (200, "unavailable")
            assert len(model.prompts) == 2
        await chat.says("And now?")
        assert await chat.transcript() == chat.said


@pytest.mark.spec("P8", "F31")
async def test_the_upstreams_own_errors_pass_through_unchanged(tmp_path: Path) -> None:
    model = ModelServer(window=6_000)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat()
        await chat.says("Hello.")
        for status in (400, 401, 403, 404, 422, 429, 500, 503):
            error = {"error": {"message": f"words of the upstream, {status}", "type": "t", "odd": [1.50]}}
            model.answers.append(Says(status=status, error=error))
            reply = await chat.posts([*chat.said, {"role": "user", "content": f"Try {status}."}])
            assert (reply.status_code, reply.json()) == (status, error)
        assert len(model.prompts) == 9
        await chat.says("Better?")
        assert await chat.compactions() == []
        assert await chat.transcript() == chat.said
