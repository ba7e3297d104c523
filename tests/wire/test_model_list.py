"""One list of models where several servers answer, each model by the name that clients say (W44)."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.wire.models import ModelPattern

from tests.kit.wire import Json, Line, wired
from tests.upstream.scripted import Scripted, replies

NEAR = b'{"object": "list", "data": [{"id": "gpt-4o", "n": 1e2}, {"id": "gpt-4o-mini"}], "has_more": false}'


def listed(*names: str) -> bytes:
    return json.dumps(
        {"object": "list", "data": [{"id": name, "max_model_len": 9} for name in names]}
    ).encode()


@asynccontextmanager
async def listing(
    folder: Path, *routes: Json, **overrides: Any
) -> AsyncIterator[tuple[Line, list[Scripted]]]:
    """A proxy with a server for each of `routes`."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(Scripted()) for _ in routes]
        told = [
            {"base_url": f"{server.url}/v9", **route} for server, route in zip(servers, routes, strict=True)
        ]
        line = await stack.enter_async_context(wired(folder, {"routes": told, **overrides}))
        yield line, servers


async def names_in(line: Line, target: str = "/v1/models") -> list[str]:
    reply = await line.asks(
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer mine\r\n\r\n".encode()
    )
    assert reply.status == 200, reply.body
    return [entry["id"] for entry in reply.json()["data"]]


@pytest.mark.spec("W44")
async def test_each_model_is_listed_by_the_name_that_it_is_asked_for_by(tmp_path: Path) -> None:
    routes = [
        {"match": "far/*", "model": "*"},
        {"match": "claude-*"},
        {"match": "gpt-4o-mini", "model": "qwen3"},
    ]
    async with listing(tmp_path, *routes) as (line, (far, claude, small)):
        line.upstream.expects(replies(NEAR, 200, [(b"ETag", b"near"), (b"X-Request-Id", b"r-1")]))
        far.expects(replies(listed("llama", "org/qwen")))
        # What a route does not take cannot be asked for there.
        claude.expects(replies(listed("claude-5", "other")))
        small.expects(replies(listed("qwen3", "phi")))
        reply = await line.asks(
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer mine\r\n\r\n"
        )
        assert [entry["id"] for entry in reply.json()["data"]] == [
            *("gpt-4o", "far/llama", "far/org/qwen", "claude-5", "gpt-4o-mini"),
        ]
        # Every entry as its server wrote it, but for its name.
        assert b'{"id": "gpt-4o", "n": 1e2}' in reply.body
        assert b'{"id": "far/org/qwen", "max_model_len": 9}' in reply.body
        assert reply.json()["has_more"] is False
        assert (reply.header("x-request-id"), reply.header("etag")) == ("r-1", None)
        for server in (line.upstream, far, claude, small):
            assert [request.header("authorization") for request in server.requests] == ["Bearer mine"]
        assert far.requests[0].target == "/v9/models"


@pytest.mark.spec("W44")
async def test_a_server_that_says_nothing_is_left_out(tmp_path: Path) -> None:
    routes = [{"match": f"{name}/*", "model": "*"} for name in ("down", "odd", "late", "up")]
    routes[0]["base_url"] = "http://127.0.0.1:9/v1"
    async with listing(tmp_path, *routes) as (line, (_, odd, late, up)):
        line.upstream.expects(replies(NEAR))
        odd.expects(replies(b"<html>", 200))
        late.expects(replies(b'{"error": {}}', 503))
        up.expects(replies(gzip.compress(listed("m")), 200, [(b"Content-Encoding", b"gzip")]))
        assert await names_in(line) == ["gpt-4o", "gpt-4o-mini", "up/m"]


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, b'{"error": {"code": "no"}}'), (200, b"<html>"), (200, b'{"data": {"id": "m"}}')],
)
async def test_what_the_upstream_says_instead_of_a_list_is_relayed(
    status: int, body: bytes, tmp_path: Path
) -> None:
    async with listing(tmp_path, {"match": "far/*"}) as (line, (far,)):
        line.upstream.expects(replies(body, status, [(b"ETag", b"near")]))
        far.always(replies(listed("far/m")))
        reply = await line.asks(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (reply.status, reply.body, reply.header("etag")) == (status, body, "near")


async def test_without_an_upstream_there_is_no_list(tmp_path: Path) -> None:
    gone = {"upstream.base_url": "http://127.0.0.1:9/v1"}
    async with listing(tmp_path, {"match": "far/*"}, **gone) as (line, (far,)):
        far.always(replies(listed("far/m")))
        reply = await line.asks(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (reply.status, reply.code) == (502, "upstream_unreachable")


@pytest.mark.spec("W44")
async def test_one_model_is_asked_about_at_its_server(tmp_path: Path) -> None:
    async with listing(tmp_path, {"match": "far/*", "model": "*"}) as (line, (far,)):
        one = b'{"id": "org/qwen"}'
        for spelled in ("far/org/qwen", "far%2Forg%2Fqwen"):
            far.expects(replies(one))
            reply = await line.asks(f"GET /v1/models/{spelled} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert (reply.status, reply.body) == (200, one)
            assert far.requests[-1].target == "/v9/models/org%2Fqwen"
        line.upstream.expects(replies(b"{}"))
        await line.asks(b"GET /v1/models/gpt-4o?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.upstream.requests[-1].target == "/v1/models/gpt-4o?x=1"


NAMES: Sequence[tuple[str, str | None, str, str | None]] = [
    ("far/*", "*", "m", "far/m"),
    ("far/*", None, "far/m", "far/m"),
    ("far/*", None, "m", None),
    ("gpt-4o", "qwen3", "qwen3", "gpt-4o"),
    ("gpt-4o", "qwen3", "phi", None),
    # Any of many names, and nobody says which.
    ("gpt-4o*", "qwen3", "qwen3", None),
    ("*-far-*", "*", "m", None),
    ("*", "vendor/*", "vendor/m", "m"),
    ("*", "vendor/*", "other/m", None),
    ("a?/*", "*", "m", None),
]


@pytest.mark.spec("W44")
@pytest.mark.parametrize(("match", "asked", "theirs", "ours"), NAMES)
def test_the_name_that_clients_say_is_found_back(
    match: str, asked: str | None, theirs: str, ours: str | None
) -> None:
    models = ModelPattern(match, asked)
    assert models.called(theirs) == ours
    assert ours is None or (models.means(ours) and models.asked_for(ours) == theirs)
