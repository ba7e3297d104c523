"""What items that a request only names stand for where that is not plain, and whose words they never are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_responses import messages_of
from tests.e2e.test_responses_references import asked, naming
from tests.e2e.test_responses_sessions import KEY, branches, text_in
from tests.kit.proxy import proxied
from tests.kit.remains import remains
from tests.kit.responses import (
    ResponsesChat,
    ResponsesServer,
    call_item,
    reference,
    result_item,
    text_item,
    thought_item,
)
from tests.kit.words import prose

Json = dict[str, Any]


@pytest.mark.spec("P5", "W55")
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
        said = ("Opening", reference("msg_1"), "Right", reference("msg_2"), "And now?")
        await chat.post(asked(*said, instructions=chat.instructions))
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
    answers = [[text_item(f"Answer {n}. {prose(n + 500, 60)}", "msg_0")] for n in range(24)]
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
    async with proxied(server, tmp_path, {"upstream.compaction_requests": "proxy"}) as proxy:
        chat = naming(proxy)
        await chat.says(f"The code is R-7919. {prose(3, 300)}")
        compacted = await chat.post(asked(*chat.said, {"type": "compaction_trigger"}))
        (item,) = compacted["output"]
        await chat.post(asked(reference(item), "What is the code?"))
        assert server.missed == []
        assert "R-7919" in server.asked[-1].body["input"][0]["content"]
