"""What is wrong with a request is said in OpenAI's shape, with a stable code."""

from __future__ import annotations

from typing import Any

import pytest
from palimpsest.api.pages import Wall
from palimpsest.proxy.incoming import ASGIMessage

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("path", ["/api", "/api/nothing", "/redoc", "/api/sessions/"])
async def test_an_unknown_path_is_not_found(proxy: Proxy, path: str) -> None:
    reply = await proxy.http.get(path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/api/sessions"), ("POST", "/api/sessions/x/messages"), ("DELETE", "/healthz")],
)
async def test_a_wrong_method_says_which_ones_there_are(proxy: Proxy, method: str, path: str) -> None:
    reply = await proxy.http.request(method, path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "GET" in reply.headers["allow"]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/api/sessions?limit=x", "limit"),
        ("/api/sessions?limit=0", "limit"),
        ("/api/sessions?after=%00", "after"),
        ("/api/sessions/x/messages?after=-1", "after"),
        ("/api/context/dcm_0?limit=99999999999999999999999", "limit"),
    ],
)
async def test_a_wrong_parameter_is_named(proxy: Proxy, path: str, param: str) -> None:
    reply = await proxy.http.get(path)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert reply.json()["error"]["code"] == "invalid_parameter"


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
    path = f"/api/sessions/{chat.session}/compact"
    reply = await proxy.http.post(
        path, headers=chat.headers | {"content-type": "application/json"}, content=body
    )
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param)


async def test_a_pin_without_a_message_is_refused(proxy: Proxy, chat: Chat) -> None:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/pins", headers=chat.headers, json={})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "message")


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
async def test_websockets_are_refused_plainly(extensions: dict[str, Any]) -> None:
    sent: list[ASGIMessage] = []

    async def send(message: ASGIMessage) -> None:
        sent.append(message)

    async def receive() -> ASGIMessage:
        return {"type": "websocket.connect"}

    async def app(*_: object) -> None:
        raise AssertionError("nothing behind it is asked")

    scope = {"type": "websocket", "path": "/api/sessions", "extensions": extensions}
    await Wall(app)(scope, receive, send)
    kinds = [message["type"] for message in sent]
    if extensions:
        assert kinds == ["websocket.http.response.start", "websocket.http.response.body"]
        assert sent[0]["status"] == 404
    else:
        assert kinds == ["websocket.close"]
