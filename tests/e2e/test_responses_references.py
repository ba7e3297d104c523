"""Requests that only name items of earlier answers are the conversations they stand for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.test_responses import TOOLS, messages_of, worked
from tests.e2e.test_responses_sessions import KEY, branches, chat_of, texts
from tests.kit.proxy import Proxy, proxied
from tests.kit.remains import remains
from tests.kit.responses import (
    ResponsesChat,
    ResponsesServer,
    call_item,
    faults_in,
    reference,
    result_item,
    text_item,
    thought_item,
)

Json = dict[str, Any]


def naming(proxy: Proxy, **options: Any) -> ResponsesChat:
    """A client that names what was answered."""
    return ResponsesChat(proxy.http, headers=dict(KEY), refers=True, **options)


def asked(*said: Json | str, **more: Any) -> Json:
    items = [{"role": "user", "content": item} if isinstance(item, str) else item for item in said]
    return {"model": "test-model", "input": items, **more}


def named_in(items: list[Json]) -> list[str]:
    return [item["id"] for item in items if item.get("type") == "item_reference"]


@pytest.mark.spec("P1", "P4", "W55")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("alone", [False, True])
async def test_named_items_are_one_session_and_stored_once(stream: bool, alone: bool, tmp_path: Path) -> None:
    server = ResponsesServer()
    output = [thought_item("rs_1"), text_item("Let me look."), call_item("c1", "read_file", {"n": 1})]
    server.outputs.append(output)
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy, tools=TOOLS)
        await chat.says("Read the file.", stream=stream)
        if alone:
            chat.said[1:] = [{"id": item["id"]} for item in chat.said[1:]]
        session, result = chat.session, result_item("c1", "one")
        await chat.says(result, stream=stream)
        await chat.says("Thank you.", stream=stream)
        assert chat.session == session
        assert server.asked[-1].body["input"] == chat.said[:-1]
        assert await branches(proxy, session) == 1
        stored = await messages_of(proxy, session)
    assert stored[:3] == [{"role": "user", "content": "Read the file."}, output, result]
    assert [len(message) for message in (stored[3], stored[5])] == [1, 1]
    assert len(stored) == 6
    assert server.missed == []
    # Of no message there is another spelling, and a name is stored of none.
    assert remains(tmp_path, "item_reference") == {}


@pytest.mark.spec("W55")
async def test_who_names_and_who_tells_are_the_same_client(tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        await chat.says("Opening")
        await chat.says("Second message")
        session, told = chat.session, list(chat.said)
        same = {"instructions": chat.instructions}
        names = [reference(item) if item.get("id") else item for item in told]
        for said in (told, names):
            await chat.post(asked(*said, "Third message", **same))
            assert chat.session == session
        retried = await proxy.http.post(
            "/v1/responses",
            json=asked(*names, "Third message", **same),
            headers=KEY | {"x-stainless-retry-count": "1"},
        )
        assert retried.headers["x-palimpsest-session"] == session
        # An edited question, behind an answer that is only named.
        await chat.post(asked(*names[:2], "Second message, edited", **same))
        assert chat.session == session
        reply = await proxy.http.get(f"/api/sessions/{session}", headers=KEY)
        # Three answers to the third message, and the edited second one's.
        assert len(reply.json()["branches"]) == 4


@pytest.mark.spec("P9", "P10", "W49", "W55")
async def test_a_long_conversation_of_names_is_compacted_and_stays_valid(tmp_path: Path) -> None:
    server = ResponsesServer(window=8_000)
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy, tools=TOOLS, instructions="You are a careful engineer.")
        await chat.says("Project: the harbour.")
        await worked(chat, server, 45)
        reply = await proxy.http.get(f"/api/sessions/{chat.session}/compactions", headers=KEY)
        stored = await messages_of(proxy, chat.session)
    assert [one.faults for one in server.asked if one.faults] == []
    assert max(one.tokens for one in server.asked) <= 8_000
    assert "<palimpsest_summary" in server.asked[-1].text
    # What stays is named as the client named it, what is folded is not.
    newest = server.asked[-1].body["input"]
    assert named_in(newest) == named_in(chat.said[:-1])[-len(named_in(newest)) :]
    assert 0 < len(named_in(newest)) < len(named_in(chat.said)) / 2
    inputs = [one.body["input"] for one in server.asked]
    rewritten = [at for at in range(1, len(inputs)) if inputs[at][: len(inputs[at - 1])] != inputs[at - 1]]
    assert len(reply.json()["compactions"]) == len(rewritten) > 1
    flat = [item for message in stored for item in (message if isinstance(message, list) else [message])]
    assert [reference(item) if item.get("id") else item for item in flat] == chat.said
    assert server.missed == []


@pytest.mark.spec("W48", "W55")
@pytest.mark.parametrize("server", [ResponsesServer(keeps=False), ResponsesServer(resolves=False)])
async def test_an_upstream_that_knows_no_items_is_told_them(server: ResponsesServer, tmp_path: Path) -> None:
    server.asked.clear()
    server.window = 8_000
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy, tools=TOOLS)
        await chat.says("Project: the harbour.")
        await worked(chat, server, 30)
    assert [one.faults for one in server.asked if one.faults] == []
    assert max(one.tokens for one in server.asked) <= 8_000
    assert not any(named_in(one.body["input"]) for one in server.asked)
    # Asked once: then it is known of this conversation.
    assert len(server.missed) <= 1
    assert server.asked[1].body["input"][1] == text_item("Answer 1.", "msg_1")
    assert "<palimpsest_summary" in server.asked[-1].text


@pytest.mark.spec("C01", "W48", "W55")
@pytest.mark.parametrize(("keeps", "resolves"), [(False, True), (True, False)])
async def test_an_upstream_that_knows_no_items_is_told_them_with_our_tools(
    keeps: bool, resolves: bool, tmp_path: Path
) -> None:
    """What is known of an upstream is lost with the process: the next prompt with our tools names items."""
    server = ResponsesServer(window=8_000, keeps=keeps, resolves=resolves)
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy, tools=TOOLS)
        await chat.says("Project: the harbour.")
        await worked(chat, server, 30)
    before = len(server.asked)
    assert len(server.asked[-1].tools) > len(TOOLS)
    async with proxied(server, tmp_path) as proxy:
        chat.http = proxy.http
        await chat.says("And now?")
        await chat.says("And then?")
    again = server.asked[before:]
    assert len(again) == 2
    assert [len(one.tools) > len(TOOLS) for one in again] == [True, True]
    assert not any(named_in(one.body["input"]) or one.faults for one in again)


@pytest.mark.spec("W48", "W55")
async def test_an_upstream_that_is_said_to_keep_nothing_is_told_at_once(tmp_path: Path) -> None:
    server = ResponsesServer(keeps=False)
    async with proxied(server, tmp_path, {"upstream.stores_responses": False}) as proxy:
        chat = naming(proxy)
        await chat.says("Opening")
        await chat.says("Second message", stream=True)
    assert server.missed == []
    assert server.asked[1].body["input"][1] == text_item("Answer 1.", "msg_1")


@pytest.mark.spec("W55")
async def test_names_work_where_nothing_was_to_be_stored(tmp_path: Path) -> None:
    """`store: false`, and named all the same: the upstream refuses, this program knows."""
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy, options={"store": False})
        await chat.says("Opening")
        await chat.says("Second message")
        assert server.missed == ["msg_1"]
        assert server.asked[1].items[1] == text_item("Answer 1.", "msg_1")
        assert await texts(proxy, chat.session) == ["Opening", "Answer 1.", "Second message", "Answer 2."]


@pytest.mark.spec("W55")
@pytest.mark.parametrize("status", [400, 422])
async def test_another_refusal_is_the_clients_to_hear(status: int, tmp_path: Path) -> None:
    """It names an item, and does not say that there is none."""
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy)
        server.outputs.append([thought_item("rs_1"), text_item("Well.")])
        await chat.says("Opening")
        alone = asked("Opening", reference("rs_1"), "And?")
        reply = await proxy.http.post("/v1/responses", json=alone, headers=KEY)
        assert reply.status_code == 400
        assert "'rs_1' was provided without" in reply.json()["error"]["message"]
        assert [one.body for one in server.asked[1:]] == [alone]


@pytest.mark.spec("W45", "W55")
async def test_the_openai_sdk_names_items_through_the_proxy(tmp_path: Path) -> None:
    def holds(url: str) -> list[Any]:
        with openai.OpenAI(api_key="key-1", base_url=f"{url}/v1", max_retries=0) as client:
            said: list[Any] = [{"role": "user", "content": "The secret is ALPHA."}]
            texts = []
            for question in ("What is it?", "And again?"):
                answer = client.responses.create(model="test-model", input=said)
                texts.append(answer.output_text)
                said += [{"type": "item_reference", "id": item.id} for item in answer.output]
                said.append({"role": "user", "content": question})
            with pytest.raises(openai.NotFoundError) as caught:
                client.responses.create(
                    model="test-model", input=[*said, {"type": "item_reference", "id": "x"}]
                )
            return [*texts, caught.value.body]

    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        told = await asyncio.to_thread(holds, proxy.url)
        (session,) = (await proxy.http.get("/api/sessions", headers=KEY)).json()["sessions"]
        stored = await texts(proxy, session["id"])
    assert told[:2] == ["Answer 1.", "Answer 2."]
    assert told[2]["message"] == "Item with id 'x' not found."
    assert stored[:4] == ["The secret is ALPHA.", "Answer 1.", "What is it?", "Answer 2."]
    assert not any(faults_in(one.items) for one in server.asked)
    assert json.loads(server.asked[1].raw)["input"][1] == {"type": "item_reference", "id": "msg_1"}
