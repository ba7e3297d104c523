"""When a summary is begun, what it is asked behind, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.journal import events
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import proxied
from tests.kit.summaries import ROLLING, WINDOW, Writer, grown, quiet
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("B03")
async def test_an_answer_that_crosses_the_mark_begins_the_summary_itself(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 4_600)
        model.says(f"A long story. {prose(77, 1_000)}")
        await chat.says("Tell me a story.")
        # Below the mark as it was sent; nobody says anything more.
        assert int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < 5_600
        await writer.is_asked()
        assert model.prompts[-1].messages == chat.sent[-1]
        writer.let_go.set()
        await quiet(proxy, chat)
        assert await chat.compactions() == []
        await chat.says("And the next turn uses it.")
        (compaction,) = await chat.compactions()
        assert (compaction["author"], len(model.summaries)) == ("model", 1)
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("B03")
async def test_a_question_never_rides_behind_calls_that_wait_for_their_results(tmp_path: Path) -> None:
    writer = Writer()
    # A question with its answer fits behind the prompt: they take 3,400 tokens.
    window = 64_000
    model = ModelServer(window=window, summary=writer)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 52_000)
        before = len(chat.said)
        model.calls(("call-1", "write_file", {"text": prose(77, 2_800)}))
        await chat.says("Write it down.")
        asked = await writer.is_asked()
        assert asked.faults == ()
        # The conversation up to the question whose answer calls the tool, then ours.
        assert asked.messages[:-1] == chat.said[: before + 1]
        await quiet(proxy, chat)
        await chat.sends({"role": "tool", "tool_call_id": "call-1", "content": "done"})
        are_sound(model.prompts, chat.sent, window)


@pytest.mark.spec("E11")
async def test_the_event_says_how_many_calls_a_summary_took_and_in_which_run(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=Writer())
    async with proxied(model, tmp_path, ROLLING | {"policy.advanced.summary_input_chars": 8_000}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or not await chat.compactions():
            await grown(chat, 5_600)
            await quiet(proxy, chat)
            await chat.says("And on.")
        (entry,) = await events(proxy.http, chat, ["context_summarized"])
        assert entry["payload"]["passes"] == len(model.summaries) > 1
        assert len(entry["payload"]["summarizerRunId"]) == len(entry["payload"]["compactionId"])


@pytest.mark.spec("A27", "A44")
async def test_a_huge_summary_is_cut_below_the_ceiling_and_an_event_says_so(tmp_path: Path) -> None:
    def huge(seen: Seen) -> Says:
        return Says({"role": "assistant", "content": f"## Entry\n### All of it\n- {prose(55, 3_800)}"})

    model = ModelServer(window=WINDOW, summary=huge)
    overrides = {"compaction.background": False, "summarizer.window_tokens": 100_000}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 6_000)
        await chat.says(f"This one does not fit. {prose(99, 1_900)}")
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        told = await events(proxy.http, chat)
        types = [event["type"] for event in told]
        place = types.index("overflow_guard")
        assert types[place - 1] == "context_summarized"
        assert types[place + 1] == "pinned_insert"
        guard = told[place]["payload"]
        assert guard["compactionId"] == compaction["id"]
        assert guard["tokensAfter"] < guard["tokensBefore"]
        assert compaction["tokens_after"] <= guard["ceilingTokens"] <= 0.95 * WINDOW
        assert compaction["summary"].startswith("<palimpsest_summary>")
        assert compaction["summary"].endswith("</palimpsest_summary>")
        are_sound(model.prompts, chat.sent, WINDOW)
