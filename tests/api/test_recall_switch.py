"""Recall switched off, for a deployment or a session: no rows, no tools, and a search that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from palimpsest.storage.sqlite.driver import driver

from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import OURS, compacted_chat, names_in

pytestmark = pytest.mark.timeout(60)

OFF = {"recall.enabled": False}
CODE = "durable_context_disabled"


@asynccontextmanager
async def talking(
    folder: Path, overrides: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Proxy, Chat]]:
    async with proxied(ModelServer(window=20_000), folder, dict(overrides or {})) as proxy:
        chat = proxy.chat(session="garden")
        await chat.says("Last Saturday I painted the rowing boat in green.")
        yield proxy, chat


def rows_in(folder: Path) -> tuple[int, int]:
    """How many rows there are of the index: marks of sessions, and entries."""
    with driver.connect(folder / "palimpsest.db") as database:
        (marks,) = database.execute("SELECT count(*) FROM recall_marks").fetchone()
        (entries,) = database.execute("SELECT count(*) FROM recall_words_docsize").fetchone()
    return int(marks), int(entries)


async def searched(proxy: Proxy, chat: Chat, question: str) -> str:
    """What the search by HTTP shows first; "" for nothing."""
    path = f"/api/sessions/{chat.session}/search"
    reply = await proxy.http.get(path, headers=chat.headers, params={"q": question})
    assert reply.status_code == 200, reply.text
    hits = reply.json()["results"]
    return str(hits[0]["text"]) if hits else ""


async def called(proxy: Proxy, chat: Chat) -> list[httpx.Response]:
    """Both tools called directly, for the session by its name."""
    ident = (await chat.rows())[0]["id"]
    orders = {"grep": {"query": "boat"}, "describe": {"id": ident}}
    return [
        await proxy.http.post(
            f"/api/context/{tool}", headers=chat.headers, json={"session": "garden", **order}
        )
        for tool, order in orders.items()
    ]


async def switches(proxy: Proxy, chat: Chat, is_on: bool | None) -> None:
    path = f"/api/sessions/{chat.session}/settings"
    reply = await proxy.http.patch(path, headers=chat.headers, json={"recall": {"enabled": is_on}})
    assert reply.status_code == 200, reply.text


@asynccontextmanager
async def client_of(proxy: Proxy, chat: Chat) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=chat.headers, trust_env=False, verify=False) as http,
        Client(streamable_http_client(f"{proxy.url}/mcp", http_client=http)) as client,
    ):
        yield client


async def has_rows(folder: Path, marks: int, entries: int) -> None:
    """Words that are found by nobody are removed beside the turns."""
    async with asyncio.timeout(20):
        while await asyncio.to_thread(rows_in, folder) != (marks, entries):  # noqa: ASYNC110  # nobody tells us
            await asyncio.sleep(0.01)


@pytest.mark.spec("C03")
async def test_switched_off_nothing_is_written_and_direct_calls_are_refused(tmp_path: Path) -> None:
    async with talking(tmp_path, OFF) as (proxy, chat):
        assert await searched(proxy, chat, "painting boats") == chat.said[0]["content"]
        for reply in await called(proxy, chat):
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, CODE)
            assert reply.headers["x-should-retry"] == "false"
        async with client_of(proxy, chat) as client:
            assert (await client.list_tools()).tools == []
            result = await client.call_tool("context_grep", {"query": "boat"})
        (content,) = result.content
        assert isinstance(content, TextContent)
        assert result.is_error is True
        assert CODE in content.text
        assert await events(proxy.http, chat, ["context_recalled"]) == []
        await chat.says("The gate code is 4471-KLM.")
        assert await searched(proxy, chat, "gate code") == "The gate code is 4471-KLM."
        assert rows_in(tmp_path) == (0, 0)


@pytest.mark.spec("C01", "C03")
async def test_a_session_opts_out_and_in_again_without_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path) as (proxy, chat):
        assert await searched(proxy, chat, "painting boats") == chat.said[0]["content"]
        assert rows_in(tmp_path) == (1, 2)
        await switches(proxy, chat, False)
        await has_rows(tmp_path, 0, 0)
        assert [reply.status_code for reply in await called(proxy, chat)] == [403, 403]
        assert await searched(proxy, chat, "painting boats") == chat.said[0]["content"]
        assert rows_in(tmp_path) == (0, 0)
        await switches(proxy, chat, None)
        found, read = await called(proxy, chat)
        assert found.json()["results"][0]["snippet"] == chat.said[0]["content"]
        assert read.json()["text"] == f"user: {chat.said[0]['content']}"
        assert rows_in(tmp_path) == (1, 2)


@pytest.mark.spec("C03")
async def test_switched_off_no_model_is_offered_tools(tmp_path: Path) -> None:
    """Neither by the deployment's `recall.tools` nor by a request that asks for them."""
    async with compacted_chat(tmp_path) as (proxy, chat):
        chat.headers["x-palimpsest-recall"] = "on"
        await chat.says("Which port?")
        assert names_in(proxy.model.prompts[-1])[1:] == OURS
        await switches(proxy, chat, False)
        await chat.says("Which port?")
        del chat.headers["x-palimpsest-recall"]
        await chat.says("Which port?")
        assert [names_in(seen)[1:] for seen in proxy.model.prompts[-2:]] == [[], []]
