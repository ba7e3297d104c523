"""What clients and servers have written steers no terminal, and names no file outside its folder."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from palimpsest.api.replies import API_HEADER
from palimpsest.cli.main import app, main
from typer.testing import CliRunner

from tests.kit.journal import AT_THE_END, compacted
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.serving import served
from tests.kit.terminal import runs

pytestmark = pytest.mark.timeout(120)
# Sets the title of the window, writes to the clipboard, clears the line, and does so in one byte (C1) too;
# turns the rest of the line around; half of a character.
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2K\r\x9b2J\u202e\ud800\x7f"
ESCAPE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
TEXTS = (
    "name",
    "title",
    "client",
    "model",
    "reason",
    "content",
    "text",
    "message",
    "code",
    "warning",
    "kind",
)


def hostile(value: Any) -> Any:
    """The JSON value with the escapes in every text that a client or an upstream may have chosen."""
    if isinstance(value, list):
        return [hostile(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: HOSTILE + each + HOSTILE if name in TEXTS and isinstance(each, str) else hostile(each)
        for name, each in value.items()
    }


class HostileServer:
    """Answers as `app` does, but for the texts of its JSON."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api"):
            await self._app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        body = b""

        async def kept(message: dict[str, Any]) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                changed = json.dumps(hostile(json.loads(body))).encode()
                headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
                await send({**start, "headers": headers})
                await send({"type": "http.response.body", "body": changed})

        await self._app(scope, receive, kept)


COMMANDS = (
    ["sessions"],
    ["show", "work"],
    ["view", "work"],
    ["view", "work", "--against", "previous"],
    ["view", "work", "--against", "said"],
    ["search", "harbour"],
    ["pins", "work"],
    ["tail", "--most", "1"],
    ["report"],
    ["compact", "work"],
)


async def test_no_command_prints_an_escape(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END, around=HostileServer) as proxy:
        await compacted(proxy.chat(session="work"))
        for words in COMMANDS:
            done = await runs(proxy, *words)
            assert not ESCAPE.search(done.output), words
            assert "owned" in done.output or words[0] in ("pins", "compact", "report"), words
            if words[0] != "tail":
                as_json = await runs(proxy, *words, "--json")
                assert not ESCAPE.search(as_json.output), words
                json.loads(as_json.stdout)


async def test_no_error_prints_an_escape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, around=HostileServer) as proxy:
        with pytest.raises(SystemExit):
            await asyncio.to_thread(main, ["show", "nothing", "--url", proxy.url])
        said = capsys.readouterr().err
        assert "owned" in said
        assert not ESCAPE.search(said)


class WithStrangeIds:
    """A proxy whose ids of sessions and branches are paths."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        answer: Mapping[str, Any] = {"branches": [{"branch": "../../b"}, {"branch": "/../../c"}]}
        if scope["path"] == "/api/sessions":
            names = (None, "../../n", "/etc/n", "..", "a\x00b\nc")
            rows = [{"id": f"../../../{at}", "name": name} for at, name in enumerate(names)]
            answer = {"sessions": rows, "next": None}
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (API_HEADER.encode(), b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def test_an_export_writes_into_its_folder_only(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c" / "d"
    folder.mkdir(parents=True)
    async with served(WithStrangeIds(), lifespan="off") as url:
        done = await asyncio.to_thread(_exported, url, folder / "out")
    assert done.output.endswith("out: 10 files.\n")
    files = files_in(tmp_path)
    assert len(files) == 10
    assert {path.parent for path in files} == {folder / "out"}
    assert all(path.name.isprintable() and path.suffix == ".json" for path in files)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _exported(url: str, folder: Path) -> Any:
    return CliRunner().invoke(app, ["export", "--all", "--to", str(folder), "--url", url])
