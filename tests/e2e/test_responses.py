"""The Responses API through the proxy: stored, compacted and relayed as chat completions are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import (
    Asked,
    ResponsesChat,
    ResponsesServer,
    call_item,
    events_of,
    result_item,
    text_item,
    thought_item,
)
from tests.kit.words import prose

Json = dict[str, Any]
TOOLS = [{"type": "function", "name": "read_file", "parameters": {"type": "object", "properties": {}}}]


def chat_of(proxy: Proxy, **options: Any) -> ResponsesChat:
    headers = {"authorization": "Bearer key-1"} | options.pop("headers", {})
    return ResponsesChat(proxy.http, headers=headers, **options)


async def messages_of(proxy: Proxy, session: str) -> list[Any]:
    reply = await proxy.http.get(
        f"/api/sessions/{session}/messages", params={"limit": 1000}, headers={"authorization": "Bearer key-1"}
    )
    assert reply.status_code == 200, reply.text
    return [entry["message"] for entry in reply.json()["messages"]]


@pytest.mark.spec("P1", "W45")
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_changed_before_the_first_compaction(stream: bool, tmp_path: Path) -> None:
    server = ResponsesServer()
    body = (
        '{ "model":"test-model", "x-new": 1e2,\n "input": [ {"role":"user","content":"caf\\u00e9"} ] ,'
        f'"stream":{json.dumps(stream)}}}'
    ).encode()
    async with proxied(server, tmp_path) as proxy:
        reply = await proxy.http.post(
            "/v1/responses?a=b", content=body, headers={"content-type": "application/json"}
        )
        assert reply.status_code == 200
        assert server.asked[0].raw == body
        if stream:
            kinds = [event["type"] for event in events_of(reply.text)]
            assert kinds[0] == "response.created"
            assert kinds[-1] == "response.completed"
        else:
            assert reply.json()["output"][0]["content"][0]["text"] == "Answer 1."


@pytest.mark.spec("W46")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_is_one_session_and_stored_word_for_word(stream: bool, tmp_path: Path) -> None:
    server = ResponsesServer()
    server.outputs.append(
        [
            thought_item("rs_1"),
            text_item("Let me look."),
            *(call_item(f"c{n}", "read_file", {"n": n}) for n in (1, 2)),
        ]
    )
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy, tools=TOOLS, drops_thoughts=True)
        first = await chat.says("Read both files.", stream=stream)
        session = chat.session
        await chat.says(result_item("c1", "one"), result_item("c2", "two"), stream=stream)
        await chat.says("Thank you.", stream=stream)
        assert chat.session == session
        stored = await messages_of(proxy, session)
    assert stored[0] == {"role": "user", "content": "Read both files."}
    assert stored[1] == first
    assert stored[2:4] == [result_item("c1", "one"), result_item("c2", "two")]
    assert stored[4][0]["content"][0]["text"] == "Answer 2."
    assert len(stored) == 7
    assert [asked.body["input"] for asked in server.asked[1:]] == [chat.said[:6], chat.said[:8]]


async def worked(chat: ResponsesChat, server: ResponsesServer, steps: int) -> list[int]:
    """A turn of many steps with thoughts and parallel calls; how long the client's input was each time."""
    for step in range(steps):
        width = 2 if step % 3 == 2 else 1
        calls = [
            call_item(f"c{step}_{at}", "read_file", {"path": f"src/{step}_{at}.py"}) for at in range(width)
        ]
        server.outputs.append([thought_item(f"rs_{step}"), *calls])
    server.outputs.append([text_item("All read.", "msg_last")])
    lengths = []
    output = await chat.says("Read every module and say which opens a socket.", stream=True)
    while calls := [item for item in output if item["type"] == "function_call"]:
        lengths.append(len(chat.said))
        results = [result_item(call["call_id"], prose(len(lengths), 180)) for call in calls]
        output = await chat.says(*results, stream=True)
    return lengths


@pytest.mark.spec("W47", "W49")
async def test_a_long_turn_with_tools_is_compacted_and_stays_valid(tmp_path: Path) -> None:
    server = ResponsesServer(window=8_000)
    async with proxied(server, tmp_path, {"compaction.background": False}) as proxy:
        chat = chat_of(proxy, tools=TOOLS, instructions="You are a careful engineer.")
        await chat.says("Project: the harbour.")
        await worked(chat, server, 30)
        assert len(server.asked) == 32
        assert [asked.faults for asked in server.asked if asked.faults] == []
        assert max(asked.tokens for asked in server.asked) <= 8_000
        assert {asked.body["instructions"] for asked in server.asked} == {"You are a careful engineer."}
        goal = {"role": "user", "content": "Read every module and say which opens a socket."}
        assert all(goal in asked.items for asked in server.asked[1:])
        assert len(server.asked[-1].items) < len(chat.said) / 2
        assert "<palimpsest_summary" in server.asked[-1].text
        stored = await messages_of(proxy, chat.session)
    flat = [item for message in stored for item in (message if isinstance(message, list) else [message])]
    bare = [{key: value for key, value in item.items() if key != "status"} for item in flat]
    assert bare == chat.said


@pytest.mark.spec("A05", "W49")
async def test_what_is_asked_as_the_answer_is_kept_free(tmp_path: Path) -> None:
    server = ResponsesServer(window=8_000)
    async with proxied(server, tmp_path, {"policy.name": "handoff"}) as proxy:
        views = {}
        for output in (500, 3_000):
            chat = chat_of(proxy, headers={"authorization": f"Bearer {output}"})
            chat.options["max_output_tokens"] = output
            for turn in range(14):
                role = "assistant" if turn % 2 else "user"
                chat.said.append({"role": role, "content": f"Note {turn}. {prose(turn, 390)}"})
            await chat.says("And now?")
            assert chat.reply is not None
            # Between the window less a quarter of it, the most that is kept free, and the trigger.
            assert 6_000 < int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < 7_000
            views[output] = chat.reply.headers["x-palimpsest-view"]
        assert views == {500: "original", 3_000: "compacted"}


@pytest.mark.spec("W49")
async def test_between_compactions_a_prompt_only_grows(tmp_path: Path) -> None:
    server = ResponsesServer(window=8_000)
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy, tools=TOOLS)
        await worked(chat, server, 45)
        reply = await proxy.http.get(f"/api/sessions/{chat.session}/compactions", headers=chat.headers)
    inputs = [asked.body["input"] for asked in server.asked]
    rewritten = [at for at in range(1, len(inputs)) if inputs[at][: len(inputs[at - 1])] != inputs[at - 1]]
    assert len(reply.json()["compactions"]) == len(rewritten) > 1


@pytest.mark.spec("W49")
async def test_a_result_larger_than_the_window_is_shown_shortened(tmp_path: Path) -> None:
    server = ResponsesServer(window=6_000)
    server.outputs.append([call_item("c1", "read_file", {"path": "big.log"})])
    dump = f"FIRST LINE\n{prose(5, 20_000)}\nLAST LINE"
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy, tools=TOOLS)
        await chat.says("Read the log.")
        await chat.says(result_item("c1", dump))
        shown = server.asked[-1].items[-1]
        assert shown["type"] == "function_call_output"
        assert shown["output"].startswith("FIRST LINE")
        assert shown["output"].endswith("LAST LINE")
        assert server.asked[-1].tokens <= 6_000
        ident = shown["output"][shown["output"].index("dcm_") :][:36]
        page = await proxy.http.get(f"/api/context/{ident}", params={"limit": 16_000}, headers=chat.headers)
        assert page.json()["total_chars"] == len(dump)


@pytest.mark.spec("W48")
async def test_what_goes_on_from_a_kept_answer_is_left_to_the_upstream(tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        first = await chat.post(
            {"model": "test-model", "input": "My dog is called Rufus.", "instructions": "Terse."}
        )
        session = chat.session
        body = {"model": "test-model", "input": "And the cat Minka.", "previous_response_id": first["id"]}
        second = await chat.post(body)
        assert chat.session == session
        await chat.post({**body, "input": "Who is who?", "previous_response_id": second["id"]})
        assert chat.session == session
        assert server.asked[1].body == body
        stored = await messages_of(proxy, session)
    assert len(stored) == 6
    assert "Rufus" in server.asked[2].text


@pytest.mark.spec("W48")
async def test_an_upstream_that_keeps_no_answers_is_told_all(tmp_path: Path) -> None:
    server = ResponsesServer(keeps=False)
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        first = await chat.post(
            {"previous_response_id": None, "input": "My dog is called Rufus.", "model": "test-model"}
        )
        body = {"previous_response_id": first["id"], "input": "Who is Rufus?", "model": "test-model"}
        second = await chat.post(body)
        third = {"input": "Sure?", "model": "test-model", "previous_response_id": second["id"]}
        await chat.post(third)
    assert [asked.body.get("previous_response_id") for asked in server.asked] == [None, None, None]
    assert [len(asked.body["input"]) for asked in server.asked[1:]] == [3, 5]
    assert "Rufus" in server.asked[2].text


@pytest.mark.spec("W48", "W49")
async def test_a_kept_conversation_is_compacted_when_it_nears_the_window(tmp_path: Path) -> None:
    server = ResponsesServer(window=4_000)
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        before = None
        for turn in range(25):
            body = {"model": "test-model", "input": f"Turn {turn}: {prose(turn, 150)}"}
            answer = await chat.post(body | ({"previous_response_id": before} if before else {}))
            before = answer["id"]
        stored = await messages_of(proxy, chat.session)
    assert len(stored) == 50
    assert max(asked.tokens for asked in server.asked) <= 4_000
    assert any("<palimpsest_summary" in asked.text for asked in server.asked)
    assert server.asked[1].body["previous_response_id"]


@pytest.mark.spec("W48")
async def test_an_answer_unknown_here_is_the_upstreams_alone(tmp_path: Path) -> None:
    server = ResponsesServer(window=4_000)
    server.kept["resp_old"] = [{"role": "user", "content": prose(1, 5_000)}]
    body = {"model": "test-model", "input": "And now?", "previous_response_id": "resp_old"}
    async with proxied(server, tmp_path) as proxy:
        reply = await proxy.http.post("/v1/responses", json=body)
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert [asked.body for asked in server.asked] == [body]


@pytest.mark.spec("W49")
@pytest.mark.parametrize(("stream", "late"), [(False, False), (True, False), (True, True)])
async def test_a_prompt_refused_for_its_length_goes_again_smaller(
    stream: bool, late: bool, tmp_path: Path
) -> None:
    server = ResponsesServer(window=5_000, fails_late=late, models=False)
    async with proxied(server, tmp_path, {"models": [{"match": "*", "window_tokens": 6_000}]}) as proxy:
        chat = chat_of(proxy)
        for turn in range(18):
            await chat.says(f"Turn {turn}: {prose(turn, 300)}", stream=stream)
        stored = await messages_of(proxy, chat.session)
    assert len(stored) == 36
    assert any(asked.tokens > 5_000 for asked in server.asked)


@pytest.mark.spec("W50")
async def test_a_stream_that_breaks_off_is_told_and_stored_as_incomplete(tmp_path: Path) -> None:
    server = ResponsesServer(cuts=2)
    server.outputs.append([text_item("A long answer that is never finished, whatever happens. " * 3)])
    async with proxied(server, tmp_path) as proxy:
        body = {"model": "test-model", "input": "Tell me.", "stream": True}
        session, text = await cut_off(proxy, body)
        last = events_of(text)[-1]
        assert last["type"] == "error"
        assert last["error"]["code"] == "upstream_cut"
        stored = await messages_of(proxy, session)
    assert stored[1][0]["content"][0]["text"] == "A long answer that is never finished, whatever h"


async def cut_off(proxy: Proxy, body: Json) -> tuple[str, str]:
    """The session and what was heard of an answer whose connection is broken."""
    pieces: list[str] = []
    headers = {"authorization": "Bearer key-1"}
    async with proxy.http.stream("POST", "/v1/responses", json=body, headers=headers) as reply:
        try:
            async for part in reply.aiter_text():
                pieces += [part]
        except httpx.RemoteProtocolError:
            return reply.headers["x-palimpsest-session"], "".join(pieces)
    raise AssertionError("The answer ended as if it were whole.")


@pytest.mark.spec("W53")
@pytest.mark.parametrize(
    "more", [{"conversation": "conv_1"}, {"background": True}, {"input": None, "prompt": {"id": "p"}}]
)
async def test_what_only_the_upstream_can_keep_is_passed_on(more: Json, tmp_path: Path) -> None:
    server = ResponsesServer()

    def taken(asked: Asked) -> list[Json]:
        return [text_item(f"{len(asked.items)}")]

    server.plays = taken
    async with proxied(server, tmp_path) as proxy:
        body = {"model": "test-model", "input": "Hello."} | more
        reply = await proxy.http.post("/v1/responses", json=body)
        assert reply.status_code == 200
        assert reply.headers["x-palimpsest-store"] == "upstream"
        assert server.asked[0].body == body
        listed = await proxy.http.get("/api/sessions")
        assert listed.json()["sessions"] == []


async def test_a_restart_finds_answers_by_their_ids_and_goes_on(tmp_path: Path) -> None:
    server = ResponsesServer(keeps=False)
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        first = await chat.post({"model": "test-model", "input": "My dog is called Rufus."})
        session = chat.session
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        body = {"model": "test-model", "input": "Who?", "previous_response_id": first["id"]}
        await chat.post(body)
        assert chat.session == session
    assert "Rufus" in server.asked[-1].text


async def test_another_key_does_not_go_on_from_an_answer(tmp_path: Path) -> None:
    server = ResponsesServer(keeps=False)
    async with proxied(server, tmp_path) as proxy:
        first = await chat_of(proxy).post({"model": "test-model", "input": "My dog is called Rufus."})
        body = {"model": "test-model", "input": "Who?", "previous_response_id": first["id"]}
        reply = await proxy.http.post("/v1/responses", json=body, headers={"authorization": "Bearer other"})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "previous_response_not_found"
    assert len(server.asked) == 1
