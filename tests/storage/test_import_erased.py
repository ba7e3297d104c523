"""Imports and erasing on both databases: what was blocked stays away, what was erased leaves no word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import with_connection
from sqlalchemy import Connection, text

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.remains import remains
from tests.storage.test_erase import KEPT
from tests.storage.test_standing import rows_in

pytestmark = pytest.mark.timeout(120)
Json = dict[str, Any]
WORD = "kanarienvogel77"


@pytest.fixture
async def proxy(url: str, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with proxied(ModelServer(), tmp_path, url=url) as running:
        yield running


async def imports(proxy: Proxy, chat: Chat, messages: list[Json], name: str | None = None) -> httpx.Response:
    events = [{"type": "checkpoint", "payload": {"conversationHistory": messages}}]
    document = {"name": name, "events": events} if name else {"events": events}
    return await proxy.http.post("/api/sessions/import", json=document, headers=chat.headers)


async def blocks(proxy: Proxy, chat: Chat, session: str) -> None:
    reply = await proxy.http.delete(f"/api/sessions/{session}?block=true", headers=chat.headers)
    assert reply.status_code == 200, reply.text


async def sessions(proxy: Proxy, chat: Chat) -> int:
    return int((await proxy.http.get("/api/sessions", headers=chat.headers)).json()["total"])


def is_refused(reply: httpx.Response) -> bool:
    return (reply.status_code, reply.json().get("error", {}).get("code")) == (410, "session_erased")


async def test_what_was_blocked_does_not_come_back_by_an_import(proxy: Proxy) -> None:
    chat = proxy.chat(system="Be kind.", session="tour")
    chat.headers["x-stainless-retry-count"] = "0"
    for turn in range(3):
        await chat.says(f"Question {turn}.")
    exported = await proxy.http.get("/api/sessions/tour/export", headers=chat.headers)
    await blocks(proxy, chat, "tour")
    headers = chat.headers | {"content-type": "application/json"}
    again = await proxy.http.post("/api/sessions/import", content=exported.content, headers=headers)
    assert is_refused(again)
    renamed = exported.content.replace(b'"tour"', b'"voyage"', 1)
    assert is_refused(await proxy.http.post("/api/sessions/import", content=renamed, headers=headers))
    # Another branch of it, a longer and a shorter list, and its name alone.
    assert is_refused(await imports(proxy, chat, [*chat.said[:3], {"role": "user", "content": "Else."}]))
    assert is_refused(await imports(proxy, chat, [*chat.said, {"role": "user", "content": "More."}]))
    assert is_refused(await imports(proxy, chat, chat.said[1:3]))
    assert is_refused(await imports(proxy, chat, [{"role": "user", "content": "New."}], "tour"))
    assert await sessions(proxy, chat) == 0
    # Who begins alike and was answered otherwise was never there; nor was it with another key.
    other = [chat.said[1], {"role": "assistant", "content": "Another answer."}]
    assert (await imports(proxy, chat, other)).status_code == 201
    stranger = proxy.chat(key="key-2")
    assert (await imports(proxy, stranger, chat.said, "tour")).status_code == 201


async def test_what_was_imported_and_blocked_does_not_come_back_either(proxy: Proxy) -> None:
    chat = proxy.chat()
    said: list[Json] = [
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": "A harbour."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "In the north."},
    ]
    made = (await imports(proxy, chat, said)).json()
    chat.headers["x-session-id"] = made["session"]
    chat.said = list(said)
    await chat.says("How large?")
    await blocks(proxy, chat, made["session"])
    del chat.headers["x-session-id"]
    assert is_refused(await imports(proxy, chat, said))
    assert is_refused(await imports(proxy, chat, chat.said))
    assert is_refused(await chat.posts(chat.said))
    # Without what came last it is another list: few-shot openings are shared by many.
    assert (await imports(proxy, chat, said[:2])).status_code == 201


@pytest.mark.spec("P6", "C17")
async def test_of_ten_imports_that_were_searched_an_erase_leaves_no_word(
    proxy: Proxy, url: str, tmp_path: Path
) -> None:
    chat = proxy.chat(key="erased")
    other = proxy.chat(key="kept")
    for number in range(10):
        said = [
            {"role": "user", "content": f"Number {number} is {WORD}-{number}."},
            {"role": "assistant", "content": f"So {WORD} it is."},
        ]
        made = (await imports(proxy, chat, said, f"{WORD}-{number}")).json()
        found = await proxy.http.get(f"/api/sessions/{made['session']}/search?q={WORD}", headers=chat.headers)
        assert WORD in json.dumps(found.json()["results"])
    await imports(proxy, other, [{"role": "user", "content": "The nightingale88 stays."}], "kept")
    kept = await proxy.http.get("/api/sessions/kept/search?q=nightingale88", headers=other.headers)
    assert kept.json()["results"]
    assert await with_connection(url, entries) == 21
    is_sqlite = sqlite_path(url) is not None
    assert await erases_all(proxy, chat) == (10, "scrubbed" if is_sqlite else "vacuumed")
    assert await with_connection(url, entries) == 1
    if is_sqlite:
        assert remains(tmp_path, WORD) == {}
        assert remains(tmp_path, "nightingale88")
    else:
        assert WORD not in json.dumps(await with_connection(url, every_row))
    assert (await erases_all(proxy, other))[0] == 1
    left = {table: rows for table, rows in (await rows_in(url)).items() if rows and table not in KEPT}
    assert left == {}


async def erases_all(proxy: Proxy, chat: Chat) -> tuple[int, str]:
    """How many sessions went, and what is left in the files once they are scrubbed."""
    receipt = await proxy.http.delete("/api/namespace?confirm=everything", headers=chat.headers)
    files = receipt.json()["files"]
    for _ in range(600):
        if files != "pending":
            break
        await asyncio.sleep(0.05)
        again = await proxy.http.delete("/api/namespace?confirm=everything", headers=chat.headers)
        files = again.json()["files"]
    return receipt.json()["rows"]["sessions"], files


def entries(connection: Connection) -> int:
    """Rows of the index of words."""
    return int(connection.execute(text("SELECT count(*) FROM recall_words")).scalar_one())


def every_row(connection: Connection) -> list[str]:
    """All that PostgreSQL tells of every table, bytes as text."""
    tables = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars()
    rows = [str(tuple(map(_plain, row))) for t in tables for row in connection.execute(text(f'TABLE "{t}"'))]
    assert any("nightingale88" in row for row in rows)
    return rows


def _plain(value: Any) -> Any:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | memoryview) else value
