"""`policy.name: off`: everything is recorded, nothing compacted, and "too long" passes through (rule 39)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied
from tests.kit.responses import ResponsesChat, ResponsesServer
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 2_000
OFF: Json = {"policy": {"name": "off"}}
OVERRIDES: Json = {
    "deployment": {"policy.name": "off"},
    "model": {"models": [{"match": "test-*", **OFF}]},
    "session": {},
    "header": {},
    # Nothing that a request or another setting asks for switches it on.
    "recall": {"policy.name": "off", "policy.trigger_tokens": 300, "policy.advanced.memory_entries": True},
}
HEADERS = {"header": {"x-palimpsest": "off"}, "recall": {"x-palimpsest-recall": "always"}}


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("where", OVERRIDES)
async def test_what_is_too_long_is_the_upstreams_to_say(where: str, append: bool, tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path, OVERRIDES[where]) as proxy:
        chat = proxy.chat(system="You keep notes.", session="notes")
        chat.headers |= HEADERS.get(where, {})
        await chat.says("Note 0.")
        if where == "session":
            settings = f"/api/sessions/{chat.session}/settings"
            assert (await proxy.http.patch(settings, json=OFF, headers=chat.headers)).is_success
        for n in range(1, 30):
            new = {"role": "user", "content": f"Note {n}. {prose(n, 90)}"}
            sent = [new] if append else [*chat.said, new]
            reply = await chat.posts(sent, {"x-session-mode": "append"} if append else {})
            assert model.prompts[-1].messages == [*chat.said, new]
            if not reply.is_success:
                break
            chat.said += [new, reply.json()["choices"][0]["message"]]
        counted = model.prompts[-1].tokens
        assert reply.status_code == 400
        assert counted > WINDOW
        assert reply.json()["error"]["message"].startswith(
            "This model's maximum context length is 2000 tokens"
        )
        assert len(model.seen) == len(model.prompts) == len(chat.replies)
        assert await chat.compactions() == []
        assert await chat.transcript() == chat.said
        events = await proxy.http.get("/api/sessions/notes/events", headers=chat.headers)
        assert {event["type"] for event in events.json()["events"]} == {"checkpoint"}
        if where != "header":
            asked = await proxy.http.post("/api/sessions/notes/compact", headers=chat.headers)
            assert (asked.json()["compacted"], asked.json()["reason"]) == (False, "off")
            status = (await proxy.http.get("/api/sessions/notes/status", headers=chat.headers)).json()
            assert (status["strategy"], status["armed"]) == ("off", False)


TOO_LARGE = {"error": "request entity too large"}
ERRORS: list[tuple[int, Json]] = [
    (413, TOO_LARGE),
    (400, {"error": {"message": "Range of input length should be [1, 2000]"}}),
]


@pytest.mark.parametrize(("status", "error"), ERRORS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_passes_byte_for_byte(status: int, error: Json, stream: bool, tmp_path: Path) -> None:
    model = ModelServer(window=100_000)
    async with proxied(model, tmp_path, {"policy.name": "off"}) as proxy:
        chat = proxy.chat(stream=stream)
        await chat.says(prose(1, 900))
        model.answers.append(Says(None, status=status, error=error))
        reply = await chat.posts([*chat.said, {"role": "user", "content": prose(2, 900)}])
        assert (reply.status_code, reply.content) == (status, json.dumps(error).encode())
        assert len(model.seen) == 2


async def test_off_sends_the_history_again_and_auto_compacts_it(tmp_path: Path) -> None:
    model = ModelServer(window=100_000)
    async with proxied(model, tmp_path, {"policy.trigger_tokens": 2_000}) as proxy:
        chat = proxy.chat(system="You keep notes.", session="notes")

        async def switched(name: str | None) -> None:
            order = {"policy": {"name": name}}
            reply = await proxy.http.patch("/api/sessions/notes/settings", json=order, headers=chat.headers)
            assert reply.is_success

        async def view() -> str:
            seen = await proxy.http.get("/api/sessions/notes/view", headers=chat.headers)
            await chat.says(f"Note {len(chat.said)}. {prose(len(chat.said), 150)}")
            assert chat.reply.headers["x-palimpsest-view"] == seen.json()["view"]
            return chat.reply.headers["x-palimpsest-view"]

        await chat.says("Note 0.")
        while not await chat.compactions():
            await chat.says(f"Note {len(chat.said)}. {prose(len(chat.said), 150)}")
        assert await view() == "compacted"
        await switched("off")
        for _ in range(3):
            assert await view() == "original"
            assert model.prompts[-1].messages == chat.said[:-1]
        made = len(model.seen)
        await switched(None)
        assert await view() == "compacted"
        assert len(model.seen) > made
        assert await chat.transcript() == chat.said


async def test_responses_and_their_own_compaction_go_upstream_as_they_came(tmp_path: Path) -> None:
    model = ResponsesServer(window=WINDOW)
    settings = {"policy.name": "off", "upstream.compaction_requests": "proxy"}
    async with proxied(model, tmp_path, settings) as proxy:
        chat = ResponsesChat(proxy.http, headers={"authorization": "Bearer key-1"})
        chat.options["context_management"] = [{"type": "compaction", "compact_threshold": 1_000}]
        await chat.says(prose(1, 900))
        with pytest.raises(AssertionError, match="exceeds the context window"):
            await chat.says(prose(2, 900))
        assert [asked.body["input"] for asked in model.asked][-1] == chat.said
        assert all(asked.body["context_management"] for asked in model.asked)
        assert not model.questions
        reply: httpx.Response = await proxy.http.get("/api/sessions", headers=chat.headers)
        assert [one["compactions"] for one in reply.json()["sessions"]] == [0]
