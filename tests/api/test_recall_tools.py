"""The recall tools by HTTP, through the running proxy: bounds, scope, sources, pages, events."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from palimpsest.core.recall.tool_results import summary_id

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def posted(proxy: Proxy, chat: Chat, tool: str, **order: Any) -> httpx.Response:
    order = {"session": chat.session, **order}
    return await proxy.http.post(f"/api/context/{tool}", headers=chat.headers, json=order)


async def grep(proxy: Proxy, chat: Chat, query: str, **order: Any) -> Json:
    reply = await posted(proxy, chat, "grep", query=query, **order)
    assert reply.status_code == 200, reply.text
    found: Json = reply.json()
    return found


async def describe(proxy: Proxy, chat: Chat, ident: str, **order: Any) -> Json | None:
    reply = await posted(proxy, chat, "describe", id=ident, **order)
    assert reply.status_code == 200, reply.text
    entry: Json | None = reply.json()
    return entry


async def compact(proxy: Proxy, chat: Chat) -> str:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json()["compacted"], reply.text
    ident: str = reply.json()["compaction"]["id"]
    return ident


@pytest_asyncio.fixture(loop_scope="module")
async def told(proxy: Proxy) -> Chat:
    talk = proxy.chat(system="Be kind.", session="garden")
    proxy.model.says("A fine choice.", "Noted.")
    await talk.says("Last Saturday I painted the rowing boat in green.")
    await talk.says("The gate code is 4471-KLM.")
    return talk


@pytest_asyncio.fixture(loop_scope="module")
async def folded(proxy: Proxy) -> tuple[Chat, str, str]:
    """A conversation that was compacted twice; its summaries speak of a lighthouse."""
    chat = proxy.chat(session="folded")
    for turn in range(8):
        await chat.says(f"Question {turn}: the lighthouse, " + prose(turn, 350))
    first = await compact(proxy, chat)
    for turn in range(8, 14):
        await chat.says(f"Question {turn}: the lighthouse, " + prose(turn, 350))
    return chat, first, await compact(proxy, chat)


@pytest.mark.spec("C04")
async def test_a_hit_has_all_that_is_promised(proxy: Proxy, told: Chat) -> None:
    found = await grep(proxy, told, "In which colour was the boat painted?")
    assert (found["tool"], found["session"]) == ("context_grep", told.session)
    best = found["results"][0]
    assert (best["kind"], best["role"], best["session"]) == ("message", "user", told.session)
    assert best["snippet"] == told.said[1]["content"]
    assert best["id"] in [row["id"] for row in await told.rows()]
    at = datetime.fromisoformat(best["time"])
    assert at.tzinfo is not None
    assert best["month"] == f"{at:%B} {at.year}"
    assert (best["depth"], best["sourceMessageCount"]) == (None, None)
    assert found["totalFound"] >= len(found["results"]) >= 1


@pytest.mark.spec("C04")
async def test_how_much_is_found_is_bounded_and_a_query_is_required(proxy: Proxy) -> None:
    talk = proxy.chat(session="many")
    for turn in range(45):
        await talk.says(f"The plum number {turn} of the tree.")
    assert len((await grep(proxy, talk, "plum", limit=0))["results"]) == 1
    assert len((await grep(proxy, talk, "plum"))["results"]) == 10
    # A message that a better hit shows beside it is not found again.
    assert 10 < len((await grep(proxy, talk, "plum tree", limit=999))["results"]) <= 50
    for order in ({}, {"query": ""}, {"query": 3}):
        reply = await posted(proxy, talk, "grep", **order)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_parameter")


@pytest.mark.spec("C16")
async def test_a_snippet_is_short(proxy: Proxy) -> None:
    talk = proxy.chat(session="long")
    await talk.says(prose(1, 900) + " The quince is ripe. " + prose(2, 900))
    for number in range(6):
        # So far apart that none is shown beside another.
        for walk in range(4):
            await talk.says(f"We talked of the weather on walk {number} {walk}.")
        await talk.says(f"The quince {number} is ripe.")
    # What short hits leave of their room a long one may use.
    snippets = [hit["snippet"] for hit in (await grep(proxy, talk, "quince ripe"))["results"]]
    (long,) = [text for text in snippets if len(text) > 100]
    assert "The quince is ripe." in long
    assert 580 < len(long) <= 600


@pytest.mark.spec("C05")
async def test_a_message_is_described_as_who_said_what(proxy: Proxy, told: Chat) -> None:
    row = (await told.rows())[3]
    entry = await describe(proxy, told, row["id"])
    assert entry is not None
    assert entry["text"] == f"{row['message']['role']}: {row['message']['content']}"
    assert (entry["kind"], entry["id"], entry["session"]) == ("message", row["id"], told.session)
    assert entry["nextOffset"] is None


@pytest.mark.spec("C05")
async def test_what_is_unknown_is_null(proxy: Proxy, told: Chat) -> None:
    for ident in ("dcm_" + "0" * 32, "dcs_x", "nothing", "dcm_12", str(uuid.uuid4()), "%", "\u0000"):
        assert await describe(proxy, told, ident) is None


@pytest.mark.spec("C05")
async def test_a_large_result_is_previewed_and_read_in_pages(tmp_path: Path) -> None:
    lines = [f"{number:06d} " + "log line " * 3 for number in range(9_000)]
    text = "\n".join(lines)
    async with proxied(ModelServer(window=400_000), tmp_path) as proxy:
        talk = proxy.chat(session="large")
        await talk.says(text)
        ident = (await talk.rows())[0]["id"]
        entry = await describe(proxy, talk, ident)
        assert entry is not None
        await reads_on(proxy, talk, entry, text)
        assert entry["preview"].startswith(lines[0])
        assert lines[-1] in entry["preview"]


async def reads_on(proxy: Proxy, talk: Chat, entry: Json, text: str) -> None:
    """The whole text, page by page, as the preview says how."""
    assert (entry["kind"], entry["totalChars"]) == ("payload", len(text))
    assert len(entry["preview"]) <= 4_000
    pages, offset = [], entry["nextOffset"]
    while offset is not None:
        page = await describe(proxy, talk, entry["id"], offset=offset, limit=16_000)
        assert page is not None
        pages.append(page["text"].removeprefix("user: "))
        offset = page["nextOffset"]
    assert "".join(pages) == text


@pytest.mark.spec("C05", "C13")
async def test_a_summary_is_described_with_its_sources(proxy: Proxy, folded: tuple[Chat, str, str]) -> None:
    chat, first, second = folded
    rows = [row for row in await chat.rows() if row["origin"] != "instructions"]
    entry = await describe(proxy, chat, first, sourceLimit=3)
    assert entry is not None
    assert (entry["kind"], entry["depth"], entry["node"], entry["parents"]) == ("summary", 0, "leaf", [])
    assert "<palimpsest_summary>" not in entry["text"]
    shown = [(source["id"], source["role"]) for source in entry["sources"]]
    assert len(shown) == 3
    positions = [[row["id"] for row in rows].index(ident) for ident, _ in shown]
    assert positions == sorted(positions)
    record = next(one for one in await chat.compactions() if one["id"] == first)
    assert entry["sourceMessageCount"] == record["messages_folded"]
    newer = await describe(proxy, chat, "dcs_" + second, sourceLimit=999)
    assert newer is not None
    assert (newer["depth"], newer["parents"]) == (1, [summary_id(first)])
    assert not {source["id"] for source in newer["sources"]} & {source["id"] for source in entry["sources"]}
    assert all(source["firstLine"] and len(source["firstLine"]) <= 160 for source in newer["sources"])


@pytest.mark.spec("C12")
async def test_summaries_have_parents_and_a_depth(proxy: Proxy, folded: tuple[Chat, str, str]) -> None:
    chat, first, second = folded
    records = {one["id"]: one for one in await chat.compactions()}
    newly = records[second]["messages_folded"] - records[first]["messages_folded"]
    leaf, node = [await describe(proxy, chat, summary_id(ident)) or {} for ident in (first, second)]
    assert (leaf["node"], leaf["depth"], leaf["parents"]) == ("leaf", 0, [])
    assert (node["node"], node["depth"], node["parents"]) == ("node", 1, [summary_id(first)])
    assert node["sourceMessageCount"] == newly
    found = await grep(proxy, chat, "lighthouse summary question", limit=50, kind="summary")
    shown = {summary_id(first): leaf, summary_id(second): node}
    assert found["results"]
    for hit in found["results"]:
        for fact in ("depth", "sourceMessageCount"):
            assert hit[fact] == shown[hit["id"]][fact]


@pytest.mark.spec("C06", "P5")
async def test_an_id_of_another_session_or_caller_is_null(proxy: Proxy, told: Chat) -> None:
    ident = (await told.rows())[3]["id"]
    key = told.headers["authorization"].split()[1]
    mine = proxy.chat(key=key, session="another")
    await mine.says("Something else.")
    assert await describe(proxy, mine, ident) is None
    assert await describe(proxy, mine, ident, scope="session") is None
    assert (await grep(proxy, mine, "gate code 4471-KLM"))["results"] == []
    theirs = proxy.chat(key=uuid.uuid4().hex, session="garden")
    await theirs.says("Something else.")
    assert await describe(proxy, theirs, ident) is None
    assert (await posted(proxy, theirs, "grep", query="gate", session=told.session)).status_code == 404


@pytest.mark.spec("C19")
async def test_an_empty_session_has_no_hits_and_no_error(proxy: Proxy) -> None:
    chat = proxy.chat(session="empty")
    error = {"error": {"message": "no", "type": "invalid_request_error"}}
    # All that was ever said there was refused, and is on no path.
    proxy.model.answers.append(Says(status=400, error=error))
    refused = await chat.posts([{"role": "user", "content": "The gate code is 4471-KLM."}])
    assert refused.status_code == 400
    for tool, order in (("grep", {"query": "gate code"}), ("describe", {"id": "dcm_" + "0" * 32})):
        path, asked = f"/api/context/{tool}", {"session": "empty", **order}
        reply = await proxy.http.post(path, headers=chat.headers, json=asked)
        assert reply.status_code == 200, reply.text
        assert (reply.json() or {"results": [], "totalFound": 0})["results"] == []
    found = await proxy.http.get("/api/sessions/empty/search?q=gate", headers=chat.headers)
    assert (found.status_code, found.json()["results"]) == (200, [])


@pytest.mark.spec("C20")
async def test_without_compactions_messages_are_found_and_elsewhere_nothing(proxy: Proxy, told: Chat) -> None:
    found = await grep(proxy, told, "gate code")
    assert {hit["kind"] for hit in found["results"]} == {"message"}
    assert await told.compactions() == []
    empty = await grep(proxy, told, "zeppelin")
    assert (empty["results"], empty["totalFound"]) == ([], 0)


async def test_the_newest_session_is_meant_unless_one_is_named(proxy: Proxy, told: Chat) -> None:
    found = await grep(proxy, told, "gate code", session=None)
    assert found["session"] == told.session
    headers = {"authorization": f"Bearer {uuid.uuid4().hex}"}
    reply = await proxy.http.post("/api/context/grep", headers=headers, json={"query": "gate"})
    assert reply.status_code == 404


def shown(found: Json) -> list[str]:
    return [
        text
        for hit in found["results"]
        for text in (hit["snippet"], *hit.get("before", ()), *hit.get("after", ()))
    ]


@pytest.mark.spec("C18")
async def test_each_use_leaves_an_event(proxy: Proxy, told: Chat) -> None:
    await grep(proxy, told, "gate code", via="mcp")
    await describe(proxy, told, "dcm_" + "0" * 32)
    path = f"/api/sessions/{told.session}/events?types=context_recalled"
    events = (await proxy.http.get(path, headers=told.headers)).json()["events"]
    searched, read = (event["payload"] for event in events[-2:])
    assert (searched["tool"], searched["asked"], searched["via"]) == ("context_grep", "gate code", "mcp")
    assert searched["resultCount"] >= 1
    assert searched["totalFound"] >= searched["resultCount"]
    assert (searched["requestedSession"], searched["explicitUserRequest"]) == (None, False)
    assert searched["effectiveSession"] == told.session
    assert (read["tool"], read["via"], read["resultCount"]) == ("context_describe", "rest", 0)


async def test_of_two_sessions_that_begin_alike_each_has_its_own_fate(proxy: Proxy) -> None:
    first, second = proxy.chat(session="answered"), proxy.chat(session="refused")
    await first.says("The harbour beacon is crimson.")
    error = {"error": {"message": "no", "type": "invalid_request_error"}}
    proxy.model.answers.append(Says(status=400, error=error))
    refused = await second.posts([{"role": "user", "content": "The harbour beacon is crimson."}])
    assert refused.status_code == 400
    ident = (await first.rows())[0]["id"]
    entry = await describe(proxy, first, ident)
    assert entry is not None
    assert "crimson" in json.dumps(entry)
