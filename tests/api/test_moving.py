"""Moving a session: export and import give the same conversation, and what is no session is refused whole."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.core.wire.json_spans import raw_elements, raw_members
from palimpsest.errors import StoreUnavailable
from palimpsest.storage.exchanges import Exchanges

from tests.kit.chat import Chat, Json
from tests.kit.journal import AT_THE_END, compacted
from tests.kit.model import ModelServer
from tests.kit.proxy import Front, proxied
from tests.kit.words import prose

KEY = {"authorization": "Bearer key-1"}
JSON_TYPE = {"content-type": "application/json"}
TIMES = "1970-01-01T00:00:05.500Z", "2026-11-21T23:22:34.270Z"
SAID: list[Json] = [
    {"role": "user", "content": "What is it?"},
    {"role": "assistant", "content": "A harbour."},
]


async def imports(front: Front, document: Json | bytes, **headers: str) -> httpx.Response:
    """The answer to an import."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return await front.http.post("/api/sessions/import", content=content, headers=KEY | JSON_TYPE | headers)


async def test_what_was_stored_is_not_answered_with_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    stored = Exchanges.import_session

    async def late(self: Exchanges, *given: Any) -> None:
        await stored(self, *given)
        raise StoreUnavailable("The answer to the commit was lost.")

    async with proxied(ModelServer(), tmp_path) as proxy:
        events = [
            {"type": f"{said['role']}_message", "payload": {"message": said["content"]}} for said in SAID
        ]
        monkeypatch.setattr(Exchanges, "import_session", late)
        reply = await imports(proxy, {"events": events})
        assert reply.status_code == 201, reply.text
        assert len(await rows(proxy, reply.json()["session"])) == len(SAID)


async def exported(front: Front, name: str) -> bytes:
    """The document of a session."""
    reply = await front.http.get(f"/api/sessions/{name}/export", headers=KEY)
    assert reply.status_code == 200, reply.text
    return reply.content


async def rows(front: Front, name: str) -> list[tuple[Any, ...]]:
    """The transcript with every byte of its messages, and what must be the same of a copy."""
    reply = await front.http.get(f"/api/sessions/{name}/messages", headers=KEY)
    assert reply.status_code == 200, reply.text
    raws = [raw_members(row)["message"] for row in raw_elements(raw_members(reply.content)["messages"])]
    fields = [(row["role"], row["position"], row["tokens"]) for row in reply.json()["messages"]]
    return [(*each, raw) for each, raw in zip(fields, raws, strict=True)]


def state_in(document: bytes) -> Json:
    """The state in an export, without the names that another proxy gives to the same messages."""
    (checkpoint,) = [e for e in json.loads(document)["events"] if e["type"] == "checkpoint"]
    state: Json = checkpoint["payload"]["runtime"]
    transcript = state["transcript"]
    view = transcript["view"]
    parts = [part["kind"] for part in view["parts"]]
    named = {"messageCount": transcript["messageCount"], "digest": view["digest"], "parts": parts}
    return state | {"transcript": named}


async def odd(front: Front) -> None:
    """A conversation whose bytes no encoder would write again: numbers, escapes, blanks, a broken pair."""
    model_answer = b'{"role":"assistant","content":"\\u0041 b\\/c \\ud83d","x":1e2,"y":1.10}'
    turns: list[bytes] = [
        b'{"role":"system","content":"Be  kind.", "z": 12345678901234567890.0}',
        b'{ "role" : "user", "content":"\\ud83d half, 1e2, \\u0000", "n": 1E+2 }',
        model_answer,
        b'{"role":"tool","tool_call_id":"nobody","content":"a result without a call"}',
        b'{"role":"critic","content":"a role of its own"}',
        b'{"role":"assistant","content":null,"refusal":"No."}',
        b'{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",'
        b'"function":{"name":"read","arguments":"{\\"path\\": \\"/srv/a.txt\\"}"}}]}',
        b'{"role":"user","content":"And now?"}',
    ]
    body = b'{"model":"test-model","messages":[' + b",".join(turns) + b"]}"
    headers = KEY | {"x-session-id": "tour"}
    reply = await front.http.post("/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 200, reply.text


@pytest.mark.spec("A40")
async def test_an_export_gives_the_same_session_elsewhere_byte_for_byte(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    model = ModelServer()
    async with proxied(model, one) as proxy:
        await odd(proxy)
        document = await exported(proxy, "tour")
        before = await rows(proxy, "tour")
    async with proxied(model, other) as proxy:
        reply = await imports(proxy, document)
        assert reply.status_code == 201, reply.text
        made = reply.json()
        assert (made["form"], made["is_upgraded"], made["messages"]) == ("checkpoint_v2", False, 9)
        assert await rows(proxy, "tour") == before
        again = await exported(proxy, "tour")
        # The names of messages are another proxy's.
        lines, first = (
            [line.split(b'"created_at"')[1] for line in text.split(b"\n")[1:-2]] for text in (again, document)
        )
        assert lines == first
        assert len(first) == 9
        assert state_in(again) == state_in(document)
        assert state_in(again)["tooling"]["calls"] == {"read": 1}
        assert state_in(again)["usage"]["requests"] == 1


@pytest.mark.spec("A40")
async def test_events_that_came_stay_as_they_came(tmp_path: Path) -> None:
    events: list[Json] = [
        {"id": "e1", "type": "llm_usage", "payload": {"inputTokens": 5, "n": 1.0}, "created_at": 5.5},
        {"id": 2, "type": "conversation_snapshot", "payload": {"conversationHistory": SAID}},
        {
            "id": "e3",
            "type": "user_message",
            "payload": {"content": "One more."},
            "created_at": 1795303354270,
        },
        {"id": "e4", "type": "other.thing", "payload": None},
    ]
    async with proxied(ModelServer(), tmp_path) as proxy:
        reply = await imports(proxy, {"name": "old", "events": events})
        assert reply.status_code == 201, reply.text
        made = reply.json()
        assert (made["form"], made["event"], made["is_upgraded"]) == ("snapshot_legacy", "2", True)
        told = (await proxy.http.get("/api/sessions/old/events", headers=KEY)).json()["events"]
        assert [(event["id"], event["type"], event["payload"]) for event in told[:4]] == [
            (str(event["id"]), event["type"], event["payload"]) for event in events
        ]
        assert [event["type"] for event in told[4:]] == ["session_restored", "conversation_snapshot"]
        assert (told[0]["created_at"], told[2]["created_at"]) == TIMES
        restored, state = told[4]["payload"], told[5]["payload"]
        assert state["schema"] == "session_runtime_v2"
        assert state["usage"] == {"inputTokens": 5, "outputTokens": 0, "cachedTokens": 0, "requests": 1}
        assert (restored["form"], restored["eventId"], restored["isUpgraded"]) == (
            "snapshot_legacy",
            "2",
            True,
        )
        assert restored["messages"] == 3
        page = (await proxy.http.get("/api/sessions/old/messages", headers=KEY)).json()["messages"]
        assert [each["message"] for each in page] == [*SAID, {"role": "user", "content": "One more."}]


REFUSED: list[tuple[Any, int, str, str | None]] = [
    (b"{", 400, "invalid_json", None),
    (b"[]", 400, "invalid_json", None),
    (b'{"events":[NaN]}', 400, "invalid_json", None),
    (b'{"events":' + b"[" * 300 + b"]" * 300 + b"}", 400, "nested_too_deep", None),
    ({}, 400, "invalid_parameter", "events"),
    ({"events": {}}, 400, "invalid_parameter", "events"),
    ({"events": [], "nmae": "a"}, 400, "invalid_parameter", "nmae"),
    ({"events": [], "name": ""}, 400, "invalid_parameter", "name"),
    ({"events": [], "name": "a" * 201}, 400, "invalid_parameter", "name"),
    ({"events": [], "model": 1}, 400, "invalid_parameter", "model"),
    ({"events": [], "format": "v9"}, 400, "invalid_parameter", "format"),
    ({"events": ["a"]}, 400, "invalid_parameter", "events[0]"),
    ({"events": [{"payload": {}}]}, 400, "invalid_parameter", "events[0].type"),
    ({"events": [{"type": "a b\n"}]}, 400, "invalid_parameter", "events[0].type"),
    ({"events": [{"type": "a", "id": []}]}, 400, "invalid_parameter", "events[0].id"),
    *(
        ({"events": [{"type": "a", "created_at": at}]}, 400, "invalid_parameter", "events[0].created_at")
        for at in ("now", True, -1, 1e300, 10**400)
    ),
    ({"events": [{"type": "a", "data": 1}]}, 400, "invalid_parameter", "events[0].data"),
    ({"events": [{"\ud800": 1}]}, 400, "invalid_parameter", "events[0].\ufffd"),
    ({"\ud800": 1}, 400, "invalid_parameter", "\ufffd"),
    (
        {"events": [{"type": "user_message", "payload": {"message": m}} for m in (*SAID, {"role": []})]},
        400,
        "invalid_parameter",
        "events",
    ),
    ({"events": []}, 422, "nothing_to_restore", None),
    ({"events": [{"type": "checkpoint", "payload": {}}]}, 422, "nothing_to_restore", None),
    ({"events": [{"type": "system_message", "payload": {"content": "a"}}]}, 422, "nothing_to_restore", None),
    ({"name": "taken", "events": []}, 422, "nothing_to_restore", None),
    ({"events": [{"type": "a"}] * 26}, 413, "body_too_large", "events"),
    (
        {"events": [{"type": "checkpoint", "payload": {"conversationHistory": SAID * 3}}]},
        413,
        "body_too_large",
        "events",
    ),
    (b" " * 20_001, 413, "body_too_large", None),
    (gzip.compress(b" " * 20_001), 413, "body_too_large", None),
]


async def test_what_is_no_session_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    bounds = {"limits.messages": 5, "limits.body_bytes": 20_000}
    good = {"name": "taken", "events": [{"type": "user_message", "payload": {"content": "Hello."}}]}
    async with proxied(ModelServer(), tmp_path, bounds) as proxy:
        reply = await imports(proxy, gzip.compress(json.dumps(good).encode()), **{"content-encoding": "gzip"})
        assert reply.status_code == 201, reply.text
        ident = reply.json()["session"]
        for name in ("taken", ident):
            reply = await imports(proxy, good | {"name": name})
            assert (reply.status_code, reply.json()["error"]["code"]) == (409, "name_taken")
        for document, status, code, param in REFUSED:
            coded = isinstance(document, bytes) and document.startswith(b"\x1f\x8b")
            reply = await imports(proxy, document, **({"content-encoding": "gzip"} if coded else {}))
            error = reply.json()["error"]
            assert (reply.status_code, error["code"], error["param"]) == (status, code, param), document
        listed = (await proxy.http.get("/api/sessions", headers=KEY)).json()
        assert [session["id"] for session in listed["sessions"]] == [ident]
        other = await proxy.http.get("/api/sessions/taken/export", headers={"authorization": "Bearer other"})
        assert other.status_code == 404


_NAME = re.compile(rb"dcm_[0-9a-f]{32}")


async def noted(chat: Chat) -> None:
    """A conversation that was compacted thrice, a long tool result in its last turns."""
    await compacted(chat, rounds=2)
    call: Json = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    chat.said.append({"role": "user", "content": "Read it."})
    chat.said.append({"role": "assistant", "content": None, "tool_calls": [call]})
    await chat.sends({"role": "tool", "tool_call_id": "c1", "content": prose(9, 1_500)})
    await compacted(chat, rounds=1)


SAME = ("id", "kind", "trigger", "author", "tokens_before", "tokens_after", "messages_folded", "parents")


@pytest.mark.timeout(60)
async def test_a_compacted_session_is_shown_as_before_elsewhere(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    model = ModelServer(window=8_000)
    async with proxied(model, one, AT_THE_END) as proxy:
        chat = proxy.chat(session="notes", system="You keep notes.")
        await noted(chat)
        document, before = await exported(proxy, "notes"), model.prompts[-1]
        view = (await chat.view())["parts"]
        made = await chat.compactions()
    async with proxied(model, other, AT_THE_END) as proxy:
        assert (await imports(proxy, document)).status_code == 201
        again = proxy.chat(session="notes")
        again.said, again.replies = chat.said, chat.replies
        await again.says("Go on.")
        after = model.prompts[-1]
        assert len(after.spans) == len(before.spans) + 2
        shown = [_NAME.sub(b"", span) for span in after.spans]
        assert shown[:-2] == [_NAME.sub(b"", span) for span in before.spans]
        assert await again.transcript() == again.said
        copied = await again.compactions()
        assert [{key: row[key] for key in SAME} for row in copied] == [
            {key: row[key] for key in SAME} for row in made
        ]
        assert [part["kind"] for part in (await again.view())["parts"][:-2]] == [
            part["kind"] for part in view
        ]
        # Whatever is told of an id, it leads to the message it meant.
        names = {name.decode() for span in after.spans for name in _NAME.findall(span)}
        names |= {row["watermark"] for row in copied}
        texts = {row["id"]: row["message"]["content"] for row in await again.rows()}
        assert names <= texts.keys()
        assert state_in(await exported(proxy, "notes"))["loop"]["compactionCount"] == len(made)
