"""Clients that drop a part of their own list: pins, ids, compactions by hand still mean the same messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.kit.chat import Chat, Json
from tests.kit.judge import is_sound
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose

WINDOW = 6_000
OURS = "</palimpsest_summary>"
pytestmark = pytest.mark.timeout(120)


async def worked(chat: Chat, turns: int, first: int = 0) -> None:
    for turn in range(first, first + turns):
        await chat.says(f"Step {turn}. {prose(turn, 300)}")


async def compacted(chat: Chat) -> None:
    reply = await chat._http.post("/api/sessions/work/compact", headers=chat.headers, json={})
    assert reply.json()["compacted"] is True, reply.text


@pytest.mark.spec("A32", "P10")
async def test_a_pin_holds_when_the_client_drops_what_stood_before_it(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await worked(chat, 4)
        pinned = chat.said[4]
        (row,) = [row for row in await chat.rows() if row["message"] == pinned]
        reply = await proxy.http.post(
            "/api/sessions/work/pins", headers=chat.headers, json={"message": row["id"]}
        )
        assert reply.status_code == 201, reply.text
        chat.said = chat.said[2:]
        await worked(chat, 1, 10)
        path = "/api/sessions/work/events?types=client_changed_prefix"
        # Events are written behind the answer.
        async with asyncio.timeout(20):
            while not (told := (await proxy.http.get(path, headers=chat.headers)).json()["events"]):
                pass
        (event,) = told
        assert event["payload"] == {"messages": 7, "kept": 6}
        await worked(chat, 19, 11)
        assert OURS in model.prompts[-1].text
        assert pinned in model.prompts[-1].messages
        is_sound(model.prompts[-1], chat.sent[-1], WINDOW)


@pytest.mark.spec("F38")
async def test_a_compaction_by_hand_keeps_the_summary_that_a_client_goes_on_from(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await worked(chat, 4)
        note: Json = {
            "role": "user",
            "content": "Another language model started to solve this problem and produced a summary of its "
            f"thinking process.\n\n1. All is begun.\n{prose(901, 200)}",
        }
        # The newest exchange stays, so that the conversation is known to go on.
        chat.said = [chat.said[0], note, *chat.said[-2:]]
        await worked(chat, 5, 20)
        await compacted(chat)
        await worked(chat, 1, 50)
        assert OURS in model.prompts[-1].text
        assert note in model.prompts[-1].messages


@pytest.mark.spec("P2")
async def test_ids_in_a_view_lead_to_messages_behind_a_jump(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await worked(chat, 3)
        listing = "\n".join(f"{at}: {prose(700 + at, 20)}" for at in range(60))
        call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        await chat.sends(
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": listing},
        )
        chat.said = chat.said[2:]
        await worked(chat, 2, 20)
        view = await chat.view()
        ids = [part["id"] for part in view["parts"] if part["id"]]
        assert ids
        texts = [await chat.recalls(ident) for ident in ids]
        assert [text for text in texts if listing in text]
        assert json.dumps(view)


@pytest.mark.spec("E10", "P2")
async def test_a_stub_names_a_result_as_it_is_stored_behind_a_jump(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    async with proxied(model, tmp_path, {"recall.tools": True}) as proxy:
        chat = proxy.chat(session="work", extra={"tools": tools})
        await worked(chat, 3)
        chat.said = chat.said[2:]
        await worked(chat, 1, 10)
        listing = "\n".join(f"{at}: {prose(700 + at, 20)}" for at in range(400))
        call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        await chat.sends(
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": listing},
        )
        while not (made := await chat.compactions()):
            await worked(chat, 1, len(chat.replies) + 20)
        (mask,) = made[0]["masks"]
        assert await chat.recalls(mask["message"]) == listing
        assert f"context_describe {mask['message']}" in model.prompts[-1].text
