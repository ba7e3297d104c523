"""What a namespace can find again, and entries that are folded ten at a time (A30, B16)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.journal import memories, read
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def add(proxy: Proxy, chat: Chat, text: str) -> Json:
    path = f"/api/sessions/{chat.session}/memory-block"
    reply = await proxy.http.post(path, headers=chat.headers, json={"text": text})
    assert reply.status_code == 201, reply.text
    value: Json = reply.json()
    return value


async def search(proxy: Proxy, chat: Chat, words: str, **params: Any) -> list[Json]:
    reply = await proxy.http.get("/api/memory/search", headers=chat.headers, params={"q": words, **params})
    assert reply.status_code == 200, reply.text
    found: list[Json] = reply.json()["memories"]
    return found


async def compacted(proxy: Proxy, name: str, word: str) -> tuple[Chat, Json]:
    """A conversation about a word that was compacted."""
    chat = proxy.chat(session=name)
    for turn in range(8):
        await chat.says(f"Question {turn} about the {word}: " + f"detail {turn} of the {word}. " * 60)
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json()["compacted"], reply.text
    return chat, reply.json()["compaction"]


@pytest.mark.spec("A30")
async def test_every_summary_is_found_from_any_session(proxy: Proxy) -> None:
    harbour, record = await compacted(proxy, "harbour", "harbour")
    orchard, _ = await compacted(proxy, "orchard", "orchard")
    (found,) = await search(proxy, orchard, "HARBOUR detail")
    assert (found["session"], found["kind"], found["compaction"]) == (
        harbour.session,
        "summary",
        record["id"],
    )
    assert found["text"].strip() in record["summary"]
    assert await search(proxy, orchard, "harbour orchard") == []
    assert [one["compaction"] for one in await memories(proxy.http, harbour, "summary")] == [record["id"]]
    both = await search(proxy, orchard, "")
    assert [one["session"] for one in both] == [orchard.session, harbour.session]
    assert [one["session"] for one in await search(proxy, orchard, "", limit=1)] == [orchard.session]


@pytest.mark.spec("A30", "P5")
async def test_nobody_finds_what_another_remembers(proxy: Proxy, chat: Chat) -> None:
    await add(proxy, chat, "The code word is periwinkle.")
    stranger = proxy.chat(key="stranger")
    await stranger.says("hello")
    assert len(await search(proxy, chat, "periwinkle")) == 1
    assert await search(proxy, stranger, "periwinkle") == []


async def test_at_fifteen_the_ten_oldest_become_the_block(proxy: Proxy, chat: Chat) -> None:
    for number in range(14):
        done = await add(proxy, chat, f"Fact {number} is noted.")
        assert (done["folded"], done["block"], len(done["entries"])) == (0, "", number + 1)
    assert await memories(proxy.http, chat, "block") == []
    done = await add(proxy, chat, "Fact 14 is noted.")
    assert (done["folded"], len(done["entries"])) == (10, 5)
    assert done["entries"] == [f"Fact {number} is noted." for number in range(10, 15)]
    assert all(f"Fact {number} is noted." in done["block"] for number in range(10))
    entries, blocks = [await memories(proxy.http, chat, kind) for kind in ("entry", "block")]
    assert [one["text"] for one in reversed(entries)] == done["entries"]
    assert [one["text"] for one in blocks] == [done["block"]]


async def test_the_next_fold_continues_the_block(proxy: Proxy, chat: Chat) -> None:
    for number in range(25):
        done = await add(proxy, chat, f"Fact {number} is noted.")
    assert (done["folded"], len(done["entries"])) == (10, 5)
    assert all(f"Fact {number} is noted." in done["block"] for number in range(20))
    assert len(await memories(proxy.http, chat, "block")) == 1


async def test_entries_added_at_once_are_all_kept(proxy: Proxy, chat: Chat) -> None:
    await asyncio.gather(*(add(proxy, chat, f"Fact {number} is noted.") for number in range(20)))
    entries, blocks = [await memories(proxy.http, chat, kind) for kind in ("entry", "block")]
    whole = "\n".join(one["text"] for one in (*blocks, *entries))
    assert all(f"Fact {number} is noted." in whole for number in range(20))
    assert (len(blocks), len(entries)) == (1, 10)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": " \n"}, "text"),
        ({"text": "x", "kind": "block"}, "kind"),
        ({"text": 1}, "text"),
    ],
)
async def test_an_entry_says_something(proxy: Proxy, chat: Chat, body: Json, param: str) -> None:
    path = f"/api/sessions/{chat.session}/memory-block"
    reply = await proxy.http.post(path, headers=chat.headers, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert await memories(proxy.http, chat, "entry") == []


async def test_a_search_is_bounded(proxy: Proxy, chat: Chat) -> None:
    path = f"/api/memory/search?q={'x' * 1001}"
    reply = await proxy.http.get(path, headers=chat.headers)
    assert reply.status_code == httpx.codes.BAD_REQUEST


async def test_memories_come_page_by_page(proxy: Proxy, chat: Chat) -> None:
    for number in range(5):
        await add(proxy, chat, f"Fact {number} is noted.")
    for path in (f"sessions/{chat.session}/memory", "memory/search"):
        texts, after = [], ""
        while after is not None:
            page = await read(proxy.http, chat, f"{path}?limit=2" + (f"&after={after}" if after else ""))
            assert len(page["memories"]) <= 2
            texts += [one["text"] for one in page["memories"]]
            after = page["next"]
        assert texts == [f"Fact {number} is noted." for number in reversed(range(5))]
