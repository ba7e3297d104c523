"""What the endpoints of a session wrote is there after a restart, and a stream goes on where it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied

Json = dict[str, Any]


async def asked(proxy: Proxy, chat: Chat, method: str, end: str, body: Json | None = None) -> Json:
    path = f"/api/sessions/{chat.session}{end}"
    reply = await proxy.http.request(method, path, headers=chat.headers, json=body)
    assert reply.status_code in (200, 201), reply.text
    value: Json = reply.json()
    return value


async def long_chat(proxy: Proxy) -> Chat:
    chat = proxy.chat(session="long")
    for turn in range(8):
        await chat.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 60)
    return chat


async def streamed(proxy: Proxy, chat: Chat, seen: int, count: int) -> list[tuple[int, Json]]:
    """So many events of a stream that goes on behind `seen`."""
    headers = {**chat.headers, "accept": "text/event-stream", "last-event-id": str(seen)}
    path = f"/api/sessions/{chat.session}/events"
    ids: list[int] = []
    payloads: list[Json] = []
    async with asyncio.timeout(30), proxy.http.stream("GET", path, headers=headers) as reply:
        async for line in reply.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                ids.append(int(value))
            elif name == "data":
                payloads.append(json.loads(value))
                if len(payloads) == count:
                    break
    return list(zip(ids, payloads, strict=True))


@pytest.mark.spec("A23")
async def test_a_stream_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    model = ModelServer(window=20_000)
    async with proxied(model, tmp_path) as proxy:
        chat = await long_chat(proxy)
        record = (await asked(proxy, chat, "POST", "/compact"))["compaction"]
        first = (await asked(proxy, chat, "GET", "/events"))["events"]
        seen = await streamed(proxy, chat, 0, len(first) - 1)
        assert [seq for seq, _ in seen] == [event["seq"] for event in first[:-1]]
    async with proxied(model, tmp_path) as proxy:
        await asked(proxy, chat, "POST", f"/compactions/{record['id']}/undo")
        rest = await streamed(proxy, chat, seen[-1][0], 2)
        whole = (await asked(proxy, chat, "GET", "/events"))["events"]
    assert whole[: len(first)] == first
    assert [*seen, *rest] == [(event["seq"], event["payload"]) for event in whole]


@pytest.mark.spec("A42")
async def test_settings_and_undone_compactions_outlive_the_process(tmp_path: Path) -> None:
    model = ModelServer(window=20_000)
    async with proxied(model, tmp_path) as proxy:
        chat = await long_chat(proxy)
        await asked(
            proxy, chat, "PATCH", "/settings", {"policy": {"name": "working_state", "tail_messages": 2}}
        )
        record = (await asked(proxy, chat, "POST", "/compact"))["compaction"]
        state = (await asked(proxy, chat, "GET", "/state"))["state"]
        view = await chat.view()
        settings = await asked(proxy, chat, "GET", "/settings")
    async with proxied(model, tmp_path) as proxy:
        chat = _moved(proxy, chat)
        assert await asked(proxy, chat, "GET", "/settings") == settings
        assert (await asked(proxy, chat, "GET", "/state"))["state"] == state != {}
        assert (await chat.view())["parts"] == view["parts"]
        undone = await asked(proxy, chat, "POST", f"/compactions/{record['id']}/undo")
    async with proxied(model, tmp_path) as proxy:
        chat = _moved(proxy, chat)
        assert (await chat.view())["view"] == "original"
        assert [one["undone_at"] for one in await chat.compactions()] == [undone["undone_at"]]


def _moved(proxy: Proxy, chat: Chat) -> Chat:
    """The same client before another process."""
    again = proxy.chat(session="long")
    again.said, again.replies = chat.said, chat.replies
    return again


async def test_the_memory_outlives_the_process(tmp_path: Path) -> None:
    model = ModelServer(window=20_000)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="long")
        await chat.says("hello")
        for number in range(14):
            await asked(proxy, chat, "POST", "/memory-block", {"text": f"Fact {number} is noted."})
    async with proxied(model, tmp_path) as proxy:
        done = await asked(proxy, chat, "POST", "/memory-block", {"text": "Fact 14 is noted."})
    assert (done["folded"], len(done["entries"])) == (10, 5)
