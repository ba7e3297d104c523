"""What else reads stored messages, shown a session of the Responses API: every page says what was said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from palimpsest.core.wire.json_spans import raw_elements, raw_members

from tests.kit.journal import AT_THE_END
from tests.kit.page import Node, page_of
from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import (
    ResponsesChat,
    ResponsesServer,
    call_item,
    result_item,
    text_item,
    thought_item,
)
from tests.kit.terminal import runs
from tests.kit.words import prose

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("W51")]

Json = dict[str, Any]
KEY = {"authorization": "Bearer key-1"}
TOOLS = [{"type": "function", "name": "read_file", "parameters": {"type": "object", "properties": {}}}]
PARTS = [
    {"type": "input_text", "text": "The walrus weighs 1,732 kilograms."},
    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
]
ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weigh the walrus."}]}


@dataclass
class Told:
    """A session with a turn of tools, and the proxy it went through."""

    proxy: Proxy
    chat: ResponsesChat
    server: ResponsesServer

    async def read(self, path: str, **params: Any) -> Any:
        reply = await self.proxy.http.get(f"/api/{path}", params=params, headers=KEY)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def post(self, path: str, body: Json | None = None) -> httpx.Response:
        return await self.proxy.http.post(f"/api/{path}", json=body or {}, headers=KEY)

    async def messages(self) -> list[Json]:
        rows = await self.read(f"sessions/{self.chat.session}/messages", limit=1000)
        listed: list[Json] = rows["messages"]
        return listed


async def worked(proxy: Proxy, server: ResponsesServer, name: str) -> Told:
    """The conversation that the tests read."""
    headers = KEY | {"x-session-id": name}
    chat = ResponsesChat(proxy.http, headers=headers, tools=TOOLS)
    words = text_item("Let me fetch the marmalade scales.", "msg_a")
    server.outputs.append(
        [thought_item("rs_1"), words, call_item(f"c-{name}", "read_file", {"path": "src/scales.py"})]
    )
    server.outputs.append([text_item(f"It is a heavy {name} indeed.", "msg_b")])
    instruction = {"role": "developer", "content": "Speak of walruses."}
    await chat.says(instruction, ASKED if name == "walrus" else f"Weigh the walrus called {name}.")
    await chat.says({"type": "function_call_output", "call_id": f"c-{name}", "output": PARTS})
    return Told(proxy, chat, server)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Told]:
    server = ResponsesServer(window=8_000)
    async with proxied(server, tmp_path_factory.mktemp("told"), AT_THE_END) as proxy:
        yield await worked(proxy, server, "walrus")


async def test_the_transcript_says_whose_each_message_is(told: Told) -> None:
    rows = await told.messages()
    assert [row["role"] for row in rows] == ["developer", "user", "assistant", "tool", "assistant"]
    assert [row["origin"] for row in rows][1:] == ["client", "relayed", "client", "relayed"]
    assert all(row["tokens"] > 3 for row in rows)
    assert rows[2]["message"][2]["name"] == "read_file"


async def test_a_message_is_read_by_its_id_as_text_or_as_it_came(told: Told) -> None:
    rows = await told.messages()
    found = [await told.read(f"context/{row['id']}") for row in rows[1:]]
    texts = ["Weigh the walrus.", "Let me fetch the marmalade scales.", PARTS[0]["text"]]
    assert [page["text"] for page in found] == [*texts, "It is a heavy walrus indeed."]
    assert {page["format"] for page in found} == {"text"}
    assert await told.read(f"context/{rows[2]['id']}", raw=True) == rows[2]["message"]


async def test_instructions_are_kept_as_they_were_spelled(told: Told) -> None:
    reply = await told.read(f"sessions/{told.chat.session}/messages")
    assert reply["instructions"] == told.chat.instructions
    body = b'{"model":"m","input":"One.","instructions":"caf\\u00e9 only"}'
    answer = await told.proxy.http.post("/v1/responses", content=body, headers=KEY)
    session = answer.headers["x-palimpsest-session"]
    raw = (await told.proxy.http.get(f"/api/sessions/{session}/messages", headers=KEY)).content
    assert raw_members(raw)["instructions"] == b'"caf\\u00e9 only"'
    # They belong to their request: what goes on from its answer brings its own, or none.
    body = b'{"model":"m","input":"Two.","previous_response_id":"%s"}' % answer.json()["id"].encode()
    told.server.kept.clear()
    await told.proxy.http.post("/v1/responses", content=body, headers=KEY)
    assert "only" not in told.server.asked[-1].raw.decode()
    assert len(told.server.asked[-1].items) == 3
    raw = (await told.proxy.http.get(f"/api/sessions/{session}/messages", headers=KEY)).content
    assert raw_members(raw)["instructions"] == b"null"


async def test_the_view_is_told_part_by_part(told: Told) -> None:
    view = await told.read(f"sessions/{told.chat.session}/view", explain=1)
    assert [part["kind"] for part in view["parts"]] == ["preamble", *["tail"] * 4]
    assert view["parts"][2]["message"][0]["type"] == "reasoning"
    status = await told.read(f"sessions/{told.chat.session}/status")
    assert status["compacting"] is False


async def test_the_timeline_is_a_page(told: Told) -> None:
    pages: list[Node] = []
    for path in ("ui", f"ui/sessions/{told.chat.session}/events"):
        reply = await told.proxy.http.get(f"/{path}", headers=KEY | {"accept": "text/html"})
        assert reply.status_code == 200, reply.text
        pages.append(page_of(reply.text))
    home = f"/ui/sessions/{told.chat.session}"
    (row,) = [line for line in pages[0].all("tr") if home in (a.attributes["href"] for a in line.all("a"))]
    assert (row.figure("messages"), row.figure("tokens") > 100) == (4, True)
    assert "Messages4" in pages[1].one("main").text


async def test_the_checkpoint_knows_what_was_done(told: Told) -> None:
    document = await told.read(f"sessions/{told.chat.session}/export")
    (checkpoint,) = [event for event in document["events"] if event["type"] == "checkpoint"]
    state = checkpoint["payload"]["runtime"]
    assert "src/scales.py" in json.dumps(state["files"])
    assert "read_file" in json.dumps(state["tooling"])
    assert state["transcript"]["messageCount"] == 4


async def test_a_pin_stays_through_a_compaction(told: Told) -> None:
    talk = await worked(told.proxy, told.server, "pinned")
    rows = await talk.messages()
    pinned = [rows[place]["id"] for place in (2, 3)]
    for ident in pinned:
        assert (await talk.post(f"sessions/{talk.chat.session}/pins", {"message": ident})).status_code == 201
    for turn in range(12):
        await talk.chat.says(f"Note {turn}. {prose(turn, 600)}")
    shown = told.server.asked[-1]
    assert "<palimpsest_summary" in shown.text
    assert shown.faults == []
    assert [item.get("call_id") for item in shown.items].count("c-pinned") == 2
    assert PARTS[0]["text"] in shown.text
    compactions = await talk.read(f"sessions/{talk.chat.session}/compactions")
    assert compactions["compactions"]
    # What was folded is told by the summary's sources.
    ident = "cmp_" + compactions["compactions"][-1]["id"].replace("-", "")
    described = await talk.post("context/describe", {"id": ident, "session": talk.chat.session})
    assert described.status_code == 200


@pytest.mark.parametrize("preset", ["rolling", "working_state", "handoff"])
async def test_a_preset_takes_its_facts_from_items(preset: str, tmp_path: Path) -> None:
    server = ResponsesServer(window=8_000)
    async with proxied(server, tmp_path, AT_THE_END | {"policy.name": preset}) as proxy:
        chat = ResponsesChat(proxy.http, headers=KEY, tools=TOOLS)
        for step in range(14):
            path = f"src/part{step}.py"
            server.outputs.append(
                [thought_item(f"rs_{step}"), call_item(f"c{step}", "read_file", {"path": path})]
            )
            server.outputs.append([text_item(f"Part {step} is read.", f"msg_{step}")])
            await chat.says(f"Goal {step}: read {path}.")
            await chat.says(
                {"type": "function_call_output", "call_id": f"c{step}", "output": text_part(prose(step, 800))}
            )
        talk = Told(proxy, chat, server)
        made = (await talk.read(f"sessions/{chat.session}/compactions"))["compactions"]
        stored = await talk.messages()
    assert made
    assert [asked.faults for asked in server.asked if asked.faults] == []
    assert max(asked.tokens for asked in server.asked) <= 8_000
    assert "src/part1.py" in made[0]["summary"]
    assert "gAAAAB" not in json.dumps(made)
    assert len(stored) == 14 * 4


def text_part(text: str) -> list[Json]:
    return [{"type": "input_text", "text": text}]


async def test_a_long_result_in_parts_is_shown_shortened(tmp_path: Path) -> None:
    server = ResponsesServer(window=6_000)
    server.outputs.append([call_item("c1", "read_file", {"path": "big.log"})])
    dump = f"FIRST LINE\n{prose(5, 8_000)}\nLAST LINE"
    async with proxied(server, tmp_path) as proxy:
        chat = ResponsesChat(proxy.http, headers=KEY, tools=TOOLS)
        await chat.says("Read the log.")
        output = [*text_part(dump), PARTS[1]]
        await chat.says({"type": "function_call_output", "call_id": "c1", "output": output})
        shown = server.asked[-1].items[-1]
        assert shown["output"][1] == PARTS[1]
        assert shown["output"][0]["text"].startswith("FIRST LINE")
        assert shown["output"][0]["text"].endswith("LAST LINE")
        assert server.asked[-1].tokens <= 6_000


async def test_results_in_another_order_are_one_group(told: Told) -> None:
    chat = ResponsesChat(told.proxy.http, headers=KEY, tools=TOOLS)
    calls = [call_item(f"p{n}", "read_file", {"n": n}) for n in range(3)]
    told.server.outputs.append([thought_item("rs_p"), calls[0], text_item("Between.", "msg_p"), *calls[1:]])
    await chat.says("Read three.")
    session = chat.session
    await chat.says(*[result_item(f"p{n}", f"page {n}") for n in (2, 0, 1)])
    await chat.says("Thank you.")
    assert chat.session == session
    rows = (await told.read(f"sessions/{session}/messages"))["messages"]
    assert [row["role"] for row in rows] == [
        "user",
        "assistant",
        *["tool"] * 3,
        "assistant",
        "user",
        "assistant",
    ]


@pytest.mark.parametrize(
    ("question", "quote", "role"),
    [
        ("Who is heavy indeed?", "It is a heavy walrus indeed.", "assistant"),
        ("marmalade scales", "Let me fetch the marmalade scales.", "assistant"),
        ("How many kilograms is it?", "The walrus weighs 1,732 kilograms.", "tool"),
        ("Who is to be weighed?", "Weigh the walrus.", "user"),
    ],
)
async def test_search_quotes_what_was_said_and_found(
    told: Told, question: str, quote: str, role: str
) -> None:
    found = await told.read(f"sessions/{told.chat.session}/search", q=question)
    best = found["results"][0]
    assert (best["role"], quote in best["text"]) == (role, True)


async def test_calls_are_found_by_their_arguments(told: Told) -> None:
    found = await told.post("context/grep", {"query": "src/scales.py", "session": told.chat.session})
    assert "src/scales.py" in found.text
    (ident,) = {hit["id"] for hit in found.json()["results"] if "scales.py" in json.dumps(hit)}
    entry = await told.post("context/describe", {"id": ident, "session": told.chat.session})
    assert "Let me fetch the marmalade scales." in entry.text
    assert "read_file" in entry.text
    assert "gAAAAB" not in entry.text


async def test_a_session_is_moved_with_every_byte(told: Told, tmp_path: Path) -> None:
    document = await told.proxy.http.get(f"/api/sessions/{told.chat.session}/export", headers=KEY)
    assert document.status_code == 200
    async with proxied(ResponsesServer(), tmp_path, AT_THE_END) as other:
        reply = await other.http.post(
            "/api/sessions/import",
            content=document.content,
            headers=KEY | {"content-type": "application/json"},
        )
        assert reply.status_code == 201, reply.text
        name = reply.json()["session"]
        there = Told(
            other, ResponsesChat(other.http, headers=KEY | {"x-session-id": "walrus"}), ResponsesServer()
        )
        assert await spelled(other, name) == await spelled(told.proxy, told.chat.session)
        again = await other.http.get(f"/api/sessions/{name}/export", headers=KEY)
        assert len(again.json()["events"]) >= len(document.json()["events"])
        # The client goes on as if nothing had happened.
        there.chat.said = [*told.chat.said]
        await there.chat.says("And now?")
        assert there.chat.session == name


async def test_what_is_erased_is_gone(told: Told) -> None:
    talk = await worked(told.proxy, told.server, "erased")
    reply = await talk.proxy.http.delete(f"/api/sessions/{talk.chat.session}?block=true", headers=KEY)
    assert reply.status_code == 200, reply.text
    assert reply.json()["rows"]["messages"] == 4
    gone = await talk.proxy.http.get(f"/api/sessions/{talk.chat.session}/messages", headers=KEY)
    assert gone.status_code == 404
    back = await talk.proxy.http.post(
        "/v1/responses", json={"model": "m", "input": talk.chat.said}, headers=KEY
    )
    assert back.status_code == 410


async def spelled(proxy: Proxy, session: str) -> list[tuple[str, bytes]]:
    reply = await proxy.http.get(f"/api/sessions/{session}/messages", headers=KEY)
    rows = raw_elements(raw_members(reply.content)["messages"])
    return [(json.loads(row)["role"], raw_members(row)["message"]) for row in rows]


@pytest.mark.parametrize(
    "tools", [[], [{"type": "function", "name": "look", "parameters": {"type": "object"}}]]
)
async def test_instructions_are_shown_as_such_and_not_counted_as_tools(
    tools: list[Json], tmp_path: Path
) -> None:
    words = prose(7, 120)
    async with proxied(ResponsesServer(), tmp_path) as proxy:
        chat = ResponsesChat(proxy.http, instructions=words, tools=tools, headers={"x-session-id": "work"})
        await chat.says("Hello.")
        home = "/api/sessions/work"
        one = (await proxy.http.get(f"{home}/exchanges/1")).json()
        assert 120 < one["shares"]["instructions"] < one["tokens"] < 400
        assert one["shares"].get("tools", 0) < 60
        assert ("tools" in one["shares"]) == bool(tools)
        assert sum(one["shares"].values()) == pytest.approx(one["tokens"], abs=3)
        view = (await proxy.http.get(f"{home}/view")).json()
        assert view["instructions"] == words
        part = one["parts"][0]
        assert (part["kind"], part["message"]) == ("preamble", {"role": "system", "content": words})
        session = chat.session
        for page in ("messages", "turns/1"):
            assert words[:200] in (await proxy.http.get(f"/ui/sessions/{session}/{page}")).text
        assert words in (await runs(proxy, "view", "work", key="")).stdout
