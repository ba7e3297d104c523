"""A large payload stands by reference: found in full, shown in little, read in pieces, kept once (C11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from palimpsest.storage.sqlite.driver import driver

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, counter
from tests.kit.proxy import Proxy, proxied

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

Json = dict[str, Any]
NEEDLE = "The vermilion beacon answers to QX-7731."
LINE = "a line of the log of the long night at the station\n"
# 120 parts, 2 MB together; what is looked for stands near the end of the last.
PARTS = [f"Part {number}.\n" + LINE * 340 for number in range(119)]
PARTS += ["Part 119.\n" + LINE * 300 + NEEDLE + "\n" + LINE * 40]
TEXT = "".join(PARTS)


@dataclass(frozen=True)
class Told:
    """A conversation with the payload in it, and the hit that a search for what stands in its tail gives."""

    proxy: Proxy
    chat: Chat
    folder: Path
    hit: Json


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Told]:
    folder = tmp_path_factory.mktemp("payload")
    async with proxied(ModelServer(window=2_000_000), folder) as proxy:
        chat = proxy.chat(session="night")
        call = {"name": "read_log", "arguments": "{}"}
        await chat.says("What happened that night?")
        await chat.sends(
            {"role": "user", "content": "Read the log."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            },
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": [{"type": "text", "text": part} for part in PARTS],
            },
        )
        hits = (await posted(proxy, chat, "grep", query="vermilion beacon QX-7731"))["results"]
        (hit,) = [hit for hit in hits if hit["kind"] == "payload"]
        yield Told(proxy, chat, folder, hit)


async def posted(proxy: Proxy, chat: Chat, tool: str, **order: Any) -> Json:
    reply = await proxy.http.post(f"/api/context/{tool}", headers=chat.headers, json=order)
    assert reply.status_code == 200, reply.text
    fields: Json = reply.json()
    return fields


@pytest.mark.spec("C11")
async def test_what_stands_in_the_tail_is_found_and_shown_by_reference(told: Told) -> None:
    proxy, chat, hit = told.proxy, told.chat, told.hit
    assert len(TEXT) > 2_000_000
    assert hit["id"].startswith("dcp_")
    assert NEEDLE in hit["snippet"]
    assert len(hit["snippet"]) <= 600
    assert (hit["role"], hit["totalChars"]) == ("tool", len(TEXT))
    assert hit["tokens"] > 25_000
    # What stands for it: its head, where the rest is, its tail.
    assert len(hit["summary"]) <= 1_200
    head, marker, tail = hit["summary"].partition("\n[... ")
    assert TEXT.startswith(head)
    assert hit["id"] in marker + tail
    assert TEXT.endswith(hit["summary"][-200:])
    path = f"/api/sessions/{chat.session}/search?q=vermilion+beacon"
    searched = (await proxy.http.get(path, headers=chat.headers)).json()["results"][0]
    assert (searched["kind"], searched["id"]) == ("payload", hit["id"])
    assert searched["text"] == TEXT[searched["start"] :][: len(searched["text"])]
    assert NEEDLE in searched["text"]
    assert searched["summary"] == hit["summary"]


@pytest.mark.spec("C11", "C05")
async def test_a_preview_is_short_and_the_whole_is_read_in_pieces(told: Told) -> None:
    proxy, chat, ident = told.proxy, told.chat, told.hit["id"]
    entry = await posted(proxy, chat, "describe", id=ident)
    assert (entry["kind"], entry["id"], entry["totalChars"]) == ("payload", ident, len(TEXT))
    assert len(entry["preview"]) <= 4_000
    assert NEEDLE not in entry["preview"]
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        path = f"/api/context/{ident}?offset={offset}&limit=300001"
        page = (await proxy.http.get(path, headers=chat.headers)).json()
        pieces.append(page["text"])
        offset = page["next_offset"]
    assert len(pieces) == 7
    assert "".join(pieces) == TEXT


@pytest.mark.spec("C11")
async def test_a_tool_reads_on_to_the_end(told: Told) -> None:
    proxy, chat, ident = told.proxy, told.chat, told.hit["id"]
    start = len(TEXT) - 40_000
    pieces: list[str] = []
    offset: int | None = start
    while offset is not None:
        page = await posted(proxy, chat, "describe", id=ident, offset=offset, limit=16_000)
        assert page["kind"] == "payload"
        pieces.append(page["text"])
        offset = page["nextOffset"]
    assert [len(piece) for piece in pieces] == [16_000, 16_000, 8_000]
    assert "".join(pieces) == TEXT[start:]


@pytest.mark.spec("C11")
async def test_what_takes_more_than_25_000_tokens_is_large(told: Told) -> None:
    chat = told.proxy.chat(key="another")
    words = 25_000 - counter().count_message({"role": "user", "content": ""})
    for more in (0, 1):
        message = {"role": "user", "content": " ".join(["word"] * (words + more))}
        assert counter().count_message(message) == 25_000 + more
        await chat.sends(message)
    ids = [row["id"] for row in await chat.rows() if row["role"] == "user"]
    kinds = [(await posted(told.proxy, chat, "describe", id=ident))["kind"] for ident in ids]
    assert kinds == ["message", "payload"]


@pytest.mark.spec("C11")
async def test_it_is_kept_once(told: Told) -> None:
    """The row of a message refers to the body; no other table has any of it."""
    with driver.connect(told.folder / "palimpsest.db") as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith(("recall_words", "sqlite_"))
        ]
        holding: dict[str, int] = {}
        for table in tables:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            held = " OR ".join(f"instr(CAST({column} AS BLOB), CAST(? AS BLOB))" for column in columns)
            (rows,) = database.execute(
                f"SELECT count(*) FROM {table} WHERE {held}", [NEEDLE] * len(columns)
            ).fetchone()
            holding[table] = rows
    assert {table: rows for table, rows in holding.items() if rows} == {"bodies": 1}
