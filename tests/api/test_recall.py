"""Finding what was said, by search, by the recall tools and by MCP: whose, on which path, in any words."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from palimpsest.core.recall.tool_results import summary_id

from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.model import Says
from tests.kit.proxy import Proxy
from tests.kit.words import prose

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
REFUSED = Says(status=400, error={"error": {"message": "no", "type": "invalid_request_error"}})
NOTHING = ("dcm_" + "0" * 32, "dcs_x", "nothing", "dcm_12", str(uuid.uuid4()), "%", "\u0000")


async def grep(chat: Chat, query: str, *, status: int | None = None, **order: Any) -> Json:
    order = {"session": chat.session, "query": query, **order}
    found: Json = await chat.asks("POST", "context/grep", order, status=status)
    return found


async def describe(chat: Chat, ident: str, **order: Any) -> Any:
    return await chat.asks("POST", "context/describe", {"session": chat.session, "id": ident, **order})


async def search(chat: Chat, question: str, **params: Any) -> Json:
    found: Json = await chat.asks("GET", "/search", q=question, **params)
    return found


def shown(found: Json) -> str:
    """All that a search shows."""
    hits = found["results"]
    return "\n".join(quote["text"] for hit in hits for quote in (hit, *hit["before"], *hit["after"]))


@pytest_asyncio.fixture(loop_scope="module")
async def told(proxy: Proxy) -> Chat:
    talk = proxy.chat(system="Be kind.", session="garden")
    proxy.model.says("A fine choice.", "Sunflowers, and some kale.", "Noted.", "How sad.")
    await talk.says("Last Saturday I painted the rowing boat in green.")
    await talk.says("What did I say we would plant behind the shed?")
    await talk.says("The gate code is 4471-KLM, 100% sure_thing.")
    await talk.says("My grandmother's greyhound died on Friday.")
    return talk


@pytest.mark.spec("C04")
async def test_a_question_finds_an_exact_quote_in_other_words(told: Chat) -> None:
    question = "When was the boat painted, and in which colour?"
    searched, found = (await search(told, question))["results"][0], await grep(told, question)
    best, said = found["results"][0], told.said[1]["content"]
    assert (searched["text"], searched["role"], searched["kind"], searched["start"]) == (
        *(said, "user", "message"),
        0,
    )
    assert await told.recalls(searched["id"]) == said
    assert (found["tool"], found["session"]) == ("context_grep", told.session)
    at = datetime.fromisoformat(searched["time"])
    assert at.tzinfo is not None
    about = {"id": "1", "turn": 1, "date": f"{at:%Y-%m-%d}", "speaker": "user"}
    assert best == about | {"snippet": said}
    assert found["totalFound"] >= len(found["results"]) >= 1
    # Related words find it too, and an answer comes with its question.
    assert "greyhound" in (await search(told, "Which dog passed away?"))["results"][0]["text"]
    assert "Sunflowers, and some kale." in shown(await search(told, "plants behind the shed", limit=1))
    # The newest session is meant unless one is named.
    assert (await grep(told, question, session=None))["session"] == told.session


@pytest.mark.spec("C15")
@pytest.mark.parametrize(
    "question",
    [
        "100% sure_thing", '"4471-KLM"', "'; DROP TABLE messages; --", "NEAR(gate code, 3) OR * AND (",
        'gate" code"" ^col:x', "\x00 gate", "%_%", "(" * 500, "gate " * 380, "🚪 gate", "?", "",
    ],
)  # fmt: skip
async def test_no_question_is_an_error(told: Chat, question: str) -> None:
    found = await search(told, question)
    if "gate" in question or "4471" in question or "sure_thing" in question:
        assert "The gate code is 4471-KLM" in shown(found)


@pytest.mark.spec("C15")
async def test_what_has_no_words_is_found_by_its_letters_beside_an_odd_message(proxy: Proxy) -> None:
    talk = proxy.chat()
    odd: Json = {"role": "assistant", "content": "odd", "tool_calls": 5}
    said = [{"role": "user", "content": "The marker is <%_%> here."}, odd]
    await talk.posts([*said, {"role": "user", "content": "Nothing of the kind."}])
    hits = (await search(talk, "<%_%>"))["results"]
    assert [hit["text"] for hit in hits if hit["role"] == "user"] == ["The marker is <%_%> here."]


@pytest.mark.spec("C04")
async def test_how_much_is_found_is_bounded_and_a_query_is_required(proxy: Proxy) -> None:
    talk = proxy.chat(session="many")
    for turn in range(45):
        await talk.says(f"The plum number {turn} of the tree.")
    for limit in (0, -5):
        assert len((await grep(talk, "plum", limit=limit))["results"]) == 1
        assert len((await search(talk, "plum", limit=limit))["results"]) == 1
    assert len((await grep(talk, "plum"))["results"]) == 10
    # A message that a better hit shows beside it is not found again.
    assert 10 < len((await grep(talk, "plum tree", limit=999))["results"]) <= 50
    orders: list[Json] = [{"query": ""}, {"query": 3}, {"kind": "poem"}, {"role": "developer"}]
    for order in orders:
        assert (await grep(talk, **{"query": "plum", **order}, status=400))["code"] == "invalid_parameter"
    for only in ({"kind": "poem"}, {"role": "developer"}):
        await talk.asks("GET", "/search", status=400, q="plum", **only)


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
    snippets = [hit["snippet"] for hit in (await grep(talk, "quince ripe"))["results"]]
    (long,) = [text for text in snippets if len(text) > 100]
    assert "The quince is ripe." in long
    assert 580 < len(long) <= 600


@pytest_asyncio.fixture(loop_scope="module")
async def worked(proxy: Proxy) -> Chat:
    """An agent ran a command, which failed, and opened a file; all of it speaks of a beacon."""
    chat = proxy.chat(system="You help.", session="worked")
    proxy.model.calls(("r1", "run", {"command": "make beacon"}))
    await chat.says("Build the beacon.")
    proxy.model.calls(("r2", "open", {"path": "src/beacon.c"}))
    await chat.sends({"role": "tool", "tool_call_id": "r1", "content": "beacon.c:3: error: expected ';'"})
    proxy.model.says("The beacon is built.")
    await chat.sends({"role": "tool", "tool_call_id": "r2", "content": "int beacon;"})
    return chat


KEPT_TO: list[tuple[Json, set[int]]] = [
    ({}, {1, 2, 3, 4, 5, 6}),
    ({"role": "user"}, {1}),
    ({"role": "assistant"}, {2, 4, 6}),
    ({"role": "tool"}, {3, 5}),
    ({"kind": "command"}, {2}),
    ({"kind": "file"}, {4}),
    ({"kind": "error"}, {3}),
    ({"role": "user", "kind": "error"}, set()),
    ({"kind": "summary"}, set()),
]


@pytest.mark.spec("C04")
async def test_a_search_is_kept_to_what_is_asked_for(worked: Chat) -> None:
    ids = {row["id"]: row["position"] for row in await worked.rows()}
    for only, positions in KEPT_TO:
        for found in (await grep(worked, "beacon", **only), await search(worked, "beacon", **only)):
            at = {ids.get(hit["id"]) or int(hit["id"]) for hit in found["results"]}
            # What a better hit shows beside it is not found again.
            assert at <= positions
            assert bool(at) == bool(positions)
            assert found.get("totalFound", found.get("total_found")) == len(positions)


@pytest.mark.spec("C04")
async def test_what_is_counted_is_what_matches_and_not_what_is_returned(proxy: Proxy) -> None:
    chat = proxy.chat(session="many")
    barges = [{"role": "user", "content": f"Barge number {number} of the harbour."} for number in range(700)]
    await chat.sends(*barges, {"role": "user", "content": "Nothing of the kind."})
    few = await grep(chat, "barge", limit=3)
    assert (len(few["results"]), few["totalFound"], "totalFoundIsAtLeast" in few) == (3, 700, False)
    assert (await search(chat, "barge", limit=3))["total_is_counted"] is True
    # A kind that stands behind the best is found all the same.
    assert (await grep(chat, "barge", role="assistant"))["totalFound"] == 0
    await chat.sends(*({**one, "content": one["content"] + " Again."} for one in barges[:400]))
    many = await search(chat, "barge", limit=3)
    assert (many["total_found"], many["total_is_counted"]) == (1_000, False)
    assert (await grep(chat, "barge", limit=3))["totalFoundIsAtLeast"] is True


@pytest.mark.spec("C05")
async def test_a_message_is_described_as_who_said_what(told: Chat) -> None:
    row = (await told.rows())[3]
    entry = await describe(told, row["id"])
    assert entry["text"] == f"{row['message']['role']}: {row['message']['content']}"
    assert (entry["kind"], entry["id"], entry["session"]) == ("message", row["id"], told.session)
    assert entry["nextOffset"] is None
    assert [await describe(told, ident) for ident in NOTHING] == [None] * len(NOTHING)


@pytest.mark.spec("C05", "C12", "C13", "C20")
async def test_a_summary_is_found_and_described_with_its_sources(proxy: Proxy) -> None:
    chat = proxy.chat(session="folded")
    for turn in range(8):
        await chat.says(f"Question {turn}: the lighthouse, " + prose(turn, 350))
    question = "lighthouse summary question"
    assert {hit["kind"] for hit in (await search(chat, question, limit=50))["results"]} == {"message"}
    first = (await chat.compacts())["id"]
    for turn in range(8, 14):
        await chat.says(f"Question {turn}: the lighthouse, " + prose(turn, 350))
    second = (await chat.compacts())["id"]
    folded = {one["id"]: one["messages_folded"] for one in await chat.compactions()}
    ids = [row["id"] for row in await chat.rows()]
    leaf = await describe(chat, first, sourceLimit=3)
    assert (leaf["kind"], leaf["depth"], leaf["node"], leaf["parents"]) == ("summary", 0, "leaf", [])
    assert "<palimpsest_summary>" not in leaf["text"]
    positions = [ids.index(source["id"]) for source in leaf["sources"]]
    assert (len(positions), positions) == (3, sorted(positions))
    assert leaf["sourceMessageCount"] == folded[first]
    node = await describe(chat, "dcs_" + second, sourceLimit=999)
    assert (node["depth"], node["node"], node["parents"]) == (1, "node", [summary_id(first)])
    assert node["sourceMessageCount"] == folded[second] - folded[first]
    assert not {source["id"] for source in node["sources"]} & {source["id"] for source in leaf["sources"]}
    assert all(source["firstLine"] and len(source["firstLine"]) <= 160 for source in node["sources"])
    described = {summary_id(first): leaf, summary_id(second): node}
    found = (await grep(chat, question, limit=50, kind="summary"))["results"]
    assert found
    for hit in found:
        for fact in ("depth", "sourceMessageCount"):
            assert hit[fact] == described[hit["id"]][fact]
    # Without being asked for, messages are found alone.
    assert {hit["kind"] for hit in (await search(chat, question, limit=50))["results"]} == {"message"}
    assert {hit["id"] for hit in (await search(chat, question, kind="summary"))["results"]} <= {*described}


@pytest.mark.spec("C06", "P5")
async def test_another_session_is_searched_only_when_asked_for_and_another_callers_never(
    proxy: Proxy, told: Chat
) -> None:
    ident = (await told.rows())[5]["id"]
    mine, theirs = proxy.chat(session="another"), proxy.chat(key=uuid.uuid4().hex, session="garden")
    for chat in (mine, theirs):
        await chat.says("Something else.")
        for scope in ("branch", "session"):
            assert await describe(chat, ident, scope=scope) is None
            assert (await grep(chat, "gate code 4471-KLM", scope=scope))["results"] == []
            assert "4471" not in shown(await search(chat, "gate code 4471-KLM", scope=scope))
        await chat.asks("POST", "context/grep", {"query": "gate", "session": "nowhere"}, status=404)
    elsewhere = await search(mine, "gate code", scope="namespace")
    assert "4471" in shown(elsewhere)
    assert elsewhere["results"][0]["session"] == told.session
    assert "4471" not in shown(await search(theirs, "gate code", scope="namespace"))
    await grep(theirs, "gate", session=told.session, status=404)


@pytest.mark.spec("C19", "C20")
async def test_an_empty_session_has_no_hits_and_no_error(proxy: Proxy, told: Chat) -> None:
    chat = proxy.chat(session="empty")
    # All that was ever said there was refused, and is on no path.
    proxy.model.answers.append(REFUSED)
    assert (await chat.posts([{"role": "user", "content": "The gate code is 4471-KLM."}])).status_code == 400
    for one, query in ((chat, "gate code"), (told, "zeppelin")):
        found = await grep(one, query)
        assert (found["results"], found["totalFound"]) == ([], 0)
        assert (await search(one, query))["results"] == []
    assert await describe(chat, NOTHING[0]) is None
    # Of two sessions that begin alike each has its own fate.
    first, second = proxy.chat(session="answered"), proxy.chat(session="refused")
    await first.says("The harbour beacon is crimson.")
    proxy.model.answers.append(REFUSED)
    assert (await second.posts([{"role": "user", "content": "The harbour beacon is crimson."}])).is_error
    assert "crimson" in json.dumps(await describe(first, (await first.rows())[0]["id"]))


@pytest.mark.spec("C18")
async def test_each_use_leaves_an_event(proxy: Proxy, told: Chat) -> None:
    await grep(told, "gate code", via="mcp")
    await describe(told, NOTHING[0])
    recalled = await events(proxy.http, told, ["context_recalled"])
    searched, read = (event["payload"] for event in recalled[-2:])
    assert (searched["tool"], searched["asked"], searched["via"]) == ("context_grep", "gate code", "mcp")
    assert searched["totalFound"] >= searched["resultCount"] >= 1
    assert (searched["requestedSession"], searched["explicitUserRequest"]) == (None, False)
    assert searched["effectiveSession"] == told.session
    assert (read["tool"], read["via"], read["resultCount"]) == ("context_describe", "rest", 0)


@pytest.mark.spec("F27")
async def test_what_was_edited_away_comes_back_only_when_asked_for(told: Chat) -> None:
    await told.posts([*told.said[:5], {"role": "user", "content": "The gate code is 9020-ZZZ."}])
    # What was said last is the conversation.
    new, old = (branch["branch"] for branch in (await told.session_fields())["branches"])
    for places, codes in (({"branch": old}, "4471"), ({"branch": new}, "9020"), ({"scope": "session"}, "")):
        text = shown(await search(told, "gate code", **places))
        assert [code in text for code in ("4471", "9020")] == [codes in ("4471", ""), codes in ("9020", "")]


@pytest.mark.spec("P11")
async def test_other_branches_do_not_take_the_places_of_this_one(proxy: Proxy) -> None:
    talk = proxy.chat()
    await talk.says("The harbour beacon is crimson.")
    for number in range(12):
        many = [{"role": "user", "content": f"harbour beacon {number} {part} crimson"} for part in range(30)]
        await talk.posts([*talk.said, *many])
    answer = (await talk.rows())[1]["id"]
    hits = await search(talk, "harbour beacon crimson", branch=answer)
    assert "The harbour beacon is crimson." in shown(hits)


@asynccontextmanager
async def client_of(proxy: Proxy, chat: Chat) -> AsyncIterator[Client]:
    """The official SDK's own client, over real HTTP."""
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


@pytest.mark.spec("C04", "C05", "C18", "P5")
async def test_an_mcp_client_finds_and_reads_what_is_its_callers(proxy: Proxy, told: Chat) -> None:
    said = told.said[1]["content"]
    async with client_of(proxy, told) as client:
        tools = (await client.list_tools()).tools
        found = await called(client, "context_grep", query="In which colour was the boat painted?", limit=0)
        (hit,) = found["results"]
        assert (hit["snippet"], found["session"]) == (said, told.session)
        entry = await called(client, "context_describe", id=hit["id"])
        assert entry["text"] == f"user: {said}"
        assert await called(client, "context_describe", id=NOTHING[0]) is None
        newer = proxy.chat(session="newer")
        await newer.says("The gate is open.")
        # The session is the one that is named, or the newest.
        assert (await called(client, "context_grep", query="gate"))["session"] == newer.session
        named = await called(client, "context_grep", query="gate", session="garden")
        assert named["session"] == told.session
        for wrong in ({"query": "gate", "session": "nowhere"}, {}):
            assert (await client.call_tool("context_grep", wrong)).is_error
    assert [tool.name for tool in tools] == ["context_grep", "context_describe"]
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert "session" in tool.input_schema["properties"]
    (first, *_) = await events(proxy.http, told, ["context_recalled"])
    assert (first["payload"]["via"], first["payload"]["asked"][:9]) == ("mcp", "In which ")
    stranger = proxy.chat(key=uuid.uuid4().hex)
    async with client_of(proxy, stranger) as client:
        # Nothing is stored for this key yet.
        assert (await client.call_tool("context_grep", {"query": "gate"})).is_error
        await stranger.says("Hello.")
        for name in ("garden", told.session):
            assert (await client.call_tool("context_grep", {"query": "gate", "session": name})).is_error
        assert (await called(client, "context_grep", query="gate code 4471"))["results"] == []


async def test_mcp_refuses_a_page_of_another_host_and_keeps_nothing_open(proxy: Proxy, told: Chat) -> None:
    about = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    asks = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accepted = {**told.headers, "accept": "application/json, text/event-stream"}
    for origin, status in (("https://evil.example", 403), ("http://localhost:6274", 403), (proxy.url, 200)):
        reply = await proxy.http.post("/mcp", headers=accepted | {"origin": origin}, json=asks)
        assert reply.status_code == status, reply.text
    assert (await proxy.http.get("/mcp", headers=accepted)).status_code == 405
