"""Whose things are seen: two callers never cross, and what is not there looks like what is not yours."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from palimpsest.api.callers import admit
from palimpsest.api.pages import API_ROUTES, UI_ROUTES

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRANGER = {"authorization": "Bearer key-2"}
NOWHERE = "0192f0c4-0000-7000-8000-000000000000"
BODIES = {"pins": {"message": "dcm_" + "0" * 32}, "memory-block": {"text": "mine"}}


async def paths_of(proxy: Proxy, chat: Chat) -> list[tuple[str, str]]:
    """Every endpoint that names something of the chat's."""
    ident = (await chat.rows())[1]["id"]
    await chat.asks("POST", "/pins", {"message": ident})
    session = f"/api/sessions/{chat.session}"
    ends = ("", "/messages", "/view", "/compactions", "/pins", "/settings", "/status", "/state", "/events")
    reads = [("GET", session + end) for end in (*ends, "/checkpoints", "/checkpoints/c1", "/memory")]
    posts = [
        ("POST", session + end) for end in ("/compactions/c1/undo", "/memory-block", "/complete", "/compact")
    ]
    contexts = [("GET", f"/api/context/{ident}{end}") for end in ("", "?raw=1")]
    changes = [("PATCH", session + "/settings"), *posts, ("POST", session + "/pins")]
    return [*reads, *changes, ("DELETE", f"{session}/pins/{ident}"), *contexts]


@pytest.mark.spec("P5")
async def test_what_is_somebody_elses_and_what_is_nothing_answer_the_same(proxy: Proxy, chat: Chat) -> None:
    bodies = set()
    await proxy.chat(key="key-2").says("a namespace of my own")
    for method, path in await paths_of(proxy, chat):
        body = BODIES.get(path.rsplit("/", 1)[-1]) if method == "POST" else None
        nothing = path.replace(chat.session, NOWHERE).replace("dcm_", "dcm_00")
        for asked in (path, nothing):
            reply = await proxy.http.request(method, asked, headers=STRANGER, json=body)
            assert (reply.status_code, reply.headers["content-type"]) == (404, "application/json"), asked
            bodies.add(reply.content)
    assert len(bodies) == 1
    listed = (await proxy.http.get("/api/sessions", headers=STRANGER)).json()["sessions"]
    assert chat.session not in [row["id"] for row in listed]


@pytest.mark.spec("P5")
async def test_equal_conversations_of_two_callers_stay_apart(proxy: Proxy) -> None:
    chats = [proxy.chat(key=key, session="same") for key in ("twin-1", "twin-2")]
    idents = []
    for chat in chats:
        proxy.model.says("the same answer")
        await chat.says("the same question")
        read = await chat.asks("GET", "sessions/same/messages")
        assert read["session"] == chat.session
        idents.append([row["id"] for row in read["messages"]])
    assert not set(idents[0]) & set(idents[1])


async def test_nothing_of_a_stranger_changes_anything(proxy: Proxy, chat: Chat) -> None:
    calls = await paths_of(proxy, chat)
    for method, path in calls:
        if method != "GET":
            await proxy.http.request(method, path, headers=STRANGER, json={})
    assert len((await chat.asks("GET", "/pins"))["pins"]) == 1
    assert await chat.transcript() == chat.said


async def test_a_message_is_pinned_in_its_own_session_only(proxy: Proxy, chat: Chat) -> None:
    other = proxy.chat(session="other")
    await other.says("something else")
    await chat.asks("POST", "/pins", {"message": (await other.rows())[0]["id"]}, status=404)


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
async def test_a_credential_that_stands_twice_is_refused(proxy: Proxy, chat: Chat, name: str) -> None:
    headers = [(name, "Bearer key-1"), (name, "Bearer key-2")]
    reply = await proxy.http.get("/api/sessions", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "repeated_header")


@pytest.mark.parametrize(
    "target",
    [
        "/api/sessions/{id}/../{id}/messages",
        "/healthz/../api/sessions/{id}",
        "//api/sessions/{id}",
        "/api//sessions/{id}",
        "/api/sessions/{id}/messages/",
        "/API/sessions/{id}",
    ],
)
async def test_tricks_with_host_and_path_open_nothing(proxy: Proxy, chat: Chat, target: str) -> None:
    """Spoken on the socket, as clients tidy such paths up."""
    port = int(proxy.url.rsplit(":", 1)[1])
    for host in ("127.0.0.1", "localhost", "evil.example", ""):
        line = f"GET {target.replace('{id}', chat.session)} HTTP/1.1\r\nHost: {host}\r\n"
        reply = await said(port, line + "Authorization: Bearer key-2\r\nConnection: close\r\n\r\n")
        own = host in ("127.0.0.1", "localhost")
        refused = (b"HTTP/1.1 404", b"HTTP/1.1 400") if own else (b"HTTP/1.1 403", b"HTTP/1.1 400")
        assert reply.startswith(refused), reply[:40]
        assert b"question" not in reply


async def said(port: int, request: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, family=socket.AF_INET)
    writer.write(request.encode())
    reply = await reader.read()
    writer.close()
    return reply


async def test_the_doorkeeper_stands_before_every_route() -> None:
    for routes, prefix, least in ((API_ROUTES, "/api/", 30), (UI_ROUTES, "/ui", 10)):
        assert len(routes) >= least
        for route in cast("list[APIRoute]", routes):
            assert route.path.startswith(prefix)
            assert any(inner.call is admit for inner in _all(route.dependant)), route.path


def _all(dependant: Dependant) -> Iterator[Dependant]:
    for inner in dependant.dependencies:
        yield inner
        yield from _all(inner)
