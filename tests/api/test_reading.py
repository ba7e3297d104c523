"""Sessions, messages, views and single messages as a caller reads them back."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def got(proxy: Proxy, chat: Chat, path: str, **params: Any) -> Json:
    reply = await proxy.http.get(f"/api{path}", headers=chat.headers, params=params)
    assert reply.status_code == 200, reply.text
    value: Json = reply.json()
    return value


async def test_a_session_is_found_by_our_id_and_by_the_clients_own_name(proxy: Proxy, chat: Chat) -> None:
    by_id = await got(proxy, chat, f"/sessions/{chat.session}")
    by_name = await got(proxy, chat, f"/sessions/{quote('my/own name', safe='')}")
    assert by_id == by_name
    assert (by_id["name"], by_id["messages"], by_id["exchanges"]) == ("my/own name", 4, 2)
    assert [branch["is_default"] for branch in by_id["branches"]] == [True]


async def test_sessions_are_listed_newest_first_page_by_page(proxy: Proxy) -> None:
    talks = [proxy.chat(session=f"s{n}") for n in range(5)]
    for talk in talks:
        await talk.says("hello")
    first = await got(proxy, talks[0], "/sessions", limit=3)
    second = await got(proxy, talks[0], "/sessions", limit=3, after=first["next"])
    ids = [row["id"] for row in (*first["sessions"], *second["sessions"])]
    assert ids == sorted((talk.session for talk in talks), reverse=True)
    assert (first["total"], second["next"]) == (5, None)


async def test_sessions_are_filtered_by_the_beginning_of_their_id(proxy: Proxy, chat: Chat) -> None:
    await proxy.chat(session="other").says("hello")
    listed = await got(proxy, chat, "/sessions", named=chat.session[:13])
    assert chat.session in [row["id"] for row in listed["sessions"]]
    assert all(row["id"].startswith(chat.session[:13]) for row in listed["sessions"])
    assert (await got(proxy, chat, "/sessions", named="-"))["sessions"] == []


async def test_messages_are_the_instructions_and_then_everything_said(proxy: Proxy, chat: Chat) -> None:
    read = await got(proxy, chat, f"/sessions/{chat.session}/messages")
    assert [row["message"] for row in read["messages"]] == chat.said
    assert [row["origin"] for row in read["messages"]] == [
        "instructions",
        *("client", "relayed", "client", "relayed"),
    ]
    assert [row["position"] for row in read["messages"]] == [0, 1, 2, 3, 4]
    assert all(row["in_path"] and row["state"] == "live" for row in read["messages"])
    assert read["total"] == 5


async def test_messages_come_in_pages_when_asked_for(proxy: Proxy, chat: Chat) -> None:
    path = f"/sessions/{chat.session}/messages"
    pages = [await got(proxy, chat, path, limit=2)]
    pages += [await got(proxy, chat, path, limit=2, after=at) for at in (1, 3, 99)]
    assert [row["message"] for page in pages for row in page["messages"]] == chat.said
    assert [page["next"] for page in pages] == [1, 3, None, None]


async def test_every_branch_can_be_read(proxy: Proxy, chat: Chat) -> None:
    proxy.model.says("another answer")
    edited = [*chat.said[:3], {"role": "user", "content": "edited question"}]
    await chat.posts(edited)
    session = await got(proxy, chat, f"/sessions/{chat.session}")
    branches = [branch["branch"] for branch in session["branches"]]
    assert len(branches) == 2
    texts = set()
    for branch in branches:
        read = await got(proxy, chat, f"/sessions/{chat.session}/messages", branch=branch[:12])
        assert read["branch"] == branch
        texts.add(read["messages"][-2]["message"]["content"])
    assert texts == {"second question", "edited question"}


async def test_a_branch_may_end_at_any_message(proxy: Proxy, chat: Chat) -> None:
    path = f"/sessions/{chat.session}/messages"
    everything = await got(proxy, chat, path)
    until = await got(proxy, chat, path, branch=everything["messages"][2]["id"])
    assert [row["message"] for row in until["messages"]] == chat.said[:3]


async def test_the_view_of_a_short_conversation_is_the_conversation(proxy: Proxy, chat: Chat) -> None:
    view = await got(proxy, chat, f"/sessions/{chat.session}/view")
    assert [part["message"] for part in view["parts"]] == chat.said
    assert (view["view"], view["compaction"]) == ("original", None)
    assert view["tokens"] == view["tokens_full"] < view["budget"]["trigger_tokens"]
    assert view["window"] == {"tokens": 20_000, "source": "upstream", "ratio": pytest.approx(1, abs=0.2)}
    assert all(part["reason"] for part in view["parts"])


async def test_the_view_counts_what_the_trigger_counts(proxy: Proxy, chat: Chat) -> None:
    """One token count for gauge and trigger, tool schemas included."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    talk = proxy.chat(session="tools", extra={"tools": tools})
    await talk.says("hello")
    await talk.says("again")
    full = int(talk.reply.headers["x-palimpsest-tokens"].split("/")[0])
    read = await got(proxy, talk, f"/sessions/{talk.session}/messages")
    view = await got(proxy, talk, f"/sessions/{talk.session}/view")
    assert view["tokens"] == full + read["messages"][-1]["tokens"]


async def test_one_message_is_read_in_pages_of_characters(proxy: Proxy) -> None:
    text = "".join(f"line {n} é\n" for n in range(400))
    talk = proxy.chat()
    await talk.says(text)
    ident = (await got(proxy, talk, f"/sessions/{talk.session}/messages"))["messages"][0]["id"]
    read, offset = "", 0
    while offset is not None:
        page = await got(proxy, talk, f"/context/{ident}", offset=offset, limit=1000)
        assert (page["role"], page["session"], page["total_chars"]) == ("user", talk.session, len(text))
        read, offset = read + page["text"], page["next_offset"]
    assert read == text


async def test_a_message_without_text_is_read_as_json(proxy: Proxy) -> None:
    proxy.model.calls(("c1", "look", {"at": "x"}))
    talk = proxy.chat()
    await talk.says("look at x")
    ident = (await got(proxy, talk, f"/sessions/{talk.session}/messages"))["messages"][1]["id"]
    page = await got(proxy, talk, f"/context/{ident}")
    assert page["format"] == "json"
    assert json.loads(page["text"])["tool_calls"][0]["id"] == "c1"


async def test_nothing_private_may_be_kept_by_a_cache(proxy: Proxy, chat: Chat) -> None:
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/messages", headers=chat.headers)
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-type"] == "application/json"


async def test_supervisors_are_answered_without_a_key(proxy: Proxy) -> None:
    assert (await proxy.http.get("/healthz")).json() == {"status": "ok"}
    assert (await proxy.http.get("/readyz")).json() == {"status": "ready"}
    assert (await proxy.http.head("/healthz")).status_code == httpx.codes.OK
