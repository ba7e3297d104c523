"""Requests for a compaction: the upstream's by default, the proxy's where that is set."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import (
    Asked,
    ResponsesChat,
    ResponsesServer,
    _error,
    _reply,
    call_item,
    events_of,
    result_item,
    text_item,
    thought_item,
)
from tests.kit.wire import answer_body, chat_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import replies

Json = dict[str, Any]
KEY = {"authorization": "Bearer key-1"}
TRIGGER = {"type": "compaction_trigger"}
SEALED = {"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAABsealed"}
# What an upstream answers that has the endpoint; the spaces would not survive being written anew.
COMPACTED = (
    b'{"id": "resp_c", "object":  "response.compaction", "created_at": 1, "output": ['
    b'{"id":"msg_1","type":"message","role":"user","status":"completed",'
    b'"content":[{"type":"input_text","text":"Hello."}]}, ' + json.dumps(SEALED).encode() + b'], "usage": {}}'
)
HISTORY: list[Json] = [
    {"role": "developer", "content": "You are a careful engineer."},
    {"role": "user", "content": "Read harbour.py. The berth must be 42."},
    thought_item("rs_1"),
    call_item("c1", "read_file", {"path": "harbour.py"}),
    result_item("c1", f"BERTH = 41\n{prose(3, 400)}"),
    text_item("I changed BERTH to 42 in harbour.py and ran the tests."),
    {"role": "user", "content": "Now the ferry."},
    text_item("The ferry is in ferry.py, untouched so far."),
]


@dataclass
class CompactServer(ResponsesServer):
    """Also has `/responses/compact` where `has_endpoint`; takes `context_management` where `manages`.

    `compacts` are the bodies that it was asked with.
    """

    has_endpoint: bool = False
    manages: bool = False
    compacts: list[bytes] = field(default_factory=list)
    sealed: Json = field(default_factory=lambda: SEALED)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/compact"):
            self.compacts.append((await receive())["body"])
            if self.has_endpoint:
                headers = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                made = COMPACTED.replace(json.dumps(SEALED).encode(), json.dumps(self.sealed).encode())
                await send({"type": "http.response.body", "body": made})
                return
            await _reply(send, 404, _error("not_found", "No such path.", ""))
            return
        await super().__call__(scope, receive, send)

    async def _told(self, asked: Asked, send: Any) -> None:
        if "context_management" in asked.body and not self.manages:
            message = "Unknown parameter: 'context_management'."
            await _reply(send, 400, _error("unknown_parameter", message, "context_management"))
            return
        await super()._told(asked, send)


def made_by(who: str) -> Json:
    return {"upstream.compaction_requests": who}


async def stored_in(proxy: Proxy, session: str) -> list[Any]:
    reply = await proxy.http.get(f"/api/sessions/{session}/messages", params={"limit": 100}, headers=KEY)
    assert reply.status_code == 200, reply.text
    return [entry["message"] for entry in reply.json()["messages"] if entry["in_path"]]


@pytest.mark.spec("W54")
@pytest.mark.parametrize("has_endpoint", [True, False])
async def test_by_default_the_upstream_is_asked(has_endpoint: bool, tmp_path: Path) -> None:
    server = CompactServer(has_endpoint=has_endpoint)
    body = b'{ "model":"test-model",  "input": "Hello." }'
    async with proxied(server, tmp_path) as proxy:
        reply = await proxy.http.post("/v1/responses/compact", content=body, headers=KEY)
        assert server.compacts == [body]
        assert reply.status_code == (200 if has_endpoint else 404)
        assert not has_endpoint or reply.content == COMPACTED


@pytest.mark.spec("W54")
@pytest.mark.parametrize("who", ["upstream", "auto", "proxy"])
@pytest.mark.parametrize("keeps", [slice(None), slice(-1, None)])
@pytest.mark.parametrize("dropped", ["", "id"])
async def test_what_goes_on_from_a_compaction_is_the_conversation(
    who: str, keeps: slice, dropped: str, tmp_path: Path
) -> None:
    """Codex keeps its user messages beside the item, or nothing else; thirty turns were seven sessions."""
    server = CompactServer(has_endpoint=True)
    async with proxied(server, tmp_path, made_by(who)) as proxy:
        chat, found = ResponsesChat(proxy.http, headers=KEY), set()
        for turn in range(9):
            await chat.says(f"Turn {turn}: what of the ships at berth {turn}?")
            found.add(chat.session)
            if turn % 3 == 2:
                server.sealed = SEALED | {"encrypted_content": f"gAAAAAB{turn}"}
                body = {"model": "test-model", "input": chat.said, "instructions": chat.instructions}
                made = (await proxy.http.post("/v1/responses/compact", json=body, headers=KEY)).json()
                chat.said = [
                    {key: item[key] for key in item if key != dropped} for item in made["output"][keeps]
                ]
        assert len(found) == 1
        lineage = await proxy.http.get(f"/api/sessions/{chat.session}/messages?limit=99", headers=KEY)
    assert all(f"at berth {turn}?" in lineage.text for turn in range(9))


@pytest.mark.spec("W54")
@pytest.mark.parametrize(("who", "asked"), [("auto", 1), ("proxy", 0)])
async def test_what_an_upstream_lacks_is_made_here_and_goes_on_from_there(
    who: str, asked: int, tmp_path: Path
) -> None:
    server = CompactServer()
    async with proxied(server, tmp_path, made_by(who)) as proxy:
        async with AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="key-1") as client:
            for _ in range(2):
                made = await client.responses.compact(model="test-model", input=HISTORY)  # type: ignore[arg-type]
        assert made.object == "response.compaction"
        assert [item.type for item in made.output] == ["message", "message", "message", "compaction"]
        assert made.usage.total_tokens > made.usage.output_tokens > 0
        assert len(server.compacts) == asked
        output = [item.model_dump(exclude_none=True, warnings=False) for item in made.output]
        said = [part["text"] for item in output[:3] for part in item["content"]]
        assert said == [HISTORY[at]["content"] for at in (0, 1, 6)]
        goes_on = [*output, {"role": "user", "content": "What is left?"}]
        reply = await proxy.http.post(
            "/v1/responses", json={"model": "test-model", "input": goes_on}, headers=KEY
        )
        assert reply.status_code == 200, reply.text
        stored = await stored_in(proxy, reply.headers["x-palimpsest-session"])
    shown = server.asked[-1]
    assert shown.faults == []
    assert [item for item in shown.items if item.get("type") == "compaction"] == []
    assert shown.items[:3] == output[:3]
    assert shown.items[4] == goes_on[4]
    assert shown.items[3]["role"] == "user"
    assert "BERTH" in shown.items[3]["content"]
    assert "ferry.py" in shown.items[3]["content"]
    assert stored[:5] == goes_on


@pytest.mark.spec("W54")
async def test_what_was_made_here_lasts_through_later_compactions(tmp_path: Path) -> None:
    server = CompactServer(window=4_000)
    async with proxied(server, tmp_path, made_by("proxy")) as proxy:
        reply = await proxy.http.post(
            "/v1/responses/compact", json={"model": "test-model", "input": HISTORY}, headers=KEY
        )
        chat = ResponsesChat(proxy.http, headers=KEY, instructions=None, said=reply.json()["output"])
        for turn in range(24):
            await chat.says(f"Turn {turn}: {prose(turn, 300)}")
        listed = await proxy.http.get(f"/api/sessions/{chat.session}/compactions", headers=KEY)
        again = await proxy.http.post(
            "/v1/responses/compact", json={"model": "test-model", "input": chat.said}, headers=KEY
        )
    assert len(listed.json()["compactions"]) > 1
    assert [asked.faults for asked in server.asked if asked.faults] == []
    assert all("harbour.py" in asked.text and "ferry.py" in asked.text for asked in server.asked)
    assert all("palimpsest:1:" not in asked.text for asked in server.asked)
    kinds = [item["type"] for item in again.json()["output"]]
    assert kinds == ["message"] * (3 + 24) + ["compaction"]


async def test_what_the_upstream_makes_is_relayed_as_it_is(tmp_path: Path) -> None:
    server = CompactServer(has_endpoint=True)
    async with proxied(server, tmp_path, made_by("auto")) as proxy:
        reply = await proxy.http.post(
            "/v1/responses/compact", json={"model": "test-model", "input": "Hello."}, headers=KEY
        )
        assert reply.content == COMPACTED
        stored = await stored_in(proxy, reply.headers["x-palimpsest-session"])
    assert stored == [{"role": "user", "content": "Hello."}, [SEALED]]


@pytest.mark.spec("W54")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("who", "asked"), [("auto", 1), ("proxy", 0)])
async def test_a_trigger_is_answered_with_one_item(
    who: str, asked: int, stream: bool, tmp_path: Path
) -> None:
    server = CompactServer()
    body = {"model": "test-model", "input": [*HISTORY, TRIGGER], "stream": stream}
    async with proxied(server, tmp_path, made_by(who)) as proxy:
        reply = await proxy.http.post("/v1/responses", json=body, headers=KEY)
        assert reply.status_code == 200, reply.text
        answer = reply.json() if not stream else events_of(reply.text)[-1]["response"]
        again = await proxy.http.post("/v1/responses", json=body, headers=KEY)
        stored = await stored_in(proxy, reply.headers["x-palimpsest-session"])
    assert again.status_code == 200
    assert [item["type"] for item in answer["output"]] == ["compaction"]
    assert answer["status"] == "completed"
    assert len(server.asked) == asked
    flat = [item for entry in stored for item in (entry if isinstance(entry, list) else [entry])]
    assert flat[:-1] == HISTORY
    if stream:
        kinds = [event["type"] for event in events_of(reply.text)]
        assert kinds == [
            "response.created",
            "response.output_item.added",
            "response.output_item.done",
            "response.completed",
        ]


async def test_a_trigger_goes_upstream_by_default_and_is_no_message(tmp_path: Path) -> None:
    server = CompactServer(window=3_000)

    def plays(asked: Asked) -> list[Json] | None:
        return [SEALED] if asked.items[-1] == TRIGGER else None

    server.plays = plays
    async with proxied(server, tmp_path) as proxy:
        chat = ResponsesChat(proxy.http, headers=KEY, instructions=None)
        for turn in range(12):
            await chat.says(f"Turn {turn}: {prose(turn, 300)}")
        body = {"model": "test-model", "input": [*chat.said, TRIGGER]}
        reply = await proxy.http.post("/v1/responses", json=body, headers=KEY)
    # The strict server knows no triggers.
    assert reply.status_code == 400
    assert server.asked[-1].items[-1] == TRIGGER
    assert len(server.asked[-1].items) < len(chat.said)


@pytest.mark.spec("W54")
@pytest.mark.parametrize(("who", "sent"), [("upstream", [1]), ("auto", [1, 0, 0]), ("proxy", [0, 0])])
async def test_context_management_is_left_out_where_nobody_understands_it(
    who: str, sent: list[int], tmp_path: Path
) -> None:
    server = CompactServer()
    managed = {"context_management": [{"type": "compaction", "compact_threshold": 2_000}]}
    body = {**managed, "model": "test-model", "input": "Hello.", "store": False}
    async with proxied(server, tmp_path, made_by(who)) as proxy:
        replies = [await proxy.http.post("/v1/responses", json=body, headers=KEY) for _ in range(2)]
        if who == "upstream":
            assert [reply.status_code for reply in replies] == [400, 400]
            assert server.asked[0].body == body
            return
    assert [reply.status_code for reply in replies] == [200, 200]
    assert [int("context_management" in asked.body) for asked in server.asked] == sent
    bare = {key: value for key, value in body.items() if key != "context_management"}
    assert server.asked[-1].body == bare


@pytest.mark.spec("W54", "P1")
async def test_one_callers_refusal_changes_no_others_request(tmp_path: Path) -> None:
    server = CompactServer(manages=False)
    async with proxied(server, tmp_path, made_by("auto")) as proxy:
        body = {"model": "test-model", "input": "Hi.", "context_management": [{"type": "compaction"}]}
        for key in ("key-1", "key-1", "key-2"):
            server.manages = key == "key-2"
            headers = {"authorization": f"Bearer {key}"}
            assert (await proxy.http.post("/v1/responses", json=body, headers=headers)).status_code == 200
    assert ["context_management" in asked.body for asked in server.asked] == [True, False, False, True]


@pytest.mark.parametrize(("threshold", "compactions"), [(3_000, True), (None, False)])
async def test_a_threshold_that_is_left_out_is_kept_here(
    threshold: int | None, compactions: bool, tmp_path: Path
) -> None:
    server = CompactServer(window=100_000)
    managed = {"context_management": [{"type": "compaction", "compact_threshold": threshold}]}
    async with proxied(server, tmp_path, made_by("proxy")) as proxy:
        chat = ResponsesChat(proxy.http, headers=KEY, options=managed)
        for turn in range(20):
            await chat.says(f"Turn {turn}: {prose(turn, 300)}")
        listed = await proxy.http.get(f"/api/sessions/{chat.session}/compactions", headers=KEY)
    assert bool(listed.json()["compactions"]) == compactions
    # One turn beyond it may go out while its summary is begun.
    assert (max(asked.tokens for asked in server.asked) < 3_500) == compactions


async def test_a_conversation_with_nothing_to_fold_is_compacted_too(tmp_path: Path) -> None:
    server = CompactServer()
    async with proxied(server, tmp_path, made_by("proxy")) as proxy:
        body = {"model": "test-model", "input": "Hello."}
        reply = await proxy.http.post("/v1/responses/compact", json=body, headers=KEY)
        assert reply.status_code == 200, reply.text
        output = reply.json()["output"]
        assert [item["type"] for item in output] == ["message", "compaction"]
        assert output[0]["content"] == [{"type": "input_text", "text": "Hello."}]
        empty = await proxy.http.post(
            "/v1/responses", json={"model": "test-model", "input": [TRIGGER]}, headers=KEY
        )
    assert empty.status_code == 400
    assert server.asked[-1].items == [TRIGGER]


async def test_switched_off_it_is_the_upstreams(tmp_path: Path) -> None:
    server = CompactServer()
    async with proxied(server, tmp_path, made_by("proxy")) as proxy:
        headers = KEY | {"x-palimpsest": "off"}
        body = {"model": "test-model", "input": [*HISTORY, TRIGGER]}
        reply = await proxy.http.post("/v1/responses", json=body, headers=headers)
    assert reply.status_code == 400
    assert server.asked[0].body == body


async def test_what_is_answered_here_proves_no_key(tmp_path: Path) -> None:
    """Rule 26: a made-up key stores no more than others do until the upstream takes it."""
    given = made_by("proxy") | {"access.unproven_messages": 8}
    async with proxied(ResponsesServer(), tmp_path, given) as proxy:

        async def asks(path: str, text: str) -> int:
            body = {"model": "test-model", "input": [*HISTORY, {"role": "user", "content": text}]}
            return (await proxy.http.post(f"/v1/{path}", json=body, headers=KEY)).status_code

        assert await asks("responses/compact", "One.") == 200
        assert await asks("responses/compact", "Two.") == 429
        assert await asks("responses", "Three.") == 429


async def test_of_a_chat_completion_it_is_a_field_as_any_other(tmp_path: Path) -> None:
    """Chat completions ask for no compaction: that the field is refused is the client's to hear, once."""
    message = "Unknown parameter: 'context_management'."
    refused = json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
    async with wired(tmp_path, made_by("auto")) as line:
        line.upstream.expects(replies(refused, 400), replies(answer_body("Hello.")))
        asked = post(chat_body(context_management=[{"type": "compaction", "compact_threshold": 1_000}]))
        reply = await line.asks(asked)
    assert (reply.status, reply.body) == (400, refused)
    assert len(line.upstream.requests) == 1
    assert b"context_management" in line.upstream.requests[0].body
