"""Chains of answers whose beginning never came through the proxy: only the upstream can tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.proxy import proxied
from tests.kit.responses import ResponsesChat, ResponsesServer, text_item
from tests.kit.words import prose

Json = dict[str, Any]
KEY = {"authorization": "Bearer key-1"}
BEGUN = [{"role": "user", "content": "The boat is called Marie."}, text_item("Noted.", "msg_old")]


def asked(text: str, before: str) -> Json:
    return {"model": "test-model", "input": text, "previous_response_id": before}


@pytest.mark.spec("W48", "W53")
@pytest.mark.parametrize("control", ["", "no-store"])
async def test_what_began_elsewhere_is_never_told_without_its_beginning(control: str, tmp_path: Path) -> None:
    """The prompt is left to the upstream's memory however long it grows, here until that says it is full."""
    server = ResponsesServer(window=4_000, kept={"resp_old": list(BEGUN)})
    async with proxied(server, tmp_path, {"models": [{"match": "*", "window_tokens": 4_000}]}) as proxy:
        chat = ResponsesChat(proxy.http, headers=dict(KEY))
        before = "resp_old"
        if control:
            # Of a turn that was not stored, the next one does not know either.
            answer = await chat.post(asked("My dog is called Rufus.", before))
            unseen = ResponsesChat(proxy.http, headers=KEY | {"x-palimpsest": control})
            before = (await unseen.post(asked("The cat is called Minka.", answer["id"])))["id"]
        refused = 0
        for n in range(12):
            body = asked(f"Entry {n}. {prose(n, 330)}", before)
            reply = await proxy.http.post("/v1/responses", json=body, headers=KEY)
            if reply.status_code != 200:
                assert reply.json()["error"]["code"] == "context_length_exceeded"
                refused += 1
                break
            assert server.asked[-1].body == body
            assert "Marie" in server.asked[-1].text
            assert reply.headers["x-palimpsest-view"] == "original"
            before = reply.json()["id"]
        assert refused == 1
        assert n > 4
        assert server.questions == []


@pytest.mark.spec("W48")
@pytest.mark.parametrize("keeps", [True, False])
async def test_what_is_left_of_it_is_not_told_in_its_place(keeps: bool, tmp_path: Path) -> None:
    """The upstream has forgotten it, or is said to keep nothing: the client hears what the upstream says."""
    server = ResponsesServer(kept={"resp_old": list(BEGUN)})
    async with proxied(server, tmp_path, {"upstream.stores_responses": keeps}) as proxy:
        chat = ResponsesChat(proxy.http, headers=dict(KEY))
        first = await chat.post(asked("What is it called?", "resp_old"))
        second = await chat.post(asked("Are you sure?", first["id"]))
        assert server.asked[-1].body == asked("Are you sure?", first["id"])
        assert (await proxy.http.get("/api/sessions", headers=KEY)).json()["sessions"][0]["messages"] == 4
        server.kept.clear()
        reply = await proxy.http.post("/v1/responses", json=asked("And?", second["id"]), headers=KEY)
        assert reply.json()["error"]["code"] == "previous_response_not_found"
