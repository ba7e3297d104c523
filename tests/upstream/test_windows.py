from __future__ import annotations

import json

import pytest
from palimpsest.upstream.models import LIST_BYTES, window_from_model_data, window_from_upstream

from tests.upstream.asking import at
from tests.upstream.scripted import Script, Scripted, replies, stalls_after

CALLER = [(b"Authorization", b"Bearer k"), (b"x-other", b"1")]


def listed(**fields: object) -> Script:
    return replies(json.dumps({"object": "list", "data": [{"id": "org/m", **fields}]}).encode())


async def asked(*scripts: Script, model: str = "org/m") -> tuple[Scripted, int | None]:
    async with Scripted() as server, at(server.url + "/v1") as upstream:
        server.expects(*scripts)
        window = await window_from_upstream(upstream, model, CALLER, 5)
    return server, window


async def test_the_list_says_it() -> None:
    server, window = await asked(listed(max_model_len=32768))
    assert window == 32768
    (request,) = server.requests
    assert (request.method, request.target) == ("GET", "/v1/models")
    assert request.header("authorization") == "Bearer k"
    assert request.header("x-other") is None


async def test_the_models_own_entry_is_next_then_the_servers_properties() -> None:
    props = replies(b'{"default_generation_settings": {"n_ctx": 4096}}')
    server, window = await asked(listed(), replies(b'{"id": "org/m"}'), props)
    assert window == 4096
    assert [request.target for request in server.requests] == ["/v1/models", "/v1/models/org%2Fm", "/props"]


async def test_a_name_with_half_of_a_character_is_asked_for_too() -> None:
    server, window = await asked(listed(), replies(b"{}"), replies(b"{}"), model="m\ud800")
    assert (window, server.requests[1].target) == (None, "/v1/models/m%3F")


async def test_what_fails_is_passed_over() -> None:
    broken = replies(b"<html>"), replies(b"", 404), replies(b"{}", 500)
    _, window = await asked(*broken)
    assert window is None
    _, window = await asked(
        replies(b" " * (LIST_BYTES + 1)), replies(b'{"id": "org/m", "context_length": 8192}')
    )
    assert window == 8192


async def test_a_hanging_list_is_not_waited_for() -> None:
    async with Scripted() as server, at(server.url) as upstream:
        server.expects(stalls_after(b""))
        assert await window_from_upstream(upstream, "m", CALLER, 0.05) is None


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4o", 128_000),
        ("openai/gpt-4o-mini", 128_000),
        ("claude-sonnet-4-5", 200_000),
        ("no-such-model", None),
    ],
)
def test_published_windows(model: str, window: int | None) -> None:
    assert window_from_model_data(model) == window


async def test_without_time_nobody_is_asked() -> None:
    async with Scripted() as server, at(f"{server.url}/v1") as upstream:
        # A connection that is open already would take the question at once.
        server.expects(replies(b"{}"))
        async with upstream.open("GET", "/models", [], None) as answer:
            await answer.read(100)
        assert await window_from_upstream(upstream, "m", [], 0) is None
        assert len(server.requests) == 1
