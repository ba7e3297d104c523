"""What whoever comes for the first time finds: `/`, `/openapi.json`, and a hint where `/v1` is missing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

import pytest
import pytest_asyncio
from palimpsest.api.clients import CLIENTS

from tests.house.sources import ROOT
from tests.kit.model import ModelServer
from tests.kit.page import page_of
from tests.kit.proxy import Proxy, proxied

_ROW = re.compile(r"^\| \[([^\]]+)\]\((docs/clients/[\w-]+\.md)\) \| (.+) \|$", re.MULTILINE)
pytestmark = pytest.mark.asyncio(loop_scope="module")

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "sec-fetch-site": "none"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fresh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """A proxy that nobody has used."""
    async with proxied(ModelServer(), tmp_path_factory.mktemp("proxy")) as proxy:
        yield proxy


@pytest.mark.spec("H17")
async def test_a_browser_finds_the_pages_and_is_asked_for_nothing(fresh: Proxy) -> None:
    first = await fresh.http.get("/", headers=BROWSER)
    assert (first.status_code, first.headers["location"]) == (303, "/ui")
    page = await fresh.http.get(first.headers["location"], headers=BROWSER)
    assert page.status_code == 200
    assert "www-authenticate" not in page.headers
    tree = page_of(page.text)
    assert "Nothing is stored for clients without a key yet." in tree.one("p", kind="empty").text.replace(
        "\n", " "
    )
    lines = [row.text for row in tree.one("table", kind="clients").one("tbody").all("tr")]
    assert len(lines) == len(CLIENTS)
    assert all(f"{fresh.url}/v1" in line for line in lines)
    # Who wants to enter a key may.
    assert (await fresh.http.get("/ui?ask=1", headers=BROWSER)).status_code == 401


@pytest.mark.spec("H17")
async def test_a_program_is_told_where_everything_stands(fresh: Proxy) -> None:
    for accept in ("*/*", "application/json"):
        reply = await fresh.http.get("/", headers={"accept": accept})
        assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
        told = reply.json()
        assert (told["name"], told["version"]) == ("palimpsest", version("palimpsest"))
        assert told["links"]["base_url"] == f"{fresh.url}/v1"
        for name in ("openapi", "sessions", "ui", "health", "ready"):
            assert (await fresh.http.get(told["links"][name])).status_code == 200, name
    over_tls = await fresh.http.get("/", headers={"host": "127.0.0.1", "x-forwarded-proto": "https"})
    assert over_tls.json()["links"]["base_url"] == "https://127.0.0.1/v1"


@pytest.mark.spec("H17")
async def test_with_keys_the_root_and_the_description_are_anybodys(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"access.mode": "keys"}) as proxy:
        for path in ("/", "/openapi.json"):
            assert (await proxy.http.get(path)).status_code == 200
        page = await proxy.http.get("/ui", headers=BROWSER)
        assert (page.status_code, "www-authenticate" in page.headers) == (401, True)


async def test_the_readme_and_the_page_say_the_same_of_each_client(fresh: Proxy) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| client | setting |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = {name: (page, row) for name, page, row in _ROW.findall(table)}
    assert rows.keys() - {"curl"} == {client.name for client in CLIENTS}
    for client in CLIENTS:
        page, row = rows[client.name]
        assert page == f"docs/clients/{client.slug}.md"
        whole = client.line.format(url="http://127.0.0.1:8000/v1")
        assert whole in row
        assert whole in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.spec("H18")
@pytest.mark.parametrize(
    "path",
    [
        "/chat/completions", "/responses", "/models", "/embeddings", "/api/v1/chat/completions",
        "/openai/v1/chat/completions", "/api/chat/completions", "/v2/chat/completions", "/models/gpt-4o",
        "/openai/deployments/gpt-4o/chat/completions", "/s/mine/chat/completions", "/v1",
        "/api/chat", "/api/generate", "/api/tags",
    ],
)  # fmt: skip
async def test_a_forgotten_v1_is_met_with_a_hint(fresh: Proxy, path: str) -> None:
    for method in ("GET", "POST"):
        reply = await fresh.http.request(method, path, json={} if method == "POST" else None)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "wrong_base_url")
        assert f"set base_url to {fresh.url}/v1" in reply.json()["error"]["message"]
        assert reply.headers["x-should-retry"] == "false"


@pytest.mark.spec("H18")
async def test_other_paths_are_simply_not_there(fresh: Proxy) -> None:
    paths = (
        "/favicon.ico",
        "/api/nothing",
        "/api/sessions/none/messages",
        "/modelsx",
        "/api/sessions/a%0Ab/pins",
    )
    for path in paths:
        assert (await fresh.http.get(path)).json()["error"]["code"] == "not_found"
