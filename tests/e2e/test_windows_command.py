"""What was learned of windows is seen and forgotten by the operator, also beside a running server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from palimpsest.cli.commands import described_window, forget_windows, learned_windows, line_of
from palimpsest.cli.doctor import examine
from palimpsest.proxy.compacting import windows
from palimpsest.settings.load import load_settings

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.words import prose

TOO_LONG = "This model's maximum context length is 3000 tokens. However, your messages have 5000 tokens."
BARE = {"window.lookup_seconds": 0, "compaction.deadline_seconds": 0, "compaction.background": False}


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
    monkeypatch.setattr(windows, "READ_SECONDS", 0.0)
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
        (row,) = await learned_windows(settings)
        told = described_window(row)
        assert (told["model"], told["tokens"], told["source"]) == ("test-model", 3_000, "overflow")
        findings = [one async for one in examine(settings)]
        assert line_of(row) in [finding.detail for finding in findings]
        assert await forget_windows(settings, "another") == 0
        assert await forget_windows(settings, "test-model") == 1
        # The running server reads again what the database has.
        other = proxy.chat(key="key-1")
        async with asyncio.timeout(20):
            while (await proxy.http.get("/api/windows", headers=other.headers)).json()["windows"]:
                await other.says("Is it gone?")
        assert json.dumps([described_window(row) for row in await learned_windows(settings)]) == "[]"
