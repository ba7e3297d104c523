"""Strict alternation, on real sockets: a compacted prompt has user and assistant by turns (A46, D19)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.view.dialects import ACKNOWLEDGEMENT

from tests.kit.chat import Chat
from tests.kit.judge import rewritten
from tests.kit.model import ModelServer, Seen
from tests.kit.proxy import proxied
from tests.kit.responses import ResponsesChat, ResponsesServer
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 6_000
STRICT = {"policy.strict_alternation": True}
pytestmark = pytest.mark.timeout(120)


def spoken(prompt: Seen) -> list[str]:
    """Who speaks, instructions aside."""
    return [message["role"] for message in prompt.messages if message["role"] != "system"]


def is_compacted(prompt: Seen) -> bool:
    return "</palimpsest_summary>" in prompt.text


async def told(chat: Chat, turns: int, first: int = 0) -> None:
    for turn in range(first, first + turns):
        await chat.says(f"Entry {turn}. {prose(turn, 300)}")


@pytest.mark.spec("A46", "D19", "P10")
@pytest.mark.parametrize("stream", [False, True])
async def test_users_and_assistants_speak_by_turns_and_views_only_grow(stream: bool, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, STRICT) as proxy:
        chat = proxy.chat(system="You keep the log.", stream=stream)
        await told(chat, 32)
        compactions = await chat.compactions()
        assert len(compactions) >= 2
        for prompt in model.prompts:
            assert prompt.faults == ()
            assert prompt.tokens <= WINDOW
            assert all(left != right for left, right in pairwise(spoken(prompt)))
        assert sum(ACKNOWLEDGEMENT in prompt.text for prompt in model.prompts) > 0
        assert rewritten(model.prompts) == len(compactions)
        # The archive holds what was said, nothing of ours.
        assert await chat.transcript() == chat.said


@pytest.mark.spec("A46", "P1", "D19")
async def test_nothing_is_merged_or_added_before_the_first_compaction_nor_without_the_setting(
    tmp_path: Path,
) -> None:
    twice = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, STRICT) as proxy:
        chat = proxy.chat()
        await chat.sends(*twice)
        assert model.prompts[-1].messages == twice
    plain = ModelServer(window=WINDOW)
    (tmp_path / "plain").mkdir()
    async with proxied(plain, tmp_path / "plain") as proxy:
        chat = proxy.chat()
        await told(chat, 18)
        assert is_compacted(plain.prompts[-1])
        assert not any(ACKNOWLEDGEMENT in prompt.text for prompt in plain.prompts)
        # The task and the summary stand beside each other then.
        assert any(left == right == "user" for left, right in pairwise(spoken(plain.prompts[-1])))


@pytest.mark.spec("D19", "A46")
async def test_a_view_shows_what_goes_out_and_counts_it(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, STRICT) as proxy:
        chat = proxy.chat(system="You keep the log.")
        while not is_compacted(prompt := model.prompts[-1] if model.prompts else _NOTHING):
            await told(chat, 1, len(chat.replies))
        view = await chat.view()
        shown = [part["message"] for part in view["parts"]]
        assert shown[: len(prompt.messages)] == prompt.messages
        kinds = [part["kind"] for part in view["parts"]]
        assert kinds.count("summary") == kinds.count("acknowledgement") == 1
        answer = kinds.index("acknowledgement")
        assert kinds[answer - 1] == "summary"
        assert shown[answer] == {"role": "assistant", "content": ACKNOWLEDGEMENT}
        # Preamble, tools and framing are in the budget's fixed part.
        parts = sum(part["tokens"] for part in view["parts"] if part["kind"] != "preamble")
        assert view["tokens"] == view["budget"]["fixed_tokens"] + parts
        assert view["parts"][answer]["tokens"] > 0
        # Ours are never fewer than the model's own count of the same prompt.
        ours = int(chat.reply.headers["x-palimpsest-tokens"].split("/")[1])
        assert prompt.tokens <= ours <= prompt.tokens + 40


@pytest.mark.spec("A46", "P10")
async def test_the_setting_of_a_session_takes_effect_with_the_next_compaction(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="log")
        while not is_compacted(model.prompts[-1] if model.prompts else _NOTHING):
            await told(chat, 1, len(chat.replies))
        before = model.prompts[-1]
        reply = await proxy.http.patch(
            "/api/sessions/log/settings",
            json={"policy": {"strict_alternation": True}},
            headers=chat.headers,
        )
        assert reply.status_code == 200, reply.text
        await told(chat, 1, len(chat.replies))
        assert model.prompts[-1].extends(before)
        made = len(await chat.compactions())
        while len(await chat.compactions()) == made:
            await told(chat, 1, len(chat.replies))
        # The task and the summary stand beside each other without it.
        assert any(left == right for left, right in pairwise(spoken(before)))
        assert all(left != right for left, right in pairwise(spoken(model.prompts[-1])))


_NOTHING = Seen(b"{}", {"messages": []}, {}, 0, False)


@pytest.mark.spec("W49")
async def test_items_alternate_as_messages_do(tmp_path: Path) -> None:
    server = ResponsesServer(window=4_000)
    async with proxied(server, tmp_path, STRICT) as proxy:
        chat = ResponsesChat(proxy.http)
        for turn in range(14):
            await chat.says(f"Turn {turn}: {prose(turn, 300)}")
    folded = [asked.items for asked in server.asked if "<palimpsest_summary" in asked.text]
    assert folded
    for items in folded:
        roles = [item["role"] for item in items]
        assert all(one != other for one, other in pairwise(roles))
