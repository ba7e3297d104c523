"""The recall tools for MCP clients, with the official SDK's own client over real HTTP."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPTED = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def client_of(proxy: Proxy, chat: Chat) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=chat.headers, trust_env=False, verify=False) as http,
        Client(streamable_http_client(f"{proxy.url}/mcp", http_client=http)) as client,
    ):
        yield client


async def called(client: Client, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    return json.loads(content.text)


@pytest_asyncio.fixture(loop_scope="module")
async def told(proxy: Proxy) -> Chat:
    talk = proxy.chat(session="garden")
    await talk.says("Last Saturday I painted the rowing boat in green.")
    await talk.says("The gate code is 4471-KLM.")
    return talk


async def test_two_tools_are_listed_and_say_that_they_only_read(proxy: Proxy, told: Chat) -> None:
    async with client_of(proxy, told) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["context_grep", "context_describe"]
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert "session" in tool.input_schema["properties"]
        assert "taskId" not in tool.input_schema["properties"]


@pytest.mark.spec("C04", "C05")
async def test_what_was_said_is_found_and_read(proxy: Proxy, told: Chat) -> None:
    async with client_of(proxy, told) as client:
        found = await called(client, "context_grep", query="In which colour was the boat painted?", limit=0)
        (hit,) = found["results"]
        assert (hit["snippet"], found["session"]) == (told.said[0]["content"], told.session)
        entry = await called(client, "context_describe", id=hit["id"])
        assert entry["text"] == f"user: {told.said[0]['content']}"
        assert await called(client, "context_describe", id="dcm_" + "0" * 32) is None


async def test_the_session_is_the_one_that_is_named_or_the_newest(proxy: Proxy, told: Chat) -> None:
    newer = proxy.chat(session="newer", key=told.headers["authorization"].split()[1])
    await newer.says("The gate is open.")
    async with client_of(proxy, told) as client:
        assert (await called(client, "context_grep", query="gate"))["session"] == newer.session
        named = await called(client, "context_grep", query="gate", session="garden")
        assert named["session"] == told.session
        refused = await client.call_tool("context_grep", {"query": "gate", "session": "nowhere"})
        assert refused.is_error
        empty = await client.call_tool("context_grep", {})
        assert empty.is_error


@pytest.mark.spec("P5")
async def test_another_callers_sessions_are_not_there(proxy: Proxy, told: Chat) -> None:
    stranger = proxy.chat(key=uuid.uuid4().hex)
    await stranger.says("Hello.")
    async with client_of(proxy, stranger) as client:
        for name in ("garden", told.session):
            refused = await client.call_tool("context_grep", {"query": "gate", "session": name})
            assert refused.is_error
        assert (await called(client, "context_grep", query="gate code 4471"))["results"] == []


@pytest.mark.spec("C18")
async def test_a_call_leaves_an_event(proxy: Proxy, told: Chat) -> None:
    async with client_of(proxy, told) as client:
        await called(client, "context_grep", query="gate code")
    path = f"/api/sessions/{told.session}/events?types=context_recalled"
    (event,) = (await proxy.http.get(path, headers=told.headers)).json()["events"]
    assert (event["payload"]["via"], event["payload"]["asked"]) == ("mcp", "gate code")


async def test_a_page_of_another_host_is_refused(proxy: Proxy, told: Chat) -> None:
    for origin, status in (("https://evil.example", 403), ("http://localhost:6274", 403), (proxy.url, 200)):
        headers = {**told.headers, **ACCEPTED, "origin": origin}
        reply = await proxy.http.post("/mcp", headers=headers, json=INITIALIZE)
        assert reply.status_code == status, reply.text


async def test_nothing_is_kept_open(proxy: Proxy, told: Chat) -> None:
    reply = await proxy.http.get("/mcp", headers={**told.headers, **ACCEPTED})
    assert reply.status_code == 405
