"""Clients that compact by themselves: their summary stays word for word, usage is the upstream's (F38)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.judge import is_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 6_000
OURS = "</palimpsest_summary>"
pytestmark = pytest.mark.timeout(120)


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def claude(number: int, words: int = 200) -> list[Json]:
    """What Claude Code's list begins with after it compacted."""
    reminder = "<system-reminder>\nThe project's rules: be exact.\n</system-reminder>"
    summary = (
        "This session is being continued from a previous conversation that ran out of context. The summary "
        f"below covers the earlier portion.\n\n1. Round {number}.\n{prose(900 + number, words)}"
    )
    return [user(reminder), user(summary)]


def codex(number: int, words: int = 200) -> list[Json]:
    """What Codex's list begins with after it compacted: earlier user messages, then its summary."""
    summary = (
        "Another language model started to solve this problem and produced a summary of its thinking "
        f"process.\n\n1. Round {number}.\n{prose(900 + number, words)}"
    )
    return [
        user("<environment_context>\n<cwd>/repo</cwd>\n</environment_context>"),
        user("Mend it."),
        user(summary),
    ]


def prompt_tokens_of(reply: httpx.Response) -> int:
    if not reply.headers["content-type"].startswith("text/event-stream"):
        return int(reply.json()["usage"]["prompt_tokens"])
    events = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line.startswith("data: {")]
    usages = [json.loads(event).get("usage") for event in events]
    return next(int(usage["prompt_tokens"]) for usage in usages if usage)


async def worked(chat: Chat, turns: int, first: int = 0) -> None:
    for turn in range(first, first + turns):
        await chat.says(f"Step {turn}. {prose(turn, 300)}")


@pytest.mark.spec("F38", "W21")
@pytest.mark.parametrize(("begins", "stream"), [(claude, False), (codex, True)])
async def test_its_summary_stays_and_its_usage_is_the_upstreams(
    begins: Any, stream: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        usage = {"stream_options": {"include_usage": True}} if stream else {}
        chat = proxy.chat(system="You write code.", session="work", stream=stream, extra=usage)
        await worked(chat, 20)
        assert OURS in model.prompts[-1].text
        for number in (1, 2):
            # The client drops everything behind its instructions, and goes on from a summary of its own.
            chat.said = [chat.said[0], *begins(number)]
            summary = chat.said[-1]
            rounds = len(model.prompts)
            await worked(chat, 22, 100 * number)
            prompts = model.prompts[rounds:]
            for prompt, sent in zip(prompts, chat.sent[rounds:], strict=True):
                is_sound(prompt, sent, WINDOW)
                assert summary in prompt.messages
                # Never two that tell of the same past: ours of what the client dropped, or its older one.
                assert f"Round {number - 1}." not in prompt.text
                assert prompt.text.count(OURS) <= 1
            assert OURS not in prompts[0].text
            assert OURS in prompts[-1].text
        assert [prompt_tokens_of(reply) for reply in chat.replies] == [seen.tokens for seen in model.prompts]


@pytest.mark.spec("F38")
async def test_it_is_given_up_before_a_request_is_refused(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        chat.said = codex(1, words=2_300)
        await worked(chat, 2)
        summary = chat.said[2]
        assert summary in model.prompts[-1].messages
        await chat.says(f"Read this. {prose(7, 3_000)}")
        assert summary not in model.prompts[-1].messages
        is_sound(model.prompts[-1], chat.sent[-1], WINDOW)


@pytest.mark.spec("F38", "F35")
async def test_a_compaction_by_hand_keeps_it_too(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        chat.said = codex(1)
        summary = chat.said[2]
        await worked(chat, 8)
        reply = await proxy.http.post("/api/sessions/work/compact", headers=chat.headers, json={})
        assert reply.json()["compacted"] is True
        await worked(chat, 1, 50)
        assert OURS in model.prompts[-1].text
        assert summary in model.prompts[-1].messages
