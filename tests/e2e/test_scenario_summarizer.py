"""Scenario 7: every way in which a summarizer can fail, and clients that do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.judge import are_sound, is_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.summaries import Held
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
# Nothing is prepared in advance, so that the turn at the trigger is the one that asks.
# One summary is one call.
IN_TURN = {"compaction.background": False, "summarizer.window_tokens": 100_000}
pytestmark = pytest.mark.timeout(60)
# A word that stands in every failure, and nowhere else: none of it may reach a view.
MARK = "zanzibar"


def _text(text: str, finish: str = "stop") -> Says:
    return Says({"role": "assistant", "content": text}, finish=finish)


def _calling(seen: Seen) -> Says:
    call = {"id": "c1", "type": "function", "function": {"name": MARK, "arguments": "{}"}}
    return Says({"role": "assistant", "content": None, "tool_calls": [call]}, finish="tool_calls")


Failure = Callable[[Seen], Says]
NO_ANSWER: list[Failure] = [
    lambda _: Says(status=500, error={"error": {"message": f"{MARK} broke", "type": "server_error"}}),
    lambda _: Says(status=429, error={"error": {"message": f"{MARK} rate limit", "type": "requests"}}),
    lambda _: Says(status=401, error={"error": {"message": f"{MARK} key", "type": "auth"}}),
    lambda _: _text(""),
    # Cut by its length before anything was whole; what is whole is used (test_summary_asking).
    lambda _: _text(
        f"## 1. Primary request and intent\nThe {MARK} is to be moved behind the", finish="length"
    ),
]
NO_SUMMARY: list[Failure] = [
    lambda seen: _text(f"{MARK} " + "\n".join(str(message["content"]) for message in seen.messages)),
    _calling,
    lambda _: _text(f'<tool_call>{{"name": "{MARK}", "arguments": {{}}}}</tool_call>' * 3),
    lambda seen: _text(f"{plain_summary(seen)}\n<think>{MARK}, let me see</think>"),
    lambda _: _text(f"Error: the {MARK} could not summarize this conversation, try later."),
    lambda _: _text(f"{MARK} {prose(7, 9_000)}"),
]


async def grown(chat: Chat, topic: int = 0) -> None:
    """The conversation stands just below the trigger, with one more turn to come before it."""
    while chat.replies == [] or int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < 6_300:
        await chat.says(f"Topic {topic}, note {len(chat.replies)}. {prose(len(chat.replies), 500)}")


@pytest.mark.spec("S7", "A45", "F09", "F11", "F12", "F17", "P8")
@pytest.mark.parametrize(("failures", "stream"), [(NO_ANSWER, False), (NO_SUMMARY, True)])
async def test_a_failed_summary_costs_neither_an_answer_nor_history(
    failures: list[Failure], stream: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, IN_TURN | {"policy.advanced.breaker_failures": 100}) as proxy:
        for topic, failure in enumerate(failures):
            model.summary = failure
            model.seen.clear()
            chat = proxy.chat(system="You keep notes.", stream=stream)
            await grown(chat, topic)
            for turn in range(3):
                await chat.says(f"Last {turn}. {prose(50 + turn, 500)}")
            are_sound(model.prompts, chat.sent, WINDOW)
            assert 1 <= len(model.summaries) <= 2
            assert not any(MARK in prompt.text for prompt in model.prompts)
            (compaction,) = await chat.compactions()
            assert compaction["author"] == "deterministic"
            assert compaction["tokens_after"] < compaction["tokens_before"]
            assert await chat.transcript() == chat.said


@pytest.mark.spec("S7", "F32", "A45", "W18")
@pytest.mark.parametrize("background", [False, True])
async def test_a_hanging_summarizer_is_waited_for_no_longer_than_the_deadline(
    background: bool, tmp_path: Path
) -> None:
    summarizer = Held(lambda seen: _text(plain_summary(seen)))
    model = ModelServer(window=WINDOW, summary=summarizer)
    once = {"compaction.deadline_seconds": 1.0}
    async with proxied(model, tmp_path, IN_TURN | once | {"compaction.background": background}) as proxy:
        chat = proxy.chat(system="You keep notes.", stream=background)
        await grown(chat)
        for turn in range(4):
            await chat.says(f"Last {turn}. {prose(50 + turn, 500)}")
        # Every turn has been answered while the summarizer still hangs.
        assert summarizer.asked.is_set()
        are_sound(model.prompts, chat.sent, WINDOW)
        # In the background the record that code wrote is due to be written by the model.
        assert len(model.summaries) == 1 + background
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "deterministic"
        summarizer.let_go.set()
        assert await chat.transcript() == chat.said


@pytest.mark.spec("S7", "F16")
async def test_a_client_that_gives_up_and_retries_finds_the_summary_done(tmp_path: Path) -> None:
    summarizer = Held(lambda seen: _text(plain_summary(seen)))
    model = ModelServer(window=WINDOW, summary=summarizer)
    async with proxied(model, tmp_path, IN_TURN) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await grown(chat)
        answered = len(model.prompts)
        question = [*chat.said, {"role": "user", "content": f"The question. {prose(60, 900)}"}]
        body = {"model": "test-model", "messages": question}
        for retry in range(4):
            with pytest.raises(httpx.ReadTimeout):
                await proxy.http.post(
                    "/v1/chat/completions",
                    json=body,
                    headers=chat.headers | {"x-stainless-retry-count": str(retry)},
                    timeout=httpx.Timeout(10, read=1.0),
                )
        assert summarizer.asked.is_set()
        summarizer.let_go.set()
        await chat.sends(question[-1])
        assert len(model.summaries) == 1
        assert len(model.prompts) == answered + 1
        is_sound(model.prompts[-1], question, WINDOW)
        (compaction,) = await chat.compactions()
        assert compaction["author"] == "model"
        assert await chat.transcript() == chat.said


@pytest.mark.spec("S7", "F16")
@pytest.mark.parametrize(("requests", "same"), [(4, True), (20, False)])
async def test_many_requests_at_once_cause_one_summary(requests: int, same: bool, tmp_path: Path) -> None:
    summarizer = Held(lambda seen: _text(plain_summary(seen)))
    model = ModelServer(window=WINDOW, summary=summarizer)
    async with proxied(model, tmp_path, IN_TURN) as proxy:
        chat = proxy.chat(system="You keep notes.", session="notes")
        await grown(chat)
        answered = len(model.prompts)
        asked = [f"Question {0 if same else at}. {prose(60, 900)}" for at in range(requests)]
        lists = [[*chat.said, {"role": "user", "content": text}] for text in asked]
        posting = [asyncio.create_task(chat.posts(messages)) for messages in lists]
        await summarizer.asked.wait()
        assert not any(task.done() for task in posting)
        summarizer.let_go.set()
        replies = await asyncio.gather(*posting)
        assert [reply.status_code for reply in replies] == [200] * requests
        assert len(model.summaries) == 1
        assert len(await chat.compactions()) == 1
        for prompt in model.prompts[answered:]:
            (sent,) = [
                messages
                for messages in lists[: 1 if same else requests]
                if messages[-1] == prompt.messages[-1]
            ]
            is_sound(prompt, sent, WINDOW)
        session = (await proxy.http.get("/api/sessions/notes", headers=chat.headers)).json()
        for branch in session["branches"]:
            rows = await chat.transcript(branch["branch"])
            assert rows[: len(chat.said)] == chat.said
            assert rows[:-1] in lists
        assert len({branch["branch"] for branch in session["branches"]}) >= (1 if same else requests)
