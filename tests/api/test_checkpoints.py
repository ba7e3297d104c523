"""Checkpoints as a caller reads them back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def got(proxy: Proxy, chat: Chat, end: str) -> Json:
    reply = await proxy.http.get(f"/api/sessions/{chat.session}{end}", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    value: Json = reply.json()
    return value


async def test_a_checkpoint_of_another_session_is_not_found(proxy: Proxy, chat: Chat) -> None:
    other = proxy.chat(session="other")
    for turn in range(8):
        await other.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 60)
    await proxy.http.post(f"/api/sessions/{other.session}/compact", headers=other.headers)
    ident = (await got(proxy, other, "/checkpoints"))["checkpoints"][0]["id"]
    for session, name in ((other.session, "nothing"), (chat.session, ident)):
        reply = await proxy.http.get(f"/api/sessions/{session}/checkpoints/{name}", headers=chat.headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
