"""Azure: deployments in the path, the version in the query, the key in a header of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import fronting
from tests.kit.remains import remains
from tests.kit.serving import served
from tests.kit.wire import answer_body, chat_body, post, wired
from tests.kit.words import prose
from tests.upstream.scripted import replies

LARGE = {"models": [{"match": "*", "window_tokens": 1_000_000}]}
JSON = [(b"content-type", b"application/json")]


async def test_azures_own_client_is_recorded(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.always(replies(answer_body(created=1, model="m"), 200, JSON))
        talk: Any = [{"role": "user", "content": "hi"}]
        async with (
            httpx2.AsyncClient(trust_env=False, verify=False) as http,
            openai.AsyncAzureOpenAI(
                base_url=f"{line.url}/v1", api_key="az", api_version="2024-10-21", http_client=http
            ) as client,
        ):
            await client.chat.completions.create(model="gpt-4", messages=talk)
            talk += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "again"}]
            await client.chat.completions.create(model="gpt-4", messages=talk)
        for request in line.upstream.requests:
            assert request.target == "/v1/deployments/gpt-4/chat/completions?api-version=2024-10-21"
            assert request.header("api-key") == "az"
        assert line.query("SELECT count(*) FROM sessions") == [(1,)]
        assert line.query("SELECT count(*) FROM messages") == [(4,)]


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("", "api-version=1&x=a%20b"),
        ("?api-version=2", "api-version=2&x=a%20b"),
        ("?b=1&x=", "b=1&x=&api-version=1"),
    ],
)
async def test_the_operators_query_stands_where_the_client_has_none(
    tmp_path: Path, query: str, sent: str
) -> None:
    async with wired(tmp_path) as probe:
        address = probe.upstream.url
        given = {
            "upstream.base_url": f"{address}/openai/deployments/d?api-version=1&x=a%20b",
            "upstream.api_key": "az-key",
            "upstream.key_header": "api-key",
            **LARGE,
        }
        folder = tmp_path / "second"
        await asyncio.to_thread(folder.mkdir)
        async with wired(folder, given) as line:
            probe.upstream.expects(replies(answer_body()))
            reply = await line.asks(post(chat_body(), path=f"/v1/chat/completions{query}"))
            assert reply.status == 200
        (request,) = probe.upstream.requests
        assert request.target == f"/openai/deployments/d/chat/completions?{sent}"
        assert (request.header("api-key"), request.header("authorization")) == ("az-key", None)
        assert json.loads(request.body)["model"] == "test-model"


async def test_the_operators_query_is_written_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some servers take their key there."""
    model = ModelServer(window=8_000)
    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1?code=Kanarienvogel", tmp_path) as front,
    ):
        await front.chat().says(prose(1, 1_500))
    # Its window was asked for, and is stored under its address.
    assert remains(tmp_path, upstream)
    assert remains(tmp_path, "Kanarienvogel") == {}
    said = capfd.readouterr()
    assert " exchange " in said.err
    assert "Kanarienvogel" not in said.out + said.err
