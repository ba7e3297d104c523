"""The body of every turn, made again from the store, held against what the upstream received."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kit.agent import TOOLS
from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import GREP, compacted_chat, saying
from tests.kit.responses import ResponsesChat, ResponsesServer
from tests.kit.words import prose

pytestmark = [pytest.mark.timeout(90), pytest.mark.spec("P1")]
Json = dict[str, Any]
KEY = {"authorization": "Bearer one"}
TOOL = {
    "type": "function",
    "function": {"name": "run", "description": "Runs. " * 200, "parameters": {"type": "object"}},
}


async def body(proxy: Proxy, headers: dict[str, str], session: str, n: int, exact: str = "true") -> bytes:
    reply = await proxy.http.get(f"/api/sessions/{session}/exchanges/{n}/body", headers=headers)
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-palimpsest-exact"] == exact
    return reply.content


def responses_chat(proxy: Proxy, **more: str) -> ResponsesChat:
    return ResponsesChat(proxy.http, headers=KEY | {"x-session-id": "r"} | more)


async def all_as_received(proxy: Proxy, server: ResponsesServer) -> None:
    for n, asked in enumerate(server.asked, 1):
        assert await body(proxy, KEY, "r", n) == asked.raw, n


async def test_every_body_is_as_the_upstream_received_it(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You are careful.", session="work", extra={"tools": [TOOL], "seed": 1})
        await compacted(chat, rounds=2)
        # What differs from turn to turn is a short member; the tools are stored once.
        chat.extra["seed"] = 2
        await chat.says("And now?")
        received = proxy.model.prompts
        assert len(received) == len(chat.replies)
        for n, seen in enumerate(received, 1):
            assert await body(proxy, chat.headers, "work", n) == seen.raw, n
        told = (await read(proxy.http, chat, "sessions/work/exchanges"))["exchanges"]
        assert (told[-1]["view"], told[0]["view"]) == ("original", "compacted")


@pytest.mark.parametrize("stream", [True, False])
async def test_with_our_tools_and_their_hidden_rounds_too(stream: bool, tmp_path: Path) -> None:
    few = {"recall.result_chars": 500}
    async with compacted_chat(tmp_path, stream=stream, overrides=few) as (proxy, chat):
        proxy.model.answers.extend([saying("Hm. ", GREP), saying("Port 8000.")])
        await chat.says("Which port?")
        proxy.model.seen.clear()
        await chat.says("Thanks.")
        (seen,) = proxy.model.prompts
        newest = (await read(proxy.http, chat, f"sessions/{chat.session}/exchanges"))["exchanges"][0]
        assert await body(proxy, chat.headers, chat.session, newest["n"]) == seen.raw
        assert b"context_grep" in seen.raw
        assert b'"read_file"' in seen.raw


async def test_messages_as_they_were_spelled_in_each_request(tmp_path: Path) -> None:
    def said(text: str, **marks: Any) -> Json:
        return {"role": "user", "content": [{"type": "text", "text": text, **marks}]}

    mark = {"cache_control": {"type": "ephemeral"}}
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        answer = (await chat.posts([said("one", **mark)])).json()["choices"][0]["message"]
        await chat.posts([said("one"), answer, said("two", **mark)])
        # The first turn is asked for again, with its mark: neither the newest spelling nor always the stored.
        await chat.posts([said("one", **mark)])
        for n, seen in enumerate(proxy.model.prompts, 1):
            assert await body(proxy, chat.headers, "work", n) == seen.raw, n


async def test_other_bytes_are_never_called_the_sent_ones(tmp_path: Path) -> None:
    """White space between messages is not stored."""
    spaced = (
        b'{"model":"test-model","messages":[ {"role":"user","content":"a"} ,{"role":"user","content":"b"}]}'
    )
    async with proxied(ModelServer(), tmp_path) as proxy:
        headers = KEY | {"x-session-id": "s", "content-type": "application/json"}
        sent = await proxy.http.post("/v1/chat/completions", content=spaced, headers=headers)
        assert sent.status_code == 200
        (seen,) = proxy.model.prompts
        assert seen.raw == spaced
        again = await body(proxy, headers, "s", 1, exact="false")
        assert again.replace(b" ", b"") == spaced.replace(b" ", b"")
        one = (await proxy.http.get("/api/sessions/s/exchanges/1", headers=headers)).json()
        assert (one["is_body_kept"], one["is_exact"]) == (True, False)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("kind", ["string", "list"])
async def test_answers_that_the_upstream_keeps_and_those_that_we_send(
    keeps: bool, kind: str, tmp_path: Path
) -> None:
    server = ResponsesServer(window=4_000, keeps=keeps)
    async with proxied(server, tmp_path, AT_THE_END) as proxy:
        chat = responses_chat(proxy)
        previous: Json = {}
        for n in range(12):
            text = f"Note {n}: {prose(n, 400)}"
            told: Any = text if kind == "string" else [{"role": "user", "content": text}]
            answer = await chat.post(
                {"model": "test-model", "input": told, "instructions": "Hm.", **previous}
            )
            previous = {"previous_response_id": answer["id"]}
        await all_as_received(proxy, server)
        views = (await proxy.http.get("/api/sessions/r/exchanges", headers=KEY)).json()["exchanges"]
        assert "compacted" in {view["view"] for view in views}


async def test_new_items_alone(tmp_path: Path) -> None:
    server = ResponsesServer(window=8_000)
    async with proxied(server, tmp_path, AT_THE_END) as proxy:
        chat = responses_chat(proxy, **{"x-session-mode": "append"})
        for n in range(6):
            await chat.post({"model": "test-model", "input": f"Note {n}: {prose(n, 400)}"})
        await all_as_received(proxy, server)


async def test_what_is_sent_just_now_under_a_compaction_is_not_guessed(tmp_path: Path) -> None:
    go, arrived = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        arrived.set()
        await go.wait()

    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="work")
        await compacted(chat)
        proxy.model.answers.append(Says({"role": "assistant", "content": "late"}, after=waits))
        asked = asyncio.create_task(chat.posts([*chat.said, {"role": "user", "content": "slow"}]))
        await arrived.wait()
        n = len(chat.replies) + 1
        home = f"/api/sessions/work/exchanges/{n}/body"
        early = await proxy.http.get(home, headers=chat.headers)
        assert (early.status_code, early.json()["error"]["code"]) == (404, "not_found")
        go.set()
        await asked
        assert await body(proxy, chat.headers, "work", n) == proxy.model.prompts[-1].raw


async def test_a_session_that_was_imported_has_no_turns_and_its_pages_open(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await chat.says("Hello.")
        document = (await proxy.http.get("/api/sessions/work/export", headers=chat.headers)).json()
        made = await proxy.http.post(
            "/api/sessions/import", json=document | {"name": "moved"}, headers=chat.headers
        )
        assert made.status_code == 201, made.text
        paths = ["/ui/sessions/moved", "/ui/sessions/moved/state", "/ui/overview"]
        paths += ["/api/sessions/moved/report", "/api/sessions/moved/exchanges", "/api/overview"]
        for path in paths:
            assert (await proxy.http.get(path, headers=chat.headers)).status_code == 200, path


async def test_a_client_whose_own_members_name_our_tools(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, overrides={"recall.result_chars": 500}) as (proxy, chat):
        proxy.model.answers.extend([saying("Hm. ", GREP), saying("Port 8000.")])
        await chat.says("Which port?")
        chat.extra = {"tools": TOOLS, "tool_choice": "none", "metadata": {"context_grep": "x"}}
        proxy.model.seen.clear()
        await chat.says("Thanks.")
        (seen,) = proxy.model.prompts
        newest = (await read(proxy.http, chat, f"sessions/{chat.session}/exchanges"))["exchanges"][0]
        assert await body(proxy, chat.headers, chat.session, newest["n"]) == seen.raw
