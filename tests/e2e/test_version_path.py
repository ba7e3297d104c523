"""An upstream whose `/v1` was forgotten is noticed: by `doctor`, and in the log at the start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from palimpsest.cli.doctor import examine
from palimpsest.cli.terminal import Finding
from palimpsest.core.urls import has_version_path

from tests.kit.wire import settings_for, wired
from tests.upstream.scripted import Scripted, Wire, replies

pytestmark = pytest.mark.spec("H18")
LIST = b'{"object": "list", "data": [{"id": "m"}]}'
Behaviour = Callable[[Wire], Awaitable[None]]


def lists_at(*paths: str, status: int = 200) -> Behaviour:
    """A server that has its models at these paths, and nothing elsewhere."""

    async def answer(wire: Wire) -> None:
        found = wire.request.target.partition("?")[0] in paths
        await replies(LIST if found else b"{}", status if found else 404)(wire)

    return answer


async def finding(folder: Path, behaviour: Behaviour, path: str) -> Finding:
    async with Scripted() as upstream:
        upstream.always(behaviour)
        settings = settings_for(folder, upstream.url, {"upstream.base_url": upstream.url + path})
        (found,) = [one async for one in examine(settings) if one.name == "upstream"]
        return found


@pytest.mark.parametrize("status", [200, 401, 403])
async def test_doctor_says_what_to_set(tmp_path: Path, status: int) -> None:
    found = await finding(tmp_path, lists_at("/v1/models", status=status), "")
    assert found.state == "failed"
    assert found.remedy.startswith("Set base_url to http://127.0.0.1:")
    assert found.remedy.endswith("/v1.")


async def test_doctor_keeps_the_query_to_itself(tmp_path: Path) -> None:
    found = await finding(tmp_path, lists_at("/openai/v1/models"), "/openai?api-key=sk-secret")
    assert found.remedy.endswith("/openai/v1.")
    assert "sk-secret" not in found.detail + found.remedy


async def test_no_list_of_models_is_a_warning(tmp_path: Path) -> None:
    for path in ("", "/v1"):
        found = await finding(tmp_path, lists_at(), path)
        assert (found.state, "/v1" in found.remedy) == ("warning", True)


async def test_a_server_without_a_version_path_is_in_order(tmp_path: Path) -> None:
    assert (await finding(tmp_path, lists_at("/models"), "")).state == "ok"


async def test_the_log_says_so_at_the_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with Scripted() as upstream:
        upstream.always(lists_at("/v1/models"))
        said = ""
        async with wired(tmp_path, {"upstream.base_url": upstream.url}) as line:
            async with asyncio.timeout(20):
                while "upstream_base_url" not in said:
                    await line.http.get("/healthz")
                    said += "".join(capfd.readouterr())
        assert f"{upstream.url}/v1: set upstream.base_url to that" in said
        # With the path nothing is asked, and nothing said.
        before = len(upstream.requests)
        async with wired(tmp_path, {"upstream.base_url": f"{upstream.url}/v1"}):
            pass
        assert len(upstream.requests) == before


def test_which_addresses_have_a_version() -> None:
    for url in (
        "http://x/v1",
        "http://x/api/v1/",
        "http://x/v1beta/openai",
        "http://x/openai/v2",
        "http://x/d?api-version=1",
    ):
        assert has_version_path(url)
    for url in (
        "http://x",
        "http://x/",
        "http://x/openai",
        "http://v1.x/",
        "http://x/vllm",
        "http://x/?v=/v1",
    ):
        assert not has_version_path(url)
