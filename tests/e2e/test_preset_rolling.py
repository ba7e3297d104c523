"""`rolling`: summaries written beside the turns, chunk by chunk, with a state, and what waits for them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.summary.asking import SETTLING
from palimpsest.core.summary.memory_block import MEMORY_TAG

from tests.kit.chat import Chat
from tests.kit.journal import read
from tests.kit.judge import are_sound, is_sound, rewritten
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, fronting, proxied
from tests.kit.serving import served
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
ROLLING: Json = {"policy.name": "rolling", "policy.advanced.trigger_reserve_tokens": 0}
pytestmark = pytest.mark.timeout(60)


def told(text: str, changes: Json | None = None) -> Says:
    """A summary in the style's own form, with the changes of the state behind it."""
    body = f"## KEY FACTS\n{text}\n## CONVERSATION FLOW\n- It went on.\n## OPEN THREADS\n- The rest of it."
    return Says({"role": "assistant", "content": f"{body}\n\n```json\n{json.dumps(changes or {})}\n```"})


class Writer:
    """Numbers its summaries; with a gate it answers when it is let go. `asked` is set by every question."""

    def __init__(self, *, held: bool = False) -> None:
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()
        self.answered = 0
        if not held:
            self.let_go.set()

    async def __call__(self, seen: Seen) -> Says:
        self.asked.set()
        await self.let_go.wait()
        self.answered += 1
        decision = {"text": f"Decision {self.answered} stands."}
        return told(f"- Summary number {self.answered} of the harbour.", {"decisions": [decision]})


def part(seen: Seen, tag: str) -> str:
    """What a question says between these tags."""
    found = re.search(rf"<{tag}>[^\n]*\n(.*?)\n</{tag}>", seen.messages[-1]["content"], re.DOTALL)
    assert found
    return found[1]


async def is_compacting(proxy: Proxy, chat: Chat) -> bool:
    """What the session's status says."""
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/status", headers=chat.headers)
    compacting: bool = reply.json()["compacting"]
    return compacting


async def grown(chat: Chat, tokens: int) -> None:
    """The conversation stands at or above so many tokens, by its newest question, not by an answer."""
    while not chat.replies or int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < tokens:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 390)}")


@pytest.mark.spec("B01", "B02")
async def test_a_model_nobody_knows_has_two_hundred_thousand_tokens(tmp_path: Path) -> None:
    model = ModelServer(window=1_000_000, models=False, summary=Writer())
    async with proxied(model, tmp_path, {"policy.name": "rolling"}) as proxy:
        chat = proxy.chat()
        # 111,000 tokens, beyond what the others assume, then 142,000.
        chat.said += [
            {"role": role, "content": ("harbour lantern " * 1_850)[:29_500]}
            for role in ["user", "assistant"] * 15
        ]
        await chat.says("Go on.")
        status = await read(proxy.http, chat, f"sessions/{chat.session}/status")
        assert status["window_tokens"] == 200_000
        assert not await is_compacting(proxy, chat)
        assert model.summaries == []
        await chat.says("harbour lantern " * 15_500)
        while not await chat.compactions():
            await chat.says("And on.")
        assert model.summaries


@pytest.mark.spec("B01")
async def test_what_is_assumed_of_a_model_can_be_set(tmp_path: Path) -> None:
    model = ModelServer(window=1_000_000, models=False)
    overrides = {"policy.name": "rolling", "window.default_window_tokens": 50_000}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat()
        await chat.says("Hello.")
        status = await read(proxy.http, chat, f"sessions/{chat.session}/status")
        assert status["window_tokens"] == 50_000


@pytest.mark.spec("B03", "B05", "B07")
async def test_a_slow_summarizer_adds_nothing_to_a_turn_and_serves_the_next(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_600)
        # The turn that reached the mark has its answer, although nobody has written anything yet.
        await writer.asked.wait()
        await chat.says("Small talk.")
        assert writer.answered == 0
        assert model.prompts[-1].messages == chat.sent[-1]
        before = list(chat.said)
        writer.let_go.set()
        made: list[Json] = []
        while not made:
            await chat.says("More of it.")
            made = await chat.compactions()
        (compaction,) = made
        assert (compaction["author"], compaction["trigger"]) == ("model", "proactive")
        assert "Summary number 1 of the harbour." in compaction["summary"]
        assert "Decision 1 stands." in compaction["summary"]
        # The six newest messages of the turn that asked, and all that came since, byte for byte (B05).
        asked_at = len(before) - 3
        tail = [*before[asked_at - 6 :], *chat.said[len(before) :]]
        assert len(model.summaries) == 1
        shown = [message for message in model.prompts[-1].messages if MEMORY_TAG not in str(message)]
        assert shown[2:] == tail[:-1]
        assert model.prompts[-1].messages[0] == before[0]
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said


@pytest.mark.spec("B07", "B09", "B13")
async def test_the_second_question_holds_the_first_summary_and_the_state(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=Writer())
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or len(await chat.compactions()) < 3:
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 400)}")
            assert len(chat.sent) < 60
        asked = model.summaries[:3]
        assert part(asked[0], "previous-summary") == "(none)"
        for number, seen in enumerate(asked[1:], 1):
            assert f"Summary number {number} of the harbour." in part(seen, "previous-summary")
            assert f"Decision {number} stands." in part(seen, "existing-workstream-state")
        # Each note is asked about once.
        news = [part(seen, "new-messages") for seen in asked]
        notes = [set(re.findall(r"Note (\d+)\.", text)) for text in news]
        assert all(notes)
        assert not any(one & two for at, one in enumerate(notes) for two in notes[at + 1 :])
        last = (await chat.compactions())[-1]["summary"]
        assert "Summary number 3 of the harbour." in last
        assert all(f"Decision {number} stands." in last for number in (1, 2, 3))


@pytest.mark.spec("B11")
async def test_three_hundred_thousand_characters_are_three_calls(tmp_path: Path) -> None:
    model = ModelServer(window=128_000, summary=Writer())
    overrides = ROLLING | {"policy.trigger_tokens": 40_000}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat()
        for number in range(15):
            chat.said += [
                {"role": "user", "content": long_text(f"Question {number}.")},
                {"role": "assistant", "content": long_text(f"Reply {number}.")},
            ]
        chat.said += [{"role": role, "content": "Yes."} for role in ["user", "assistant"] * 2]
        await chat.says("Go on.")
        while not await chat.compactions():
            await chat.says("And on.")
        asked = model.summaries
        assert len(asked) == 3
        # A piece is what a question holds beside the record so far; none is cut, and none is left out.
        pieces = [re.findall(r"(Question|Reply) (\d+)\.", part(seen, "new-messages")) for seen in asked]
        assert [len(piece) for piece in pieces] == [11, 11, 8]
        assert len({said for piece in pieces for said in piece}) == 30
        for number, seen in enumerate(asked[1:], 1):
            assert f"Summary number {number} of the harbour." in part(seen, "previous-summary")
        (compaction,) = await chat.compactions()
        assert "Summary number 3 of the harbour." in compaction["summary"]
        assert await chat.transcript() == chat.said


def long_text(head: str) -> str:
    """Ten thousand characters."""
    return (head + " " + "harbour lantern " * 700)[:9_999] + "."


@pytest.mark.spec("B12")
async def test_a_summary_that_has_grown_too_long_is_itself_summarised(tmp_path: Path) -> None:
    settled: list[str] = []

    def summary(seen: Seen) -> Says:
        question = str(seen.messages[-1]["content"])
        if question.startswith(SETTLING):
            settled.append(question.partition("<newest-entry-and-state>")[0])
            older = "## Record\n### 1-2. Until then\n- All of it is about the harbour and its lantern."
            return Says({"role": "assistant", "content": older})
        return told(f"- A long story. {prose(1_000 + len(model.summaries), 260)}")

    model = ModelServer(window=WINDOW, summary=summary)
    async with proxied(model, tmp_path, ROLLING | {"policy.advanced.rollup_tokens": 200}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or len(made := await chat.compactions()) < 2:
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 400)}")
        # The older part alone: the newest entry stays as it is.
        assert "A long story." in settled[0]
        assert made[0]["summary"].count("A long story.") == 1
        assert "about the harbour and its lantern" in made[1]["summary"]
        assert made[1]["summary"].count("A long story.") == 1


@pytest.mark.spec("B13", "F17")
async def test_a_crash_before_the_commit_changes_nothing(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with served(model, lifespan="off") as upstream:
        url = f"{upstream}/v1"
        async with fronting(url, tmp_path, ROLLING | {"server.shutdown_seconds": 0}) as first:
            chat = first.chat(system="You keep notes.")
            await grown(chat, 5_600)
            await writer.asked.wait()
            said, session = list(chat.said), chat.session
            assert await chat.compactions() == []
        # It went down with the summary half written. The next one knows nothing of it and asks anew.
        writer.let_go.set()
        async with fronting(url, tmp_path, ROLLING) as second:
            chat = second.chat()
            chat.said = said
            await chat.says("Still there?")
            assert chat.session == session
            assert model.prompts[-1].messages == chat.sent[-1]
            assert await chat.compactions() == []
            while not (made := await chat.compactions()):
                await chat.says("And on.")
            # Summary, watermark and state came together.
            (compaction,) = made
            assert compaction["watermark"] in [row["id"] for row in await chat.rows()]
            assert "Decision" in compaction["summary"]
            assert await chat.transcript() == chat.said


@pytest.mark.spec("B15")
@pytest.mark.parametrize("role", ["user", "system"])
async def test_the_summary_stands_first_in_the_role_that_is_set(role: str, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=Writer())
    async with proxied(
        model,
        tmp_path,
        ROLLING | {"policy.advanced.summary_role": role, "policy.advanced.memory_entries": False},
    ) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or len(await chat.compactions()) < 2:
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 400)}")
            # Without a summary and its watermark nothing is said for the client (B15).
            if not await chat.compactions():
                assert model.prompts[-1].messages == chat.sent[-1]
        await chat.says("And on.")
        own, summary, *tail = model.prompts[-1].messages
        assert own == {"role": "system", "content": "You keep notes."}
        assert summary["role"] == role
        assert "# Compacted context summary" in summary["content"]
        assert tail == chat.sent[-1][-len(tail) :]
        are_sound(model.prompts, chat.sent, WINDOW)
        # Between two compactions a prompt only grows (P10).
        assert rewritten(model.prompts) == len(await chat.compactions())
        assert await chat.transcript() == chat.said


@pytest.mark.spec("B15")
async def test_a_summary_told_as_system_never_begins_a_prompt_with_the_assistants_words(
    tmp_path: Path,
) -> None:
    model = ModelServer(window=WINDOW, summary=Writer())
    overrides = ROLLING | {
        "policy.advanced.summary_role": "system",
        "policy.tail_messages": 5,
        "policy.advanced.memory_entries": False,
    }
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        while not chat.replies or not await chat.compactions():
            await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 400)}")
        await chat.says("And on.")
        _, summary, first, *_ = model.prompts[-1].messages
        assert (summary["role"], first["role"]) in (("user", "assistant"), ("system", "user"))
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("B18")
async def test_while_it_runs_what_fits_goes_out_and_what_does_not_waits(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_600)
        await writer.asked.wait()
        await chat.says("This one fits.")
        assert await is_compacting(proxy, chat)
        answered = len(model.prompts)
        large = [*chat.said, {"role": "user", "content": f"This one does not. {prose(99, 1_700)}"}]
        waiting = asyncio.create_task(chat.posts(large))
        other = proxy.chat(session="another")
        await other.says("Elsewhere nobody waits.")
        assert not waiting.done()
        writer.let_go.set()
        assert (await waiting).status_code == 200
        assert len(model.prompts) == answered + 2
        is_sound(model.prompts[-1], large, WINDOW)
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        assert len(model.summaries) == 1
        assert not await is_compacting(proxy, chat)


@pytest.mark.spec("B18", "F32")
async def test_what_does_not_fit_falls_back_when_it_has_waited_long_enough(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"compaction.deadline_seconds": 0.2}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_600)
        await writer.asked.wait()
        await chat.says(f"This one does not fit. {prose(99, 1_900)}")
        assert writer.answered == 0
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "deterministic"
        are_sound(model.prompts, chat.sent, WINDOW)
        writer.let_go.set()


@pytest.mark.spec("B18")
async def test_with_waits_a_turn_that_fits_waits_as_well(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    async with proxied(model, tmp_path, ROLLING | {"policy.wait_for_summary": True}) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_600)
        await writer.asked.wait()
        answered = len(model.prompts)
        asking = asyncio.create_task(chat.says("This one fits."))
        other = proxy.chat(session="another")
        await other.says("Elsewhere nobody waits.")
        assert not asking.done()
        assert len(model.prompts) == answered + 1
        writer.let_go.set()
        await asking
        assert "Summary number 1 of the harbour." in model.prompts[-1].text
        is_sound(model.prompts[-1], chat.sent[-1], WINDOW)


@pytest.mark.spec("B18")
async def test_with_waits_the_wait_is_bounded(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=WINDOW, summary=writer)
    overrides = ROLLING | {"policy.wait_for_summary": True, "compaction.deadline_seconds": 0.2}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat, 5_600)
        await writer.asked.wait()
        await chat.says("This one fits.")
        assert writer.answered == 0
        are_sound(model.prompts, chat.sent, WINDOW)
        writer.let_go.set()
