"""A deployment in which no model may be asked: older tool results are thinned first, then code writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.agent import TOOLS, Call, works
from tests.kit.chat import Chat
from tests.kit.judge import are_sound, is_sound
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

Json = dict[str, Any]
# No request waits for a summary and none is prepared: this is how an operator says "ask nobody".
# The marks stand where the window puts them, so that a prompt of half of it is not touched.
NOBODY = {"compaction.deadline_seconds": 0, "compaction.background": False}
BLOCK = "<palimpsest_summary"
pytestmark = [pytest.mark.spec("E08"), pytest.mark.timeout(60)]


def results(messages: list[Json]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def are_thinned_oldest_first(prompt: Seen, sent: list[Json]) -> None:
    """Some older results are shorter than the client sent them, and from some point on all are whole."""
    pairs = list(zip(results(prompt.messages), results(sent), strict=True))
    thinned = [len(shown) < len(whole) for shown, whole in pairs]
    assert thinned == sorted(thinned, reverse=True)
    assert thinned[0]
    assert not thinned[-1]
    # Nothing else was touched.
    others = [message for message in prompt.messages if message["role"] != "tool"]
    assert others == [message for message in sent if message["role"] != "tool"]


async def is_readable_again(chat: Chat, prompt: Seen, sent: list[Json]) -> None:
    """What a thinned result leaves out is read by the name that the record has for it."""
    shown, whole = results(prompt.messages)[0], results(sent)[0]
    assert len(shown) < len(whole)
    (masks,) = (await chat.compactions())[-1:]
    assert await chat.recalls(masks["masks"][0]["message"]) == whole


async def worked(proxy: Proxy, *, files: int, words: int, stream: bool) -> Chat:
    """An agent has read so many files of so many words each."""

    def found(_: str, function: Json) -> str:
        path = json.loads(function["arguments"])["path"]
        return f"# {path}\n{prose(sum(path.encode()), words)}"

    steps: list[list[Call]] = [
        [(f"call_{at}", "read_file", {"path": f"src/part{at}.py"})] for at in range(files)
    ]
    chat = proxy.chat(system="You are a careful engineer.", stream=stream, extra={"tools": TOOLS})
    await works(chat, proxy.model, "Which modules open a socket?", steps, found)
    return chat


@pytest.mark.parametrize("stream", [True, False])
async def test_near_the_window_older_results_are_thinned_and_nobody_is_asked(
    stream: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=8_000)
    async with proxied(model, tmp_path, NOBODY) as proxy:
        chat = await worked(proxy, files=8, words=700, stream=stream)
        assert await chat.compactions() == []
        assert model.prompts[-1].messages == chat.sent[-1]
        turn = 0
        while not await chat.compactions():
            await chat.says(f"Question {turn}. {prose(turn, 150)}")
            turn += 1
        (masks,) = await chat.compactions()
        assert (masks["kind"], masks["author"], masks["model"]) == ("tool_truncation_only", "none", None)
        assert masks["summary"] == ""
        are_thinned_oldest_first(model.prompts[-1], chat.sent[-1])
        await is_readable_again(chat, model.prompts[-1], chat.sent[-1])
        assert not any(BLOCK in prompt.text for prompt in model.prompts)
        # When thinning will not do any more, code folds, and still nobody is asked.
        while len(await chat.compactions()) == 1:
            await chat.says(f"Question {turn}. {prose(turn, 400)}")
            turn += 1
        fold = (await chat.compactions())[-1]
        assert (fold["kind"], fold["author"], fold["model"]) == ("message_removal", "deterministic", None)
        assert BLOCK in model.prompts[-1].text
        are_sound(model.prompts, chat.sent, 8_000)
        assert model.summaries == []
        assert await chat.transcript() == chat.said


@pytest.mark.parametrize("stream", [True, False])
async def test_the_worker_without_a_summarizer_thins_results_and_writes_no_summary(
    stream: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=8_000)
    overrides = {"policy.name": "worker", "policy.advanced.use_summarizer": False, "policy.tail_messages": 4}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = await worked(proxy, files=30, words=700, stream=stream)
        made = await chat.compactions()
        assert len(made) > 1
        assert {row["kind"] for row in made} == {"tool_truncation_only"}
        assert {row["author"] for row in made} == {"none"}
        assert {row["summary"] for row in made} == {""}
        are_thinned_oldest_first(model.prompts[-1], chat.sent[-1])
        await is_readable_again(chat, model.prompts[-1], chat.sent[-1])
        assert not any(BLOCK in prompt.text for prompt in model.prompts)
        are_sound(model.prompts, chat.sent, 8_000)
        assert model.summaries == []
        assert await chat.transcript() == chat.said


async def test_where_nothing_is_left_to_thin_the_session_goes_on_all_the_same(tmp_path: Path) -> None:
    model = ModelServer(window=4_000)
    overrides = {"policy.name": "worker", "policy.advanced.use_summarizer": False, "policy.tail_messages": 4}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep the log.")
        for turn in range(24):
            await chat.says(f"Entry {turn}. {prose(turn, 300)}")
        made = await chat.compactions()
        assert {row["author"] for row in made} == {"deterministic"}
        assert all("no model may be asked" in row["reason"] for row in made)
        are_sound(model.prompts, chat.sent, 4_000)
        assert model.summaries == []


def refusal(window: int, tokens: int) -> Says:
    message = (
        f"This model's maximum context length is {window} tokens. However, you requested {tokens} tokens."
    )
    return Says(status=400, error={"error": {"message": message, "code": "context_length_exceeded"}})


async def test_a_refusal_for_length_is_answered_by_thinning_and_then_by_code(tmp_path: Path) -> None:
    model = ModelServer(window=100_000)
    async with proxied(model, tmp_path, NOBODY) as proxy:
        chat = await worked(proxy, files=20, words=2_500, stream=True)
        model.answers.append(refusal(50_000, 58_000))
        await chat.says("And which of them close it again?")
        refused, answered = model.prompts[-2:]
        assert refused.messages == chat.sent[-1]
        (masks,) = await chat.compactions()
        assert (masks["kind"], masks["trigger"]) == ("tool_truncation_only", "overflow")
        are_thinned_oldest_first(answered, chat.sent[-1])
        await is_readable_again(chat, answered, chat.sent[-1])
        is_sound(answered, chat.sent[-1], 50_000)
        assert not any(BLOCK in prompt.text for prompt in model.prompts)
        # Of talk alone there is nothing to thin: the next refusal is answered by a fold that code writes.
        talk = proxy.chat(system="You keep the log.", stream=True, extra={"model": "other-model"})
        for turn in range(8):
            await talk.says(f"Entry {turn}. {prose(turn, 500)}")
        model.answers.append(refusal(4_096, 5_000))
        await talk.says("Refused once.")
        (fold,) = await talk.compactions()
        assert (fold["kind"], fold["author"], fold["trigger"]) == (
            "message_removal",
            "deterministic",
            "overflow",
        )
        is_sound(model.prompts[-1], talk.sent[-1], 4_096)
        assert model.summaries == []
        for each in (chat, talk):
            assert await each.transcript() == each.said


async def test_a_compaction_by_hand_asks_nobody_either(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path, NOBODY) as proxy:
        chat = proxy.chat(system="You keep the log.")
        for turn in range(8):
            await chat.says(f"Entry {turn}. {prose(turn, 300)}")
        path = f"/api/sessions/{chat.session}/compact"
        reply = await proxy.http.post(path, json={"focus": "the harbour"}, headers=chat.headers)
        assert reply.json()["compacted"] is True
        (fold,) = await chat.compactions()
        assert fold["author"] == "deterministic"
        assert model.summaries == []
