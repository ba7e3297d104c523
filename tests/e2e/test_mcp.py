"""MCP at the edges: keys are asked for, and the command speaks it on standard input and output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import TextContent

from tests.house.sources import ROOT
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied

pytestmark = pytest.mark.timeout(90)


def command(*words: str, key: str) -> StdioServerParameters:
    """`palimpsest mcp` as a client of MCP starts it."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "palimpsest", "mcp", *words],
        env={"OPENAI_API_KEY": key, "PYTHONPATH": str(ROOT / "app")},
        cwd=str(ROOT),
    )


async def called(client: Client, name: str, **arguments: Any) -> tuple[Any, bool]:
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return json.loads(content.text), result.is_error


@pytest.mark.spec("C04", "C05")
async def test_the_command_finds_and_reads_what_the_proxy_has(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=20_000), tmp_path) as proxy:
        talk = proxy.chat(session="garden")
        await talk.says("The gate code is 4471-KLM.")
        async with Client(command("--url", f"{proxy.url}/v1", key="key-1")) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["context_grep", "context_describe"]
            found, _ = await called(client, "context_grep", query="gate code")
            assert (found["session"], found["results"][0]["speaker"]) == (talk.session, "user")
            read = {"id": found["results"][0]["id"], "session": "garden"}
            entry, _ = await called(client, "context_describe", **read)
            assert entry["text"] == "user: The gate code is 4471-KLM."
            refused, is_error = await called(client, "context_grep", query="gate", session="nowhere")
            assert (refused["error"]["code"], is_error) == ("not_found", True)
            elsewhere = proxy.chat(session="elsewhere")
            await elsewhere.says("The gate is shut.")
            found, _ = await called(client, "context_grep", query="gate", session="elsewhere")
            assert found["results"]
            wide = {"query": "gate", "session": "garden", "scope": "namespace"}
            found, _ = await called(client, "context_grep", **wide)
            assert found["session"] == talk.session
            _, is_error = await called(client, "context_grep")
            assert is_error
        async with Client(command("--url", proxy.url, key="key-2")) as client:
            refused, is_error = await called(client, "context_grep", query="gate", session="garden")
            assert (refused["error"]["code"], is_error) == ("not_found", True)


async def test_that_no_proxy_is_there_is_an_error_of_the_tool() -> None:
    async with Client(command("--url", "http://127.0.0.1:9", key="key-1")) as client:
        said, is_error = await called(client, "context_grep", query="gate")
        assert (said["error"]["code"], is_error) == ("upstream_unreachable", True)


async def test_in_keys_mode_nobody_speaks_mcp_without_a_key(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"access.mode": "keys"}) as proxy:
        for headers in ({}, {"authorization": "Bearer nobody"}):
            reply = await proxy.http.post("/mcp", headers=headers, json={})
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")


# Answered without an introduction.
_PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'


async def test_a_body_that_is_too_large_is_refused_as_everywhere(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        headers = {"authorization": "Bearer key-1", "content-type": "application/json"}
        reply = await proxy.http.post("/mcp", headers=headers, content=b"a" * 70_000)
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("mcp >&-", 2, "mcp needs standard input and output"),
        ("mcp <&-", 2, "mcp needs standard input and output"),
        # A client that leaves.
        ("mcp | true", 0, ""),
    ],
)
def test_a_command_without_its_streams_says_so(line: str, code: int, said: str) -> None:
    known = {**os.environ, "PYTHONPATH": str(ROOT / "app")}
    asks = ["bash", "-c", f"set -o pipefail; {sys.executable} -m palimpsest {line}"]
    done = subprocess.run(
        asks, input=_PING * 3, env=known, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert said in done.stderr


def test_a_start_loads_nothing_of_it() -> None:
    """It takes a second to load, and most proxies never hear of it."""
    code = "import sys, palimpsest.main.application, palimpsest.cli.serve; print(int('mcp' in sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "0"
