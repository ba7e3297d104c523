"""A server that knows its models by other names than clients do is asked by those (W44)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from palimpsest.settings.upstreams import Route
from pydantic import ValidationError

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.serving import served
from tests.kit.wire import Json, answer_body, post
from tests.kit.words import prose
from tests.upstream.scripted import replies
from tests.wire.test_routes import CHAT, NO_STORE, routed

RENAMED: Json = {"model": "*"}


@pytest.mark.spec("W44")
@pytest.mark.parametrize(
    ("match", "asked", "model", "name"),
    [
        ("far/*", "*", "far/qwen3:8B", "qwen3:8B"),
        ("far/*", "*", "FAR/Org/Name", "Org/Name"),
        ("gpt-4o*", "local-big", "gpt-4o-mini", "local-big"),
        ("*@far", "vendor/*", "m@far", "vendor/m"),
        ("far/*", "*", 'far/"quoted"\\é', '"quoted"\\é'),
    ],
)
async def test_a_server_is_asked_by_the_name_it_knows(
    match: str, asked: str, model: str, name: str, tmp_path: Path
) -> None:
    async with routed(tmp_path, {"match": match, "model": asked}) as (line, other):
        other.always(replies(answer_body("Far.")))
        text = json.dumps(
            {"model": model, "odd": 1e2, "messages": CHAT["messages"], "n": 1}, ensure_ascii=False
        )
        was, now = (json.dumps(said, ensure_ascii=False).encode() for said in (model, name))
        for sent in (text.encode(), text.replace(", ", " ,  ").encode()):
            reply = await line.asks(post(sent))
            assert (reply.status, reply.body) == (200, answer_body("Far."))
            # No other byte is touched.
            assert sent.count(was) == 1
            assert other.requests[-1].body == sent.replace(was, now)
        # The conversation is the client's, under the client's name of the model.
        assert {row[0] for row in line.query("SELECT model FROM exchanges")} == {model}
        assert line.upstream.requests == []


@pytest.mark.spec("W44")
@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/chat/completions", CHAT, NO_STORE),
        ("/v1/responses", {"input": "hi", "conversation": "conv_1"}, []),
        ("/v1/responses/compact", {"input": "hi"}, []),
        ("/v1/responses", {"input": "hi", "context_management": [{"type": "compaction"}]}, []),
    ],
)
@pytest.mark.parametrize("is_coded", [False, True])
async def test_so_it_is_for_what_is_not_recorded_or_sent_in_part(
    path: str, body: Json, headers: Any, is_coded: bool, tmp_path: Path
) -> None:
    compacts = "proxy" if "context_management" in body else "upstream"
    async with routed(tmp_path, RENAMED, **{"upstream.compaction_requests": compacts}) as (line, other):
        other.always(replies(answer_body()))
        plain = json.dumps({"model": "far/m", **body}).encode()
        coding = [(b"Content-Encoding", b"gzip")] if is_coded else []
        sent = gzip.compress(plain) if is_coded else plain
        reply = await line.asks(post(sent, [*headers, *coding], path=path))
        assert reply.status == 200, reply.body
        (request,) = other.requests
        kept = {name: value for name, value in body.items() if name != "context_management"}
        assert json.loads(request.body) == {"model": "m", **kept}
        assert request.header("content-encoding") is None
        assert line.upstream.requests == []


@pytest.mark.parametrize("model", ["", "*"])
def test_a_star_that_stands_for_nothing_is_refused(model: str) -> None:
    with pytest.raises(ValidationError, match="model"):
        Route(match="gpt-4o", base_url="http://127.0.0.1/v1", model=model)


@pytest.mark.spec("W44")
async def test_windows_views_and_summaries_go_by_the_servers_name(tmp_path: Path) -> None:
    near, far = ModelServer(window=100_000), ModelServer(window=6_000, names=("m",))
    async with served(far, lifespan="off") as address:
        routes = {"routes": [{"match": "far/*", "model": "*", "base_url": f"{address}/v1"}]}
        async with proxied(near, tmp_path, routes) as proxy:
            chat = proxy.chat(extra={"model": "far/m"})
            for turn in range(14):
                await chat.says(f"Entry {turn}. {prose(turn, 500)}")
            assert await chat.compactions()
            assert await chat.transcript() == chat.said
    assert near.seen == []
    assert far.summaries
    assert {seen.body["model"] for seen in far.seen} == {"m"}
    assert all(prompt.tokens <= 6_000 for prompt in far.prompts)
