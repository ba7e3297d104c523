"""Requests that only name items of earlier answers are the conversations they stand for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.test_responses import TOOLS, messages_of, worked
from tests.e2e.test_responses_sessions import KEY, branches, chat_of, text_in, texts
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
from tests.kit.words import prose

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
        names = [reference(item) if item.get("id") else item for item in told]
        for said in (told, names):
            await chat.post(asked(*said, "Third message"))
            assert chat.session == session
        retried = await proxy.http.post(
            "/v1/responses",
            json=asked(*names, "Third message"),
            headers=KEY | {"x-stainless-retry-count": "1"},
        )
        assert retried.headers["x-palimpsest-session"] == session
        # An edited question, behind an answer that is only named.
        await chat.post(asked(*names[:2], "Second message, edited"))
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


@pytest.mark.spec("W48", "W55")
async def test_an_upstream_that_is_said_to_keep_nothing_is_told_at_once(tmp_path: Path) -> None:
    server = ResponsesServer(keeps=False)
    async with proxied(server, tmp_path, {"upstream.keeps_answers": False}) as proxy:
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


@pytest.mark.spec("P5", "W53", "W55")
async def test_what_another_key_was_told_stays_a_name(tmp_path: Path) -> None:
    server = ResponsesServer(window=3_000)
    server.outputs.append([text_item(f"The secret is ALPHA. {prose(1, 200)}")])
    async with proxied(server, tmp_path, {"models": [{"match": "*", "window_tokens": 3_000}]}) as proxy:
        mine = naming(proxy)
        await mine.says("Tell me.")
        other = ResponsesChat(proxy.http, headers={"authorization": "Bearer key-2"})
        body = asked("Tell me.", reference("msg_1"), *(prose(n, 300) for n in range(6)))
        await other.post(body)
        assert other.session != mine.session
        assert server.asked[-1].body == body
        reply = await proxy.http.get(f"/api/sessions/{other.session}/messages", headers=other.headers)
        assert "ALPHA" not in reply.text
        assert [row["message"] for row in reply.json()["messages"]][1] == [reference("msg_1")]


@pytest.mark.spec("P6", "W55")
async def test_of_an_erased_session_nothing_is_found_by_names(tmp_path: Path) -> None:
    server = ResponsesServer()
    server.outputs.append([text_item("The secret is ALPHA.")])
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy)
        await chat.says("Tell me.")
        erased = chat.session
        assert (await proxy.http.delete(f"/api/sessions/{erased}", headers=KEY)).status_code == 200
        await chat.says("Once more.")
        assert chat.session != erased
        assert await messages_of(proxy, chat.session) == [
            {"role": "user", "content": "Tell me."},
            [reference("msg_1")],
            {"role": "user", "content": "Once more."},
            [text_item("Answer 2.", "msg_2")],
        ]
        assert server.asked[-1].body["input"] == chat.said[:3]
    assert remains(tmp_path, "ALPHA") == {}


@pytest.mark.spec("P6", "W55")
@pytest.mark.parametrize("slides", [False, True])
async def test_what_was_erased_and_blocked_does_not_come_back_by_names(slides: bool, tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat, other = naming(proxy), naming(proxy)
        for question in ("Tell me.", "And then?"):
            await chat.says(question)
        await other.says("Tell me.")
        gone = await proxy.http.delete(f"/api/sessions/{chat.session}?block=true", headers=KEY)
        assert gone.status_code == 200
        said = [*(chat.said[2:] if slides else chat.said), {"role": "user", "content": "Once more."}]
        reply = await proxy.http.post("/v1/responses", json=asked(*said), headers=KEY)
        assert reply.status_code == 410
        await other.says("Once more.")


@pytest.mark.spec("W55")
async def test_an_item_named_twice_is_stored_and_told_once(tmp_path: Path) -> None:
    """As the Vercel AI SDK names what the upstream ran by itself: for the call, and for its result."""
    server = ResponsesServer(keeps=False)
    searched = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    server.outputs.append([searched, text_item("Found.")])
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy)
        await chat.says("Search.")
        session = chat.session
        chat.said.insert(1, reference("ws_1"))
        await chat.says("Thank you.")
        assert chat.session == session
        assert await branches(proxy, session) == 1
        assert (await messages_of(proxy, session))[1] == [searched, text_item("Found.")]
        assert server.asked[1].items[1:3] == [searched, text_item("Found.")]


@pytest.mark.spec("W55")
async def test_an_item_of_another_branch_is_what_it_was_there(tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy)
        await chat.says("Opening")
        session = chat.session
        await chat.says("Left")
        await chat.post(asked("Opening", reference("msg_1"), "Right", reference("msg_2"), "And now?"))
        assert chat.session == session
        reply = await proxy.http.get(f"/api/sessions/{session}", headers=KEY)
        (branch,) = reply.json()["branches"]
        path = f"/api/sessions/{session}/messages?branch={branch['branch']}"
        rows = (await proxy.http.get(path, headers=KEY)).json()["messages"]
    told = [text_in(row["message"]) for row in rows if row["in_path"]]
    assert told == ["Opening", "Answer 1.", "Right", "Answer 2.", "And now?", "Answer 3."]


@pytest.mark.spec("W55")
async def test_ids_that_are_given_again_are_told_apart_by_their_place(tmp_path: Path) -> None:
    """A server that calls every answer's item alike, and knows none of them."""
    server = ResponsesServer(resolves=False, window=3_000)
    answers = [[text_item(f"Answer {n}. {prose(n, 60)}", "msg_0")] for n in range(24)]
    server.outputs.extend(answers)
    async with proxied(server, tmp_path) as proxy:
        chats = [naming(proxy), naming(proxy)]
        for turn in range(12):
            for number, chat in enumerate(chats):
                await chat.says(f"Question {turn} of client {number}. {prose(turn, 180)}")
        for number, chat in enumerate(chats):
            stored = await messages_of(proxy, chat.session)
            assert [message for message in stored if isinstance(message, list)] == answers[number::2]
    assert chats[0].session != chats[1].session
    assert [one.faults for one in server.asked if one.faults] == []
    assert all("<palimpsest_summary" in one.text for one in server.asked[-2:])


@pytest.mark.spec("W55")
async def test_an_id_that_means_two_things_in_one_place_is_no_words(tmp_path: Path) -> None:
    server = ResponsesServer()
    server.outputs.extend([[text_item("One.", "msg_0")], [text_item("Two.", "msg_0")]])
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy)
        await chat.says("Opening")
        await chat.post(asked("Opening"))
        body = asked("Opening", reference("msg_0"), "Go on.")
        await chat.post(body)
        assert server.asked[-1].body == body
        assert (await messages_of(proxy, chat.session))[1] == [reference("msg_0")]


@pytest.mark.spec("W52", "W55")
async def test_named_items_are_told_on_the_other_wire(tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = naming(proxy)
        chat.headers["x-session-id"] = "both"
        server.outputs.append([thought_item("rs_1"), call_item("c1", "read_file", {"n": 1})])
        await chat.says("Read the file.")
        await chat.says(result_item("c1", "one"))
        body = {"model": "test-model", "messages": [{"role": "user", "content": "On chat."}]}
        reply = await proxy.http.post(
            "/v1/chat/completions", json=body, headers=chat.headers | {"x-session-mode": "append"}
        )
        assert reply.status_code == 200
        told = server.seen[-1].messages
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "assistant", "user"]
    assert told[1]["tool_calls"][0]["function"]["name"] == "read_file"
    assert told[3]["content"] == "Answer 2."


@pytest.mark.spec("W54", "W55")
async def test_a_compaction_of_ours_is_never_named_to_an_upstream(tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path, {"upstream.compacts": "proxy"}) as proxy:
        chat = naming(proxy)
        await chat.says(f"The code is R-7919. {prose(3, 300)}")
        compacted = await chat.post(asked(*chat.said, {"type": "compaction_trigger"}))
        (item,) = compacted["output"]
        await chat.post(asked(reference(item), "What is the code?"))
        assert server.missed == []
        assert "R-7919" in server.asked[-1].body["input"][0]["content"]


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
