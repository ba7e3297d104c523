"""A second look at a summary that is written ahead: better where it is acceptable, never worse (idea 13)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.self_check import QUESTION

from tests.kit.chat import Chat
from tests.kit.journal import events, read
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied
from tests.kit.summaries import ROLLING, WINDOW, grown, quiet
from tests.kit.words import prose

Json = dict[str, Any]
CHECKED = ROLLING | {"policy.advanced.self_check": True}
RIDING: Json = {"policy.advanced.self_check": True, "policy.objective": "fidelity"}
pytestmark = pytest.mark.timeout(60)


def record(said: str) -> str:
    """A summary in the form of `rolling` that says so."""
    return f"## KEY FACTS\n- {said}\n## CONVERSATION FLOW\n- It went on.\n## OPEN THREADS\n- The rest of it."


class Careful:
    """Writes a first record, then answers the second look with `second`, when it is let go."""

    def __init__(self, second: str) -> None:
        self.second = second
        self.checked = asyncio.Event()
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def __call__(self, seen: Seen) -> Says:
        is_check = seen.messages[-1]["content"] == QUESTION
        if not is_check:
            return Says({"role": "assistant", "content": record("The harbour has a lantern, as was said.")})
        self.checked.set()
        await self.let_go.wait()
        return Says({"role": "assistant", "content": self.second})


async def used(proxy: Proxy, chat: Chat) -> Json:
    """The compaction by the summary that was written ahead."""
    await grown(chat)
    await quiet(proxy, chat)
    await chat.says("And on.")
    (compaction,) = await chat.compactions()
    assert compaction["author"] == "model"
    return compaction


async def passes(proxy: Proxy, chat: Chat) -> int:
    (entry,) = await events(proxy.http, chat, ["context_summarized"])
    return int(entry["payload"]["passes"])


async def test_the_second_look_sees_material_and_record_and_its_correction_is_used(tmp_path: Path) -> None:
    better = "The harbour has two lanterns, a red one and a green one."
    model = ModelServer(window=WINDOW, summary=Careful(record(better)))
    async with proxied(model, tmp_path, CHECKED) as proxy:
        chat = proxy.chat(system="You keep notes.")
        compaction = await used(proxy, chat)
        assert better in compaction["summary"]
        assert "as was said" not in compaction["summary"]
        asked, checked = model.summaries
        assert checked.messages[:-2] == asked.messages
        assert "as was said" in checked.messages[-2]["content"]
        assert await passes(proxy, chat) == 2
        spent = (await read(proxy.http, chat, f"sessions/{chat.session}/status"))["spending"]
        assert spent["calls"] == 2
        assert spent["prompt_tokens"] == asked.tokens + checked.tokens


@pytest.mark.parametrize(
    ("second", "passed"),
    [("UNCHANGED.", 2), ("", 1), ("Error: could not check.", 1), (prose(7, 9_000), 1)],
)
async def test_what_is_no_better_record_leaves_the_first(second: str, passed: int, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=Careful(second))
    async with proxied(model, tmp_path, CHECKED) as proxy:
        chat = proxy.chat(system="You keep notes.")
        compaction = await used(proxy, chat)
        assert "as was said" in compaction["summary"]
        assert len(model.summaries) == 2
        assert await passes(proxy, chat) == passed


async def test_a_request_that_cannot_go_on_takes_the_first_record_and_waits_for_no_second_look(
    tmp_path: Path,
) -> None:
    careful = Careful(record("Too late."))
    careful.let_go.clear()
    model = ModelServer(window=WINDOW, summary=careful)
    async with proxied(model, tmp_path, CHECKED) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        await careful.checked.wait()
        await chat.says(f"This one does not fit. {prose(99, 1_800)}")
        (compaction,) = await chat.compactions()
        assert "as was said" in compaction["summary"]
        are_sound(model.prompts, chat.sent, WINDOW)
        careful.let_go.set()


async def test_where_a_request_waits_from_the_beginning_nobody_looks_twice(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=Careful(record("Too late.")))
    async with proxied(model, tmp_path, CHECKED | {"compaction.background": False}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_100)
        await chat.says(f"This one is above the mark. {prose(99, 600)}")
        (compaction,) = await chat.compactions()
        assert "as was said" in compaction["summary"]
        assert len(model.summaries) == 1


async def test_behind_the_cached_prompt_the_first_question_stays_the_first(tmp_path: Path) -> None:
    better = "\nThe second look found the lantern ticket."

    def reuses_cache(seen: Seen) -> Says:
        if seen.messages[-1]["content"] == QUESTION:
            return Says({"role": "assistant", "content": seen.messages[-2]["content"] + better})
        return Says({"role": "assistant", "content": plain_summary(seen)})

    model = ModelServer(window=WINDOW, summary=reuses_cache)
    async with proxied(model, tmp_path, RIDING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or not await chat.compactions():
            await grown(chat, len(chat.sent))
            await quiet(proxy, chat)
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 150)}")
        asked, checked = model.summaries[:2]
        assert asked.messages[:2] == chat.said[:2]
        assert checked.extends(asked)
        assert checked.faults == ()
        assert "lantern ticket" in (await chat.compactions())[0]["summary"]
