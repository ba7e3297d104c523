"""What was learned of windows is seen and forgotten by the operator, also beside a running server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from palimpsest.cli.db_commands import learned_windows, line_of_window
from palimpsest.cli.doctor import examine
from palimpsest.proxy import model_facts
from palimpsest.settings.load import load_settings
from typer.testing import Result

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.terminal import runs
from tests.kit.words import prose

TOO_LONG = "This model's maximum context length is 3000 tokens. However, your messages have 5000 tokens."
BARE = {"window.lookup_seconds": 0, "compaction.deadline_seconds": 0, "compaction.background": False}


async def windows_of(folder: Path, *words: str, code: int = 0) -> Result:
    return await runs(
        None, "db", "windows", "--database", f"sqlite:///{folder / 'palimpsest.db'}", *words, code=code
    )


async def learned(proxy: Proxy) -> None:
    chat = proxy.chat()
    for turn in range(4):
        await chat.says(f"{turn}. {prose(turn, 500)}")
    proxy.model.answers.append(Says(status=400, error={"error": {"message": TOO_LONG}}))
    await chat.says("Too long.")
    async with asyncio.timeout(20):
        while not (await proxy.http.get("/api/windows", headers=chat.headers)).json()["windows"]:
            pass


@pytest.mark.spec("H01")
async def test_the_operator_sees_and_forgets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_facts, "READ_SECONDS", 0.0)
    model = ModelServer(window=100_000, models=False)
    settings = load_settings(
        None,
        {
            "database.url": f"sqlite:///{tmp_path / 'palimpsest.db'}",
            "database.data_folder": str(tmp_path),
            "upstream.base_url": "http://127.0.0.1:9/v1",
        },
        {},
    )
    async with proxied(model, tmp_path, BARE) as proxy:
        await learned(proxy)
        # The server knows at once; the row is written a moment later.
        async with asyncio.timeout(20):
            while not (rows := await learned_windows(settings)):
                pass
        (row,) = rows
        assert (row.model, row.tokens, row.source) == ("test-model", 3_000, "overflow")
        findings = [one async for one in examine(settings)]
        assert line_of_window(row) in [finding.detail for finding in findings]
        listed = json.loads((await windows_of(tmp_path, "--json")).stdout)
        assert [(each["model"], each["tokens"]) for each in listed] == [("test-model", 3_000)]
        await windows_of(tmp_path, "--forget", "another", code=1)
        assert "1 forgotten" in (await windows_of(tmp_path, "--forget", "test-model")).stdout
        # The running server reads again what the database has.
        other = proxy.chat(key="key-1")
        async with asyncio.timeout(20):
            while (await proxy.http.get("/api/windows", headers=other.headers)).json()["windows"]:
                await other.says("Is it gone?")
        assert (await windows_of(tmp_path, "--json")).stdout == "[]\n"
