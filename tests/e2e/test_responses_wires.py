"""A named session spoken on both APIs: neither upstream is sent what only the other one reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.model import Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import ResponsesServer, call_item, result_item, text_item, thought_item

pytestmark = pytest.mark.spec("W52")

Json = dict[str, Any]
APPENDS = {"authorization": "Bearer key-1", "x-session-id": "both", "x-session-mode": "append"}


async def chats(proxy: Proxy, *messages: Json, status: int = 200) -> Json:
    body = {"model": "test-model", "messages": messages}
    reply = await proxy.http.post("/v1/chat/completions", json=body, headers=APPENDS)
    assert reply.status_code == status, reply.text
    answer: Json = reply.json()
    return answer


async def responds(proxy: Proxy, *items: Json, status: int = 200) -> Json:
    body = {"model": "test-model", "input": items}
    reply = await proxy.http.post("/v1/responses", json=body, headers=APPENDS)
    assert reply.status_code == status, reply.text
    answer: Json = reply.json()
    return answer


def user(text: str) -> Json:
    return {"role": "user", "content": text}


async def stored(proxy: Proxy) -> list[Any]:
    reply = await proxy.http.get("/api/sessions/both/messages", headers=APPENDS)
    return [row["message"] for row in reply.json()["messages"]]


async def test_a_session_of_chat_goes_on_by_responses_and_back(tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        server.says("Ahoy.")
        await chats(proxy, user("Hello."))
        server.outputs.append([thought_item("rs"), call_item("c1", "look", {"at": "sea"})])
        await responds(proxy, user("Look out."))
        server.outputs.append([text_item("A sail.", "msg_9")])
        await responds(proxy, result_item("c1", "a sail"))
        await chats(proxy, user("Whose is it?"))
        before = await stored(proxy)
        assert [asked.faults for asked in server.asked] == [[], []]
        assert server.asked[0].body["input"] == [
            user("Hello."),
            {"type": "message", "role": "assistant", "content": "Ahoy."},
            user("Look out."),
        ]
        shown = server.prompts[-1].messages
        assert [message["role"] for message in shown] == [
            "user", "assistant", "user", "assistant", "tool", "assistant", "user",
        ]  # fmt: skip
        assert [message.get("content") for message in shown] == [
            "Hello.", "Ahoy.", "Look out.", None, "a sail", "A sail.", "Whose is it?",
        ]  # fmt: skip
        # Thoughts and ids of items are of the other API alone.
        assert {key for message in shown for key in message} == {
            "role", "content", "tool_calls", "tool_call_id",
        }  # fmt: skip
        # What is stored is what was said, as it was said.
        assert before[3][0]["type"] == "reasoning"
        assert before[4] == result_item("c1", "a sail")
        assert len(before) == 8
        rows = await proxy.http.get("/api/sessions", headers=APPENDS)
        assert len(rows.json()["sessions"]) == 1


@pytest.mark.parametrize("first", ["chat", "chat answer", "responses"])
async def test_what_has_no_form_on_the_other_wire_is_refused(first: str, tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        if first == "chat":
            await chats(proxy, {"role": "user", "content": "Hello.", "name": "ann"})
            refused = await responds(proxy, user("And?"), status=409)
        elif first == "chat answer":
            server.answers.append(Says({"role": "assistant", "content": "Ahoy.", "audio": {"id": "a1"}}))
            await chats(proxy, user("Hello."))
            refused = await responds(proxy, user("And?"), status=409)
        else:
            part = {"type": "output_map", "place": "the harbour"}
            server.outputs.append([text_item("Found.") | {"content": [part]}])
            await responds(proxy, user("Search."))
            refused = await chats(proxy, user("And?"), status=409)
        assert refused["error"]["code"] == "other_wire"
        assert refused["error"]["type"] == "invalid_request_error"
        assert len(await stored(proxy)) == 2
        # On its own wire it goes on.
        await (responds if first == "responses" else chats)(proxy, user("And?"))
        assert len(await stored(proxy)) == 4


async def test_whole_histories_are_sent_as_they_came_on_either_wire(tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        headers = {"authorization": "Bearer key-1"}
        server.says("Ahoy.")
        first = await proxy.http.post(
            "/v1/chat/completions", json={"model": "m", "messages": [user("Hello.")]}, headers=headers
        )
        said = [user("Hello."), {"role": "assistant", "content": "Ahoy."}, user("And now?")]
        second = await proxy.http.post("/v1/responses", json={"model": "m", "input": said}, headers=headers)
        assert first.headers["x-palimpsest-session"] == second.headers["x-palimpsest-session"]
        assert server.asked[0].body["input"] == said
        # What goes on from that answer is told whole where the upstream forgets it.
        server.kept.clear()
        body = {"model": "m", "input": "Sure?", "previous_response_id": second.json()["id"]}
        third = await proxy.http.post("/v1/responses", json=body, headers=headers)
        assert third.status_code == 200, third.text
        assert [item.get("role") for item in server.asked[-1].body["input"]] == [
            "user", "assistant", "user", "assistant", "user",
        ]  # fmt: skip
        assert "refusal" not in server.asked[-1].text


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_session_of_one_api_is_sent_as_it_was_said(wire: str, tmp_path: Path) -> None:
    server = ResponsesServer()
    odd = user("Hello.") | {"x-note": [1]}
    async with proxied(server, tmp_path) as proxy:
        await (chats if wire == "chat" else responds)(proxy, odd)
        await (chats if wire == "chat" else responds)(proxy, user("And?"))
    shown = server.prompts[-1].messages if wire == "chat" else server.asked[-1].body["input"]
    assert [shown[0], shown[2]] == [odd, user("And?")]
