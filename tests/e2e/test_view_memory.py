"""The memory block of a session in what the model is shown: from the next compaction on, as it was then."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.presets import PRESETS
from palimpsest.core.summary.memory_block import INSTRUCTIONS, MEMORY_TAG

from tests.kit.chat import Chat
from tests.kit.journal import checkpoints, memories
from tests.kit.judge import are_sound, rewritten
from tests.kit.model import ModelServer, Says, Seen, plain_summary, tokens_of
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
FOLDED = "The boat is called Heron, and whoever sails her signs the log; the rest of it is settled."
pytestmark = pytest.mark.timeout(120)


def told(seen: Seen) -> Says:
    """Folds memory into one sentence, and summarises."""
    is_memory = seen.messages[0].get("content") == INSTRUCTIONS
    return Says({"role": "assistant", "content": FOLDED if is_memory else plain_summary(seen)})


def entry(number: int) -> str:
    """A note of some length, so that a fold of ten of them frees something."""
    return f"Note {number} of the owner: berth {number} belongs to the ferry on every day but the seventh."


async def add(proxy: Proxy, chat: Chat, text: str) -> Json:
    path = f"/api/sessions/{chat.session}/memory-block"
    reply = await proxy.http.post(path, headers=chat.headers, json={"text": text})
    assert reply.status_code == 201, reply.text
    value: Json = reply.json()
    return value


async def until_folded(chat: Chat, words: int = 330) -> Json:
    """The next compaction that folds messages."""
    known = len(await chat.compactions())
    while len(made := await chat.compactions()) == known:
        number = len(chat.sent)
        await chat.says(f"Entry {number}. {prose(number, words)}")
        assert number < 90
    assert made[-1]["kind"] == "message_removal"
    return made[-1]


def memory_in(prompt: Seen) -> list[str]:
    """The memory blocks that the model was shown."""
    contents = [str(message.get("content")) for message in prompt.messages]
    return [text for text in contents if f"<{MEMORY_TAG}>" in text]


@pytest.mark.spec("B16")
async def test_summary_and_entries_stand_in_the_prompt_after_the_next_compaction(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the log.", session="log")
        await chat.says("We begin.")
        for number in range(14):
            done = await add(proxy, chat, entry(number))
            assert (done["folded"], done["author"]) == (0, "none")
        assert model.summaries == []
        done = await add(proxy, chat, entry(14))
        assert (done["folded"], done["author"], len(done["entries"])) == (10, "model", 5)
        assert len(model.summaries) == 1
        await chat.says("And on.")
        # P1: nothing is added before the first compaction.
        assert model.prompts[-1].messages == chat.sent[-1]
        record = await until_folded(chat)
        (block,) = memory_in(model.prompts[-1])
        assert FOLDED in block
        assert [entry(number) in block for number in range(15)] == [False] * 10 + [True] * 5
        assert block == record["memory"]
        # Behind the summary, in the user's role, and nowhere else.
        at = next(i for i, m in enumerate(model.prompts[-1].messages) if m["content"] == block)
        before = model.prompts[-1].messages[at - 1]
        assert before["content"] == record["summary"]
        assert model.prompts[-1].messages[at]["role"] == "user"
        are_sound(model.prompts, chat.sent, WINDOW)
        assert await chat.transcript() == chat.said
        assert rewritten(model.prompts) == len(await chat.compactions())


@pytest.mark.spec("B16", "P10")
async def test_a_new_entry_changes_nothing_until_the_next_compaction(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the log.", session="log")
        await chat.says("We begin.")
        await add(proxy, chat, "The harbour master is called Okonkwo.")
        await until_folded(chat)
        await add(proxy, chat, "The ferry is called Bluebell.")
        before = model.prompts[-1]
        await chat.says("Small talk.")
        assert model.prompts[-1].extends(before)
        assert "Bluebell" not in model.prompts[-1].text
        last = model.prompts[-1]
    # The record holds the text: a restart gives the same bytes, whatever the memory says by now.
    async with proxied(model, tmp_path) as proxy:
        again = proxy.chat(system="You keep the log.", session="log")
        again.said, again.sent, again.replies = chat.said, chat.sent, chat.replies
        await again.says("After the night.")
        assert model.prompts[-1].extends(last)
        record = await until_folded(again)
        assert "Okonkwo" in record["memory"]
        assert "Bluebell" in record["memory"]
        assert memory_in(model.prompts[-1]) == [record["memory"]]
        # The memory is no part of what is summarised: it stands once.
        assert model.prompts[-1].text.count("Okonkwo") == 1
        are_sound(model.prompts, again.sent, WINDOW)
        assert rewritten(model.prompts) == len(await again.compactions())


@pytest.mark.spec("B16")
async def test_what_comes_between_a_summary_and_its_use_takes_effect_with_it(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="log")
        while not model.summaries:
            await chat.says(f"Entry {len(chat.sent)}. {prose(len(chat.sent), 330)}")
        assert await chat.compactions() == []
        await add(proxy, chat, "The ferry is called Bluebell.")
        record = await until_folded(chat)
        assert record["author"] == "model"
        assert "Bluebell" in record["memory"]
        # What was prepared before is counted as it goes out.
        view = await chat.view()
        parts = sum(part["tokens"] for part in view["parts"] if part["kind"] != "preamble")
        assert view["tokens"] == view["budget"]["fixed_tokens"] + parts


@pytest.mark.spec("B16")
@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_it_stands_once_behind_the_summary_of_every_preset(preset: str, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    overrides = {"policy.name": preset, "policy.advanced.trigger_reserve_tokens": 0}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep the log.", session="log")
        await chat.says("We begin.")
        await add(proxy, chat, "The harbour master is called Okonkwo.")
        for _ in range(3):
            record = await until_folded(chat, 250)
            assert memory_in(model.prompts[-1]) == [record["memory"]]
            assert "Okonkwo" not in record["summary"]
        path = f"/api/sessions/{chat.session}/view?explain=1"
        view = (await proxy.http.get(path, headers=chat.headers)).json()
        kinds = [part["kind"] for part in view["parts"]]
        (memory,) = [part for part in view["parts"] if part["kind"] == "memory"]
        assert kinds[kinds.index("memory") - 1] == "summary"
        assert "memory" in memory["reason"]
        assert memory["tokens"] > 0
        assert memory["cost_per_turn"]["cached"] > 0
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("B16", "A46")
async def test_where_roles_alternate_it_is_one_message_with_the_summary(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    overrides = {"policy.strict_alternation": True, "policy.keep_original_task": False}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(session="log")
        await chat.says("We begin.")
        await add(proxy, chat, "The harbour master is called Okonkwo.")
        record = await until_folded(chat)
        prompt = model.prompts[-1]
        assert prompt.messages[0]["content"].startswith(f"{record['summary']}\n\n{record['memory']}")
        roles = [message["role"] for message in prompt.messages]
        assert all(one != two for one, two in pairwise(roles))
        assert prompt.faults == ()


@pytest.mark.spec("B16")
async def test_undoing_a_compaction_brings_back_the_memory_of_the_one_before(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="log")
        await chat.says("We begin.")
        await add(proxy, chat, "The harbour master is called Okonkwo.")
        first = await until_folded(chat)
        await add(proxy, chat, "The ferry is called Bluebell.")
        second = await until_folded(chat)
        assert "Bluebell" in second["memory"]
        path = f"/api/sessions/{chat.session}/compactions/{second['id']}/undo"
        assert (await proxy.http.post(path, headers=chat.headers)).status_code == 200
        shown = [part["message"]["content"] for part in (await chat.view())["parts"]]
        assert first["memory"] in shown
        assert second["memory"] not in shown
        assert len(await memories(proxy.http, chat, "entry")) == 2


@pytest.mark.spec("B16", "P9")
async def test_it_gives_way_before_anything_is_refused(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="log")
        await chat.says("We begin.")
        await add(proxy, chat, "Long. " * 2_500)
        for turn in range(3):
            await chat.says(f"Entry {turn}. {prose(turn, 330)}")
        # The newest message leaves a summary of the smallest size its room, and nothing beside it.
        asked = prose(99, 6_400)
        text = asked[: len(asked) * (WINDOW - 720) // tokens_of([{"role": "user", "content": asked}])]
        await chat.says(text)
        record = (await chat.compactions())[-1]
        assert record["memory"] == ""
        assert model.prompts[-1].messages[-1]["content"] == text
        are_sound(model.prompts, chat.sent, WINDOW)


async def goes_on(proxy: Proxy, chat: Chat, exchanges: int) -> Json:
    """The session's memories, once those of so many exchanges are there."""
    while len(chat.sent) < exchanges:
        berth = 100 + len(chat.sent)
        await chat.says(f"We decided to give berth {berth} to the ferry named F{berth}.")
    async with asyncio.timeout(20):
        while True:
            kept = {kind: await memories(proxy.http, chat, kind) for kind in ("entry", "block")}
            if len(kept["entry"]) == exchanges // 12 - 10 * (exchanges >= 15 * 12):
                return kept


@pytest.mark.spec("B16")
async def test_entries_come_by_themselves_as_the_conversation_goes_on(tmp_path: Path) -> None:
    folds: list[Seen] = []

    def summary(seen: Seen) -> Says:
        if seen.messages[0].get("content") == INSTRUCTIONS:
            folds.append(seen)
        return told(seen)

    model = ModelServer(window=WINDOW, summary=summary)
    overrides = {"policy.name": "rolling", "policy.advanced.trigger_reserve_tokens": 0}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep the log.", session="log")

        assert (await goes_on(proxy, chat, 11))["entry"] == []
        (first,) = (await goes_on(proxy, chat, 12))["entry"]
        assert "Decided: " in first["text"]
        assert "berth 111" in first["text"]
        # With the fifteenth the ten oldest become a summary, and five are left.
        assert len((await goes_on(proxy, chat, 14 * 12))["entry"]) == 14
        assert folds == []
        kept = await goes_on(proxy, chat, 15 * 12)
        assert (len(kept["entry"]), len(kept["block"]), len(folds)) == (5, 1, 1)
        assert kept["block"][0]["text"] == FOLDED
        while FOLDED not in model.prompts[-1].text:
            await chat.says(f"Entry {len(chat.sent)}. {prose(len(chat.sent), 300)}")
            assert len(chat.sent) < 250
        (block,) = memory_in(model.prompts[-1])
        assert "berth 279" in block
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("B16")
async def test_elsewhere_they_come_where_it_is_set(tmp_path: Path) -> None:
    for preset, counts in (("auto", 0), ("handoff", 1)):
        overrides = {"policy.name": preset, **({"policy.advanced.memory_entries": True} if counts else {})}
        folder = tmp_path / preset
        folder.mkdir()
        async with proxied(ModelServer(window=100_000), folder, overrides) as proxy:
            chat = proxy.chat(session="log")
            for berth in range(24):
                await chat.says(f"We decided to give berth {berth} to the ferry named F{berth}.")
            # The second checkpoint is made behind the first one's entry.
            made: list[Json] = []
            async with asyncio.timeout(20):
                while len(made) < 2:
                    made = await checkpoints(proxy.http, chat, "periodic")
            entries = await memories(proxy.http, chat, "entry")
            assert len(entries) >= counts
            assert bool(entries) is bool(counts)
