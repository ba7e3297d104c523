"""Whose a conversation of the Responses API is: twins, branches, answers that were cut, a kill."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.kill_loop import Server, server
from tests.e2e.test_promises_kill import sessions
from tests.e2e.test_promises_kill_partial import saved
from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import ResponsesChat, ResponsesServer, text_item, thought_item
from tests.kit.wire import post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Scripted, Wire, chunk, head, replies

Json = dict[str, Any]
KEY = {"authorization": "Bearer key-1"}
CHUNKED = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]
ASKED = {"role": "user", "content": "Tell me a long story."}


def chat_of(proxy: Proxy) -> ResponsesChat:
    return ResponsesChat(proxy.http, headers=dict(KEY))


async def texts(proxy: Proxy, session: str, **params: Any) -> list[str]:
    reply = await proxy.http.get(f"/api/sessions/{session}/messages", headers=KEY, params=params)
    assert reply.status_code == 200, reply.text
    return [text_in(row["message"]) for row in reply.json()["messages"]]


def text_in(message: Any) -> str:
    if isinstance(message, list):
        return "".join(part["text"] for item in message for part in item.get("content") or [])
    return str(message["content"])


async def branches(proxy: Proxy, session: str) -> int:
    reply = await proxy.http.get(f"/api/sessions/{session}", headers=KEY)
    return len(reply.json()["branches"])


@pytest.mark.spec("S2", "W46")
async def test_twins_never_merge(tmp_path: Path) -> None:
    server = ResponsesServer()
    same = [thought_item("rs_1"), text_item("Same answer.", "msg_1")]
    server.outputs.extend([same, [text_item("Of the one ahead.", "msg_2")]])
    server.outputs.extend([same, [text_item("Of the one behind.", "msg_3")]])
    async with proxied(server, tmp_path) as proxy:
        ahead, behind = chat_of(proxy), chat_of(proxy)
        for chat in (ahead, behind):
            await chat.says("Same opening")
            await chat.says("Same second message")
        assert ahead.session != behind.session
        await ahead.says("The secret of the one ahead is ALPHA.")
        await behind.says("The secret of the one behind is OMEGA.")
        assert (await texts(proxy, ahead.session))[3:5] == ["Of the one ahead.", ahead.said[-2]["content"]]
        assert (await texts(proxy, behind.session))[3:5] == ["Of the one behind.", behind.said[-2]["content"]]


TYPED: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Opening"}]}


@pytest.mark.spec("W46")
@pytest.mark.parametrize("extras", [{}, {"id": "msg_q", "status": "completed"}])
async def test_a_question_that_comes_back_as_an_item_is_the_same(extras: Json, tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        await chat.says("Opening")
        session, first = chat.session, chat.said[0]
        chat.said[0] = TYPED | extras
        await chat.says("And then?")
        assert chat.session == session
        assert await branches(proxy, session) == 1
        assert server.asked[-1].items == chat.said[:3]
        reply = await proxy.http.get(f"/api/sessions/{session}/messages", headers=KEY)
        assert [row["message"] for row in reply.json()["messages"]][::2] == [first, chat.said[2]]


@pytest.mark.spec("W46")
@pytest.mark.parametrize("kept", ["regenerated", "edited"])
async def test_another_answer_or_question_is_a_branch(kept: str, tmp_path: Path) -> None:
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat = chat_of(proxy)
        await chat.says("Opening")
        await chat.says("Second message")
        session, earlier = chat.session, list(chat.said)
        chat.said = earlier[:2]
        if kept == "regenerated":
            server.outputs.append([text_item("Another answer.", "msg_9")])
            await chat.says("Second message")
        else:
            await chat.says("Second message, edited")
        assert chat.session == session
        assert await branches(proxy, session) == 2
        chat.said = [*earlier]
        await chat.says("On the first branch.")
        assert chat.session == session
        assert await branches(proxy, session) == 2
        wanted = ["Opening", "Answer 1.", "Second message", "Answer 2.", "On the first branch.", "Answer 4."]
        assert await texts(proxy, session) == wanted


@pytest.mark.spec("W46", "W50")
async def test_a_client_goes_on_from_an_answer_that_was_cut(tmp_path: Path) -> None:
    server = ResponsesServer(cuts=2)
    whole = "A long answer that is never finished, whatever happens. " * 3
    server.outputs.append([thought_item("rs_1"), text_item(whole)])
    async with proxied(server, tmp_path) as proxy:
        body = {"model": "test-model", "input": [ASKED], "stream": True}
        heard: list[str] = []
        with suppress(httpx.RemoteProtocolError):
            async with proxy.http.stream("POST", "/v1/responses", json=body, headers=KEY) as reply:
                session = reply.headers["x-palimpsest-session"]
                async for line in reply.aiter_lines():
                    is_said = line.startswith("data: ") and "output_text.delta" in line
                    heard += [json.loads(line[6:])["delta"]] if is_said else []
        server.cuts = None
        chat = chat_of(proxy)
        chat.said = [ASKED, {"role": "assistant", "content": "".join(heard)}]
        await chat.says("Go on.")
        assert chat.session == session
        assert await texts(proxy, session) == [ASKED["content"], "".join(heard), "Go on.", "Answer 2."]


@pytest.mark.spec("W53")
@pytest.mark.parametrize("name", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
async def test_what_names_items_of_the_upstream_goes_on_as_it_came(name: Json, tmp_path: Path) -> None:
    async with wired(tmp_path, {"models": [{"match": "*", "window_tokens": 2_000}]}) as line:
        answer = {"id": "resp_1", "status": "completed", "output": [text_item("Noted.")]}
        line.upstream.expects(replies(json.dumps(answer).encode()))
        said = [{"role": "user", "content": prose(n, 400)} for n in range(8)]
        body = json.dumps({"model": "m", "input": [*said[:4], name, *said[4:]]}).encode()
        reply = await line.asks(post(body, path="/v1/responses"))
        assert reply.status == 200
        assert reply.header("x-palimpsest-view") == "original"
        assert line.upstream.requests[0].body == body


class Story:
    """An upstream that says the next piece when the client has the last one, until something is stored."""

    def __init__(self, running: Server, folder: Path) -> None:
        self._running = running
        self._folder = folder
        self._had = asyncio.Semaphore(0)

    async def __call__(self, wire: Wire) -> None:
        await wire.send(head(200, CHUNKED))
        await wire.send(chunk(said("response.output_item.done", 0, item=thought_item("rs_1"))))
        pieces = 0
        while saved(self._folder) is None:
            await wire.send(chunk(said("response.output_text.delta", 1, delta=f"piece {pieces}; ")))
            pieces += 1
            await self._had.acquire()
        self._running.kill()

    async def is_told(self) -> None:
        """The client listens until it is cut off."""
        body = {"model": "m", "input": [ASKED], "stream": True}
        async with asyncio.timeout(60), httpx.AsyncClient(timeout=60, trust_env=False, verify=False) as http:
            with suppress(httpx.TransportError):
                async with http.stream("POST", f"{self._running.url}/v1/responses", json=body) as reply:
                    async for line in reply.aiter_lines():
                        if "output_text.delta" in line:
                            self._had.release()


def said(kind: str, place: int, **fields: Any) -> bytes:
    event = {"type": kind, "output_index": place, **fields}
    return f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()


@pytest.mark.spec("S10", "W50")
async def test_what_had_come_of_an_answer_survives_a_kill(tmp_path: Path) -> None:
    async with Scripted() as upstream:
        async with server(tmp_path, upstream.url) as running:
            story = Story(running, tmp_path)
            upstream.expects(story)
            await story.is_told()
        async with server(tmp_path, upstream.url) as running:
            (session,) = await sessions(running)
            async with httpx.AsyncClient(base_url=running.url, trust_env=False, verify=False) as http:
                rows = (await http.get(f"/api/sessions/{session}/messages")).json()["messages"]
                assert [row["state"] for row in rows] == ["live", "incomplete"]
                thought, words = rows[1]["message"]
                assert thought == thought_item("rs_1")
                assert words["content"][0]["text"].startswith("piece 0; ")
                answer = {"id": "resp_2", "status": "completed", "output": [text_item("The end.")]}
                upstream.expects(replies(json.dumps(answer).encode()))
                body = {"model": "m", "input": [ASKED, words, {"role": "user", "content": "Go on."}]}
                assert (await http.post("/v1/responses", json=body)).status_code == 200
            assert await sessions(running) == [session]


@pytest.mark.spec("P1", "W48")
async def test_an_answer_that_is_gone_says_nothing_of_others(tmp_path: Path) -> None:
    """One caller's answer is gone from the upstream; another's request still goes as it came."""
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        chat, other = chat_of(proxy), ResponsesChat(proxy.http, headers={"authorization": "Bearer key-2"})
        first, gone = [await one.post(asked("Hello.", None)) for one in (chat, other)]
        del server.kept[gone["id"]]
        await other.post(asked("Go on.", gone["id"]))
        await chat.post(asked("Go on.", first["id"]))
        assert server.asked[-1].body == asked("Go on.", first["id"])
        # Of the other's conversation it is kept in mind.
        await other.post(asked("And?", "resp_3"))
        assert len(server.asked[-1].body["input"]) == 5


def asked(text: str, before: str | None) -> Json:
    return {"model": "test-model", "input": text} | ({"previous_response_id": before} if before else {})
