"""Several upstreams: which one answers is decided by the model's name and the operator's settings (W44)."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.serving import served
from tests.kit.wire import Json, Line, Reply, answer_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import Request, Scripted, replies

pytestmark = pytest.mark.spec("W44")

GUESSED: Json = {
    "models": [{"match": "never"}],
    "window.lookup_seconds": 0,
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
}
LARGE: Json = {"models": [{"match": "*", "window_tokens": 1_000_000}]}


@asynccontextmanager
async def routed(
    folder: Path, route: Json | None = None, **overrides: Any
) -> AsyncIterator[tuple[Line, Scripted]]:
    """A proxy with a second upstream for the models `far/*`."""
    async with Scripted() as other:
        there = {"match": "far/*", "base_url": f"{other.url}/other/v2", **(route or {})}
        async with wired(folder, {**LARGE, "routes": [there], **overrides}) as line:
            yield line, other


async def asks(
    line: Line, model: str, *messages: Json, headers: Any = None, key: str | None = "key-1"
) -> Reply:
    body = json.dumps({"model": model, "messages": messages or [{"role": "user", "content": "hi"}]}).encode()
    reply = await line.asks(post(body, headers, key=key))
    assert reply.status == 200, reply.body
    return reply


async def test_a_models_name_decides(tmp_path: Path) -> None:
    async with routed(tmp_path) as (line, other):
        line.upstream.always(replies(answer_body("Near.")))
        other.always(replies(answer_body("Far.")))
        talk: list[Json] = []
        sessions = set()
        for model, text in (("m", "Near."), ("far/m", "Far."), ("FAR/x", "Far."), ("farther", "Near.")):
            talk.append({"role": "user", "content": f"And {model}?"})
            reply = await asks(line, model, *talk)
            assert reply.json()["choices"][0]["message"]["content"] == text
            sessions.add(reply.header("x-palimpsest-session"))
            talk.append({"role": "assistant", "content": text})
        # One conversation, wherever it is answered.
        assert len(sessions) == 1
        assert [json.loads(request.body)["model"] for request in other.requests] == ["far/m", "FAR/x"]
        assert other.requests[0].target == "/other/v2/chat/completions"
        # What has no model goes to the upstream.
        await line.asks(b"GET /v1/files?model=far/m HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (len(line.upstream.requests), len(other.requests)) == (3, 2)


ELSEWHERE = [
    b"X-Upstream",
    b"X-Portkey-Custom-Host",
    b"X-Forwarded-Host",
    b"Forwarded",
    b"Helicone-Target-Url",
    b"x-base-url",
]


async def test_no_caller_names_a_server(tmp_path: Path) -> None:
    async with routed(tmp_path) as (line, other):
        line.upstream.always(replies(answer_body()))
        message = {"role": "user", "content": "hi"}
        body = {"model": "m", "base_url": other.url, "api_base": other.url, "messages": [message]}
        headers = [(name, other.url.encode()) for name in ELSEWHERE]
        assert (await line.asks(post(json.dumps(body).encode(), headers))).status == 200
        for model in (other.url, f"../{other.url}/far/m", "@" + other.url, ""):
            await asks(line, model)
        assert other.requests == []


def key_of(request: Request) -> tuple[str | None, str | None, str | None]:
    return request.header("authorization"), request.header("api-key"), request.header("x-team")


async def test_each_server_gets_its_own_key_and_headers(tmp_path: Path) -> None:
    route = {"api_key": "far-key", "key_header": "api-key", "headers": {"x-team": "far"}}
    own = {"upstream.api_key": "near-key", "upstream.headers": {"x-team": "near"}}
    async with routed(tmp_path, route, **own) as (line, other):
        for server in (line.upstream, other):
            server.always(replies(answer_body()))
        await asks(line, "m")
        await asks(line, "far/m")
        assert key_of(line.upstream.requests[-1]) == ("Bearer near-key", None, "near")
        assert key_of(other.requests[-1]) == (None, "far-key", "far")


NO_STORE = [(b"X-Palimpsest", b"no-store")]
CHAT: Json = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/chat/completions", CHAT, NO_STORE),
        ("/v1/responses", {"input": "hi"}, NO_STORE),
        # Conversations that the upstream keeps.
        ("/v1/responses", {"input": "hi", "conversation": "conv_1"}, []),
        ("/v1/responses", {"input": "hi", "background": True}, []),
    ],
)
async def test_what_is_not_recorded_goes_to_its_models_server_too(
    path: str, body: Json, headers: Any, tmp_path: Path
) -> None:
    async with routed(tmp_path, {"api_key": "far-key"}, **{"upstream.api_key": "near-key"}) as (line, other):
        for server in (line.upstream, other):
            server.always(replies(answer_body()))
        for model, there in (("far/m", other), ("m", line.upstream)):
            plain = json.dumps({"model": model, **body}).encode()
            for sent, coding in ((plain, []), (gzip.compress(plain), [(b"Content-Encoding", b"gzip")])):
                reply = await line.asks(post(sent, [*headers, *coding], path=path))
                assert reply.status == 200, reply.body
                assert there.requests[-1].body == sent
        assert {request.header("authorization") for request in other.requests} == {"Bearer far-key"}
        assert (len(line.upstream.requests), len(other.requests)) == (2, 2)
        # Nobody knows whose this is.
        assert (await line.asks(post(b'{"model": "far/m"', NO_STORE))).code == "invalid_json"
        assert len(line.upstream.requests) == 2


async def test_without_keys_of_the_operators_the_callers_goes_along(tmp_path: Path) -> None:
    async with routed(tmp_path) as (line, other):
        other.always(replies(answer_body()))
        await asks(line, "far/m", key="mine")
        assert key_of(other.requests[-1]) == ("Bearer mine", None, None)


async def test_windows_and_summaries_are_asked_where_the_model_is(tmp_path: Path) -> None:
    near, far = ModelServer(window=100_000), ModelServer(window=6_000, names=("m",))
    async with served(far, lifespan="off") as address:
        route = {"match": "far/*", "model": "*", "base_url": f"{address}/v1", "api_key": "far-key"}
        async with proxied(near, tmp_path, {"routes": [route], "upstream.api_key": "near-key"}) as proxy:
            chat = proxy.chat(extra={"model": "far/m"})
            for turn in range(14):
                await chat.says(f"Entry {turn}. {prose(turn, 500)}")
            assert await chat.compactions()
            assert await chat.transcript() == chat.said
    assert near.seen == []
    assert far.summaries
    assert {seen.headers["authorization"] for seen in far.seen} == {"Bearer far-key"}
    assert {seen.body["model"] for seen in far.seen} == {"m"}
    assert all(prompt.tokens <= 6_000 for prompt in far.prompts)


async def test_what_is_learned_of_a_model_is_kept_with_its_server(tmp_path: Path) -> None:
    async with routed(tmp_path, **GUESSED) as (line, other):
        message = "This model's maximum context length is 5000 tokens."
        error = json.dumps({"error": {"message": message, "code": "context_length_exceeded"}}).encode()
        talk = [{"role": "user", "content": f"{turn} {prose(turn, 300)}"} for turn in range(20)]
        other.expects(replies(error, 400), replies(answer_body()))
        await asks(line, "far/m", *talk)
        asked = "SELECT upstream, model, tokens FROM learned_windows"
        async with asyncio.timeout(20):
            # It is learned once the client has its answer.
            while not (learned := line.query(asked)):
                await line.http.get("/healthz")
        assert learned == [(f"{other.url}/other/v2/", "far/m", 5_000)]


@pytest.mark.parametrize("size", [10, 300_000])
async def test_a_compaction_that_is_passed_on_goes_to_the_server_of_its_model(
    size: int, tmp_path: Path
) -> None:
    async with routed(tmp_path) as (line, other):
        other.always(replies(b'{"object":"response.compaction"}'))
        body = json.dumps({"model": "far/m", "input": "x" * size}).encode()
        reply = await line.asks(post(body, path="/v1/responses/compact"))
        assert (reply.status, reply.body) == (200, b'{"object":"response.compaction"}')
        assert [request.body for request in other.requests] == [body]
        assert line.upstream.requests == []
