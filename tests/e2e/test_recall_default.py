"""From when on a model is offered the recall tools that nobody asked for: as the compaction in force says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, Json, compacted
from tests.kit.model import ModelServer, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import GREP, OURS, names_in, saying
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(90)
ON = AT_THE_END
OFF = {"recall.tools": False}


def agent(proxy: Proxy, before: Chat | None = None) -> Chat:
    """A client that sends tools, or the one of an earlier server."""
    chat = proxy.chat(system="You help.", extra={"tools": TOOLS})
    if before is not None:
        chat.said = before.said
    return chat


def offers(seen: Seen) -> bool:
    assert names_in(seen) in (["read_file"], ["read_file", *OURS])
    return len(names_in(seen)) > 1


@pytest.mark.spec("C01", "C22")
async def test_nobody_has_to_ask_for_them(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, ON) as proxy:
        chat = agent(proxy)
        await compacted(chat, words=1_500)
        # With the first compaction itself, and with no prompt before.
        assert [offers(seen) for seen in proxy.model.prompts[-2:]] == [False, True]
        proxy.model.answers.extend([saying(None, GREP), saying("Port 8000.")])
        assert (await chat.says("Which port?"))["content"] == "Port 8000."
        assert "8000" in proxy.model.prompts[-1].messages[-1]["content"]
        assert await chat.transcript() == chat.said


@pytest.mark.spec("C01")
async def test_a_client_without_tools_is_never_given_any(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, ON) as proxy:
        chat = proxy.chat(system="You help.")
        await compacted(chat, rounds=2, words=1_500)
        assert not any("tools" in seen.body for seen in proxy.model.prompts)
        # Nor is it sent to where it cannot look.
        assert "context_" not in proxy.model.prompts[-1].text


@pytest.mark.spec("C01", "P10")
async def test_they_come_with_a_compaction_and_never_between_two(tmp_path: Path) -> None:
    """The default changes under a running conversation, as a new version or a new setting changes it."""
    model = ModelServer(window=8_000)
    async with proxied(model, tmp_path, ON | OFF) as proxy:
        first = agent(proxy)
        await compacted(first, words=1_500)
    async with proxied(model, tmp_path, ON) as proxy:
        chat = agent(proxy, first)
        await chat.says("And now?")
        assert not offers(model.prompts[-1])
        assert model.prompts[-1].extends(model.prompts[-2])
        # Who asks has them at once.
        chat.headers["x-palimpsest-recall"] = "on"
        await chat.says("And with them?")
        assert offers(model.prompts[-1])
        del chat.headers["x-palimpsest-recall"]
        await chat.says("And without?")
        assert not offers(model.prompts[-1])
        await until_compacted_again(chat)
        assert offers(model.prompts[-1])
    async with proxied(model, tmp_path, ON | OFF) as proxy:
        chat = agent(proxy, chat)
        await chat.says("And at last?")
        assert not offers(model.prompts[-1])


@pytest.mark.spec("A02")
async def test_tools_that_do_not_go_yet_bring_no_compaction_nearer(tmp_path: Path) -> None:
    """The same words are compacted in the same turn, whether tools of ours are to come or not."""
    turns = []
    for name, overrides in (("with", {}), ("without", OFF)):
        settings: Json = AT_THE_END | overrides
        (tmp_path / name).mkdir()
        async with proxied(ModelServer(window=16_000), tmp_path / name, settings) as proxy:
            chat = agent(proxy)
            await compacted(chat, words=150)
            turns.append(len(chat.replies))
    assert turns[0] == turns[1] > 10


async def until_compacted_again(chat: Chat) -> None:
    """The conversation has gone on until another compaction was made."""
    made = chat.reply.headers["x-palimpsest-compaction"]
    while chat.reply.headers["x-palimpsest-compaction"] == made:
        await compacted(chat, words=1500)


@pytest.mark.spec("C01")
@pytest.mark.parametrize(("share", "offered"), [(None, False), (1.0, True)])
async def test_a_window_full_of_a_clients_own_tools_has_no_room_for_them(
    share: float | None, offered: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=8_000)
    settings = ON if share is None else ON | {"recall.tools_share": share}
    async with proxied(model, tmp_path, settings) as proxy:
        large: Json = TOOLS[0]["function"] | {"description": prose(1, 4_200)}
        chat = proxy.chat(system="You help.", extra={"tools": [{"type": "function", "function": large}]})
        await compacted(chat, words=700)
        assert offers(proxy.model.prompts[-1]) == offered


@pytest.mark.spec("C01")
async def test_a_compaction_by_hand_brings_them_too(tmp_path: Path) -> None:
    """Who orders it sends no tools, and need not know whether the client does."""
    async with proxied(ModelServer(window=60_000), tmp_path, ON) as proxy:
        chat = agent(proxy)
        for turn in range(8):
            await chat.says(f"Note {turn}: " + "The tide is out. " * 120)
        assert not offers(proxy.model.prompts[-1])
        reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
        assert reply.json()["compacted"], reply.text
        await chat.says("And now?")
        assert offers(proxy.model.prompts[-1])
