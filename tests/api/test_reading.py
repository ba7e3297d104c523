"""Sessions, messages, views and settings as a caller reads and changes them, and what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from palimpsest.api.pages import Wall
from palimpsest.proxy.incoming import ASGIMessage

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def test_a_session_is_found_by_our_id_and_by_the_clients_own_name(chat: Chat) -> None:
    by_id = await chat.asks("GET", "")
    assert by_id == await chat.asks("GET", f"sessions/{quote('my/own name', safe='')}")
    assert (by_id["name"], by_id["messages"], by_id["exchanges"]) == ("my/own name", 4, 2)
    assert [branch["is_default"] for branch in by_id["branches"]] == [True]


async def test_sessions_are_listed_newest_first_page_by_page(proxy: Proxy) -> None:
    talks = [proxy.chat(session=f"s{n}") for n in range(5)]
    for talk in talks:
        await talk.says("hello")
    first = await talk.asks("GET", "sessions", limit=3)
    second = await talk.asks("GET", "sessions", limit=3, after=first["next"])
    ids = [row["id"] for row in (*first["sessions"], *second["sessions"])]
    assert ids == sorted((talk.session for talk in talks), reverse=True)
    assert (first["total"], second["next"]) == (5, None)
    begin = talk.session[:13]
    named = [row["id"] for row in (await talk.asks("GET", "sessions", named=begin))["sessions"]]
    assert named == [ident for ident in ids if ident.startswith(begin)]
    assert (await talk.asks("GET", "sessions", named="-"))["sessions"] == []


async def test_messages_are_the_instructions_and_then_everything_said(proxy: Proxy, chat: Chat) -> None:
    read = await chat.asks("GET", "/messages")
    rows = read["messages"]
    assert ([row["message"] for row in rows], read["total"]) == (chat.said, 5)
    origins = ["instructions", "client", "relayed", "client", "relayed"]
    assert [(row["position"], row["origin"]) for row in rows] == list(enumerate(origins))
    assert all(row["in_path"] and row["state"] == "live" for row in rows)
    pages = [await chat.asks("GET", "/messages", limit=2)]
    pages += [await chat.asks("GET", "/messages", limit=2, after=at) for at in (1, 3, 99)]
    assert [row["message"] for page in pages for row in page["messages"]] == chat.said
    assert [page["next"] for page in pages] == [1, 3, None, None]
    # A branch may end at any message.
    assert await chat.transcript(branch=rows[2]["id"]) == chat.said[:3]
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/messages", headers=chat.headers)
    assert (reply.headers["cache-control"], reply.headers["content-type"]) == ("no-store", "application/json")


async def test_every_branch_can_be_read(proxy: Proxy, chat: Chat) -> None:
    proxy.model.says("another answer")
    await chat.posts([*chat.said[:3], {"role": "user", "content": "edited question"}])
    texts = set()
    for branch in [branch["branch"] for branch in (await chat.session_fields())["branches"]]:
        read = await chat.asks("GET", "/messages", branch=branch[:12])
        assert read["branch"] == branch
        texts.add(read["messages"][-2]["message"]["content"])
    assert texts == {"second question", "edited question"}


async def test_the_view_of_a_short_conversation_is_the_conversation(chat: Chat) -> None:
    view = await chat.view()
    assert [part["message"] for part in view["parts"]] == chat.said
    assert (view["view"], view["compaction"]) == ("original", None)
    assert view["tokens"] == view["tokens_full"] < view["budget"]["trigger_tokens"]
    assert view["window"] == {"tokens": 20_000, "source": "upstream", "ratio": pytest.approx(1, abs=0.2)}
    assert all(part["reason"] for part in view["parts"])


async def test_the_view_counts_what_the_trigger_counts(proxy: Proxy) -> None:
    """One token count for gauge and trigger, tool schemas included."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    talk = proxy.chat(session="tools", extra={"tools": tools})
    await talk.says("hello")
    await talk.says("again")
    full = int(talk.reply.headers["x-palimpsest-tokens"].split("/")[0])
    assert (await talk.view())["tokens"] == full + (await talk.rows())[-1]["tokens"]


async def test_one_message_is_read_in_pages_of_characters(proxy: Proxy) -> None:
    proxy.model.calls(("c1", "look", {"at": "x"}))
    text, talk = "".join(f"line {n} é\n" for n in range(400)), proxy.chat()
    await talk.says(text)
    said, answered = [row["id"] for row in await talk.rows()]
    read, offset = "", 0
    while offset is not None:
        page = await talk.asks("GET", f"context/{said}", offset=offset, limit=1000)
        assert (page["role"], page["session"], page["total_chars"]) == ("user", talk.session, len(text))
        read, offset = read + page["text"], page["next_offset"]
    assert read == text
    # A message without text is read as JSON.
    page = await talk.asks("GET", f"context/{answered}")
    assert page["format"] == "json"
    assert json.loads(page["text"])["tool_calls"][0]["id"] == "c1"


async def settings_of(chat: Chat) -> Json:
    """The session's own settings."""
    own: Json = (await chat.asks("GET", "/settings"))["settings"]
    return own


async def test_patches_are_merged_and_null_takes_back(proxy: Proxy, chat: Chat) -> None:
    told = await chat.asks("GET", "/settings")
    assert (told["session"], told["model"], told["settings"]) == (chat.session, "test-model", {})
    assert told["policy"]["trigger_ratio"] == {"value": 0.9, "from": "preset"}
    assert {number["from"] for number in told["policy"].values()} == {"preset"}
    done = await chat.asks("PATCH", "/settings", {"policy": {"name": "rolling", "tail_messages": 9}})
    assert done == await chat.asks("GET", "/settings")
    policy = {"wait_for_summary": True, "tail_messages": None}
    told = await chat.asks("PATCH", "/settings", {"policy": policy})
    assert told["settings"] == {"policy": {"name": "rolling", "wait_for_summary": True}}
    assert told["policy"]["name"] == {"value": "rolling", "from": "session"}
    assert told["policy"]["tail_messages"] == {"value": 6, "from": "preset"}
    other = proxy.chat(session="other")
    await other.says("hello")
    assert await settings_of(other) == {}
    assert (await chat.asks("PATCH", "/settings", {"policy": None}))["settings"] == {}


IMPOSSIBLE: list[tuple[Json, str]] = [
    ({"policy": {"trigger_ratio": 2}}, "policy.trigger_ratio"),
    ({"policy": {"summary_max_tokens": "many"}}, "policy.summary_max_tokens"),
    ({"policy": {"advanced": {"tail_ratio": 0.9}}}, "policy.advanced.tail_ratio"),
    ({"policy": {"name": "nobody"}}, "policy.name"),
    ({"policy": {"colour": 1}}, "policy.colour"),
    ({"policy": {"target_ratio": 0.9}}, "policy.target_ratio"),
    ({"server": {"port": 1}}, "server"),
]


@pytest.mark.spec("A42")
async def test_what_cannot_be_is_refused_by_name_and_changes_nothing(chat: Chat) -> None:
    own = {"policy": {"wait_for_summary": True}}
    await chat.asks("PATCH", "/settings", own)
    for patch, field in IMPOSSIBLE:
        error = await chat.asks("PATCH", "/settings", patch, status=400)
        assert (error["code"], error["param"]) == ("invalid_parameter", field)
        assert field in error["message"]
    for body in ([1], "x", 1):
        assert (await chat.asks("PATCH", "/settings", body, status=400))["code"] == "invalid_parameter"
    assert await settings_of(chat) == own


async def test_patches_at_once_do_not_undo_each_other(chat: Chat) -> None:
    plain = {"wait_for_summary": True, "reuse_prompt_cache": False, "keep_original_task": False}
    advanced = {"in_background": False, "trigger_messages": 3}
    patches: list[Json] = [{key: value} for key, value in plain.items()]
    patches += [{"advanced": {key: value}} for key, value in advanced.items()]
    await asyncio.gather(*(chat.asks("PATCH", "/settings", {"policy": patch}) for patch in patches))
    assert await settings_of(chat) == {"policy": {**plain, "advanced": advanced}}


@pytest.mark.spec("A42")
async def test_settings_count_from_the_next_request_on(proxy: Proxy) -> None:
    """The same conversation twice; one of the two is told to compact earlier."""
    plain, early = proxy.chat(session="plain"), proxy.chat(session="early")
    for turn in range(6):
        for chat in (plain, early):
            await chat.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 150)
    assert early.reply.headers["x-palimpsest-view"] == "original"
    numbers = {"name": "handoff", "trigger_tokens": 4_000, "target_ratio": 0.1}
    await early.asks("PATCH", "/settings", {"policy": numbers})
    for chat in (plain, early):
        await chat.says("And now?")
    views = [chat.reply.headers["x-palimpsest-view"] for chat in (plain, early)]
    assert views == ["original", "compacted"]
    assert [one["policy"] for one in await early.compactions()] == ["handoff"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "param"),
    [
        *(("GET", path, 404, "not_found", None) for path in ("/api", "/redoc", "/api/sessions/")),
        ("PUT", "/api/sessions", 405, "method_not_allowed", None),
        ("POST", "/api/sessions/x/messages", 405, "method_not_allowed", None),
        ("DELETE", "/healthz", 405, "method_not_allowed", None),
        ("GET", "/api/sessions?limit=x", 400, "invalid_parameter", "limit"),
        ("GET", "/api/sessions?limit=0", 400, "invalid_parameter", "limit"),
        ("GET", "/api/sessions?after=%00", 400, "invalid_parameter", "after"),
        ("GET", "/api/sessions/x/messages?after=-1", 400, "invalid_parameter", "after"),
        ("GET", "/api/context/dcm_0?limit=99999999999999999999999", 400, "invalid_parameter", "limit"),
    ],
)
async def test_what_is_wrong_is_named_in_openais_shape(
    proxy: Proxy, method: str, path: str, status: int, code: str, param: str | None
) -> None:
    reply = await proxy.http.request(method, path)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (status, code, param)
    assert error.keys() == {"message", "type", "param", "code"}
    assert status != 405 or "GET" in reply.headers["allow"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        (b"[]", 400, None),
        (b'{"focus": 1}', 400, "focus"),
        (b'{"foucs": "x"}', 400, "foucs"),
        (b'{"focus": "%s"}' % (b"x" * 3000), 400, "focus"),
        (b'"%s"' % (b"x" * 100_000), 413, None),
    ],
)
async def test_a_wrong_body_is_refused(
    proxy: Proxy, chat: Chat, body: bytes, status: int, param: str | None
) -> None:
    headers = chat.headers | {"content-type": "application/json"}
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=headers, content=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
async def test_websockets_are_refused_plainly(extensions: dict[str, Any]) -> None:
    sent: list[ASGIMessage] = []

    async def send(message: ASGIMessage) -> None:
        sent.append(message)

    async def receive() -> ASGIMessage:
        return {"type": "websocket.connect"}

    async def app(*_: object) -> None:
        raise AssertionError("nothing behind it is asked")

    await Wall(app)({"type": "websocket", "path": "/api/sessions", "extensions": extensions}, receive, send)
    kinds = [message["type"] for message in sent]
    if extensions:
        assert kinds == ["websocket.http.response.start", "websocket.http.response.body"]
        assert sent[0]["status"] == 404
    else:
        assert kinds == ["websocket.close"]
