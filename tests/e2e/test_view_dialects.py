"""What single servers want, on both APIs: no later system messages, and thoughts on turns with calls."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.view.dialects import LABEL

from tests.kit.judge import rewritten
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import proxied
from tests.kit.responses import (
    ResponsesChat,
    ResponsesServer,
    call_item,
    result_item,
    text_item,
    thought_item,
)
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 6_000
INSTRUCTIONS = ("system", "developer")
AS_USER = {"models": [{"match": "test-*", "policy": {"later_system_messages": "user"}}]}
pytestmark = pytest.mark.timeout(120)


def rule(turn: int) -> str:
    return f"Rule {turn}: say {turn} caf\u00e9s."


def is_compacted(text: str) -> bool:
    return "</palimpsest_summary>" in text


async def told(chat: Any, turns: int, first: int = 0, *, role: str = "system") -> None:
    """Turns of which every fourth begins with a rule of the application's."""
    for turn in range(first, first + turns):
        entry = {"role": "user", "content": f"Entry {turn}. {prose(turn, 300)}"}
        await chat.sends(*([{"role": role, "content": rule(turn)}] if turn % 4 == 3 else []), entry)


@pytest.mark.spec("P1", "P9", "P10")
@pytest.mark.parametrize("role", INSTRUCTIONS)
async def test_later_system_messages_of_a_compacted_prompt_are_told_as_a_users(
    role: str, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, AS_USER) as proxy:
        chat = proxy.chat(system="You keep the log.")
        await told(chat, 26, role=role)
        compactions = await chat.compactions()
        assert len(compactions) >= 2
        for prompt, sent in zip(model.prompts, chat.sent, strict=True):
            rules = [message["content"] for message in sent[1:] if message["role"] == role]
            if not is_compacted(prompt.text):
                assert prompt.messages == sent
                continue
            assert prompt.messages[0] == sent[0]
            assert not {message["role"] for message in prompt.messages[1:]} & set(INSTRUCTIONS)
            shown = [message["content"] for message in prompt.messages if LABEL in str(message["content"])]
            assert shown == [f"{LABEL}\n\n{one}" for one in rules]
            assert prompt.tokens <= WINDOW
        assert rewritten(model.prompts) == len(compactions)
        assert await chat.transcript() == chat.said
        ours = int(chat.reply.headers["x-palimpsest-tokens"].split("/")[1])
        assert model.prompts[-1].tokens <= ours <= model.prompts[-1].tokens + 60


@pytest.mark.spec("P10")
async def test_the_setting_of_a_session_takes_effect_with_the_next_compaction(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="log")
        while not model.prompts or not is_compacted(model.prompts[-1].text):
            await told(chat, 1, len(chat.replies))
        before = model.prompts[-1]
        assert any(message["role"] == "system" for message in before.messages)
        reply = await proxy.http.patch(
            "/api/sessions/log/settings",
            json={"policy": {"later_system_messages": "user"}},
            headers=chat.headers,
        )
        assert reply.status_code == 200, reply.text
        await told(chat, 1, len(chat.replies))
        assert model.prompts[-1].extends(before)
        made = len(await chat.compactions())
        while len(await chat.compactions()) == made:
            await told(chat, 1, len(chat.replies))
        assert LABEL in model.prompts[-1].text
        assert all(message["role"] != "system" for message in model.prompts[-1].messages)


@pytest.mark.spec("P1", "P9", "W49")
async def test_later_developer_items_are_told_as_a_users_too(tmp_path: Path) -> None:
    server = ResponsesServer(window=4_000)
    async with proxied(server, tmp_path, AS_USER | {"policy.strict_alternation": True}) as proxy:
        chat = ResponsesChat(proxy.http)
        rules = []
        for turn in range(14):
            said: list[Json | str] = [f"Turn {turn}: {prose(turn, 300)}"]
            if turn % 3 == 2:
                rules.append(rule(turn))
                content = [{"type": "input_text", "text": rules[-1]}]
                said.insert(0, {"type": "message", "role": "developer", "content": content})
            await chat.says(*said)
            items = server.asked[-1].items
            if is_compacted(server.asked[-1].text):
                assert not [item for item in items if item.get("role") in INSTRUCTIONS]
                assert all(one in texts(items) for one in rules)
                roles = [item["role"] for item in items]
                assert all(one != other for one, other in pairwise(roles))
            else:
                assert items == chat.said[: len(items)]
    assert is_compacted(server.asked[-1].text)


def texts(items: list[Json]) -> str:
    """All words of the user's role, as one text."""
    words = []
    for item in items:
        if item.get("role") == "user":
            content = item["content"]
            words += [content] if isinstance(content, str) else [part["text"] for part in content]
    return "\n".join(words)


def thinking(seen: Seen) -> Says | None:
    """DeepSeek's way: a thought beside the call, and a 400 where it does not come back."""
    if seen.is_summary:
        return None
    for message in seen.messages:
        if message.get("tool_calls") and not message.get("reasoning_content"):
            error = {"message": "Missing `reasoning_content` field in the assistant message", "code": "400"}
            return Says(status=400, error={"error": error})
    number = len(seen.messages)
    if seen.messages[-1]["role"] != "user":
        return None
    function = {"name": "read", "arguments": json.dumps({"path": f"src/m{number}.py"})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    thought = f"Thought {number}: \u00e9 \ud83d\ude00 \\n 1e2"
    answer = {"role": "assistant", "content": None, "reasoning_content": thought, "tool_calls": [call]}
    return Says(answer, finish="tool_calls")


@pytest.mark.spec("P9")
async def test_thoughts_stay_on_turns_with_tool_calls_or_are_folded_with_them(tmp_path: Path) -> None:
    model = ModelServer(window=4_000, script=thinking)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You read code.")
        for turn in range(12):
            called = await chat.says(f"Look at module {turn}. {prose(turn, 60)}")
            call = called["tool_calls"][0]["id"]
            await chat.sends({"role": "tool", "tool_call_id": call, "content": prose(turn + 100, 260)})
        spoken = {message["tool_calls"][0]["id"]: message for message in chat.said if "tool_calls" in message}
        compacted = [prompt for prompt in model.prompts if is_compacted(prompt.text)]
        assert compacted
        for prompt in compacted:
            shown = [message for message in prompt.messages if message.get("tool_calls")]
            assert shown
            assert all(message == spoken[message["tool_calls"][0]["id"]] for message in shown)
            # Whole or folded: no result without its turn, and no thought outside of one.
            results = [message["tool_call_id"] for message in prompt.messages if message["role"] == "tool"]
            assert results == [message["tool_calls"][0]["id"] for message in shown]
            assert prompt.text.count("Thought ") == len(shown)
            assert len(shown) < len(
                [m for m in chat.sent[model.prompts.index(prompt)] if m.get("tool_calls")]
            )
        assert all("Thought " not in seen.text for seen in model.summaries if not is_riding(seen))
        assert await chat.transcript() == chat.said


def is_riding(seen: Seen) -> bool:
    """True for a summary that is asked for behind the conversation's own prompt."""
    return len(seen.messages) > 2


async def test_thoughts_of_items_stay_with_their_calls_or_are_folded_with_them(tmp_path: Path) -> None:
    server = ResponsesServer(window=4_000, keeps=False)
    async with proxied(server, tmp_path) as proxy:
        chat = ResponsesChat(proxy.http, options={"store": False, "include": ["reasoning.encrypted_content"]})
        for turn in range(12):
            call = [thought_item(f"rs_{turn}"), call_item(f"c_{turn}", "read", {"path": f"m{turn}.py"})]
            server.outputs.extend([call, [text_item(f"Module {turn} is fine.", f"msg_{turn}")]])
            await chat.says(f"Look at module {turn}. {prose(turn, 60)}")
            await chat.says(result_item(f"c_{turn}", prose(turn + 100, 200)))
    compacted = [asked for asked in server.asked if is_compacted(asked.text)]
    assert compacted
    sent = {item["id"]: item for item in chat.said if "id" in item}
    for asked in compacted:
        assert asked.faults == []
        thoughts = [place for place, item in enumerate(asked.items) if item.get("type") == "reasoning"]
        calls = [place for place, item in enumerate(asked.items) if item.get("type") == "function_call"]
        # Each call has the thought it came with right before it, and neither stands without the other.
        assert calls == [place + 1 for place in thoughts]
        assert 0 < len(calls) < 12
        for place in (*thoughts, *calls):
            assert asked.items[place] == sent[asked.items[place]["id"]]
