"""Five facts that were folded away are found again by a model that asks our tools (C21)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, compacted
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.planted import FACTS
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import names_in, saying
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(60)


def looks_it_up(seen: Seen) -> Says | None:
    """A model that knows nothing: it searches for the question, reads the best hit, and says what it read."""
    newest = seen.messages[-1]
    if newest["role"] == "user" and newest["content"] in {question for _, _, question in FACTS}:
        return saying(None, ("look_1", "context_grep", {"query": newest["content"], "limit": 3}))
    if newest["role"] != "tool":
        return None
    found = json.loads(newest["content"])
    if newest["tool_call_id"] == "look_1":
        hits = found["results"]
        # A summary may hold the words of the question; what was said stands in a message.
        best = next((hit for hit in hits if "kind" not in hit), None)
        return saying(None, ("look_2", "context_describe", {"id": best["id"]})) if best else saying("?")
    # Of a message that is longer than the room for look-ups its beginning is shown.
    return saying(found.get("text") or found["beginning"].partition('"text":"')[2])


def vague(_: Seen) -> Says:
    """A summary that keeps none of the facts."""
    return Says({"role": "assistant", "content": f"## 3. Work completed\n{prose(7, 80)}"})


async def buried(proxy: Proxy, chat: Chat) -> None:
    """Each fact stands in the middle of what a tool found; then the talk goes on until they are folded.

    What only a tool's output said is not retold by any summary of code's.
    """
    await chat.says("Read my reports.")
    for number, (fact, _, _) in enumerate(FACTS):
        proxy.model.calls((f"report_{number}", "read_file", {"path": f"report_{number}.txt"}))
        await chat.says(f"Go on with number {number}.")
        # Where it stands is within what is shown of a message when there is little room.
        before, behind = prose(2 * number, 80), prose(2 * number + 1, 320)
        found = f"Report {number}. {before}\n{fact}\n{behind}"
        await chat.sends({"role": "tool", "tool_call_id": f"report_{number}", "content": found})
    reports = [message for message in chat.said if message["role"] == "tool"]
    for turn in range(20):
        if not any(report in proxy.model.prompts[-1].messages for report in reports):
            break
        await chat.says(f"Turn {turn}. {prose(100 + turn, 400)}")
    assert await chat.compactions()
    assert not any(report in proxy.model.prompts[-1].messages for report in reports)


@pytest.mark.spec("C21", "S13", "P11")
@pytest.mark.parametrize("stream", [True, False])
async def test_five_planted_facts_are_recovered_by_the_tools(stream: bool, tmp_path: Path) -> None:
    model = ModelServer(window=8_000)
    model.summary = vague
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You help.", stream=stream, extra={"tools": TOOLS})
        await buried(proxy, chat)
        model.script = looks_it_up
        for fact, _, question in FACTS:
            asked = len(model.prompts)
            answer = await chat.says(question)
            rounds = model.prompts[asked:]
            assert [len(seen.messages) for seen in rounds] == [len(rounds[0].messages) + n for n in (0, 2, 4)]
            assert fact in answer["content"]
            assert "context_" not in chat.reply.text
            assert [seen.faults for seen in rounds] == [()] * 3
        assert await chat.transcript() == chat.said


@pytest.mark.spec("C21")
async def test_without_the_tools_some_fact_is_out_of_reach(tmp_path: Path) -> None:
    """The control, in a window where code cannot carry all: what it leaves is nowhere in the prompt."""
    model = ModelServer(window=4_000)
    model.summary = vague
    async with proxied(model, tmp_path, AT_THE_END | {"recall.tools": False}) as proxy:
        chat = proxy.chat(system="You help.", extra={"tools": TOOLS})
        await buried(proxy, chat)
        model.script = looks_it_up
        gone = [question for _, key, question in FACTS if key not in model.prompts[-1].text]
        assert gone
        reply = await chat.posts([*chat.said, {"role": "user", "content": gone[0]}])
        assert names_in(model.prompts[-1]) == ["read_file"]
        # The call went to the client, who has no such tool.
        assert "context_grep" in reply.text


@pytest.mark.spec("S5", "C04", "P11")
async def test_after_five_compactions_each_fact_is_found_word_for_word(tmp_path: Path) -> None:
    model = ModelServer(window=4_000)
    model.summary = vague
    async with proxied(model, tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You help.")
        await buried(proxy, chat)
        for turn in range(40):
            if len(await chat.compactions()) >= 5:
                break
            await chat.says(f"Later {turn}. {prose(200 + turn, 500)}")
        assert len(await chat.compactions()) >= 5
        for fact, _, question in FACTS:
            order = {"session": chat.session, "query": question, "limit": 1}
            found = await proxy.http.post("/api/context/grep", json=order, headers=chat.headers)
            (hit,) = found.json()["results"]
            assert fact in hit["snippet"]
            ident = [row["id"] for row in await chat.rows() if row["role"] != "system"][int(hit["id"]) - 1]
            assert fact in await chat.recalls(ident)


@pytest.mark.spec("C06", "P5")
async def test_of_three_sessions_each_finds_its_own(tmp_path: Path) -> None:
    """Two of one key and one of another are asked the same; nothing crosses, neither to a model nor back."""
    question = FACTS[0][2]
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chats = {
            "HERON-A1": proxy.chat(extra={"tools": TOOLS}, session="first"),
            "HERON-A2": proxy.chat(extra={"tools": TOOLS}, session="second"),
            "HERON-B1": proxy.chat(extra={"tools": TOOLS}, session="first", key="key-2"),
        }
        for name, chat in chats.items():
            await chat.says(f"Hello. The project's codename is {name}.")
        for chat in chats.values():
            await compacted(chat, words=1_500)
        proxy.model.script = looks_it_up
        for name, chat in chats.items():
            asked = len(proxy.model.seen)
            assert name in (await chat.says(question))["content"]
            told = [*(seen.text for seen in proxy.model.seen[asked:]), chat.reply.text]
            assert len(told) == 4
            assert [other for other in chats if other != name and other in " ".join(told)] == []
