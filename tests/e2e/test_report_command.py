"""`palimpsest report` and `stats` against a running proxy: its lines, its JSON, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from palimpsest.cli.main import main

from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.terminal import runs

pytestmark = pytest.mark.timeout(60)


async def test_it_tells_what_the_endpoints_tell(tmp_path: Path) -> None:
    prices = {"models": [{"match": "test-model", "prices": {"input": 2.0}}]}
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END | prices) as proxy:
        chat = proxy.chat(session="work")
        await compacted(chat)
        done = await runs(proxy, "report")
        total = (await read(proxy.http, chat, "overview"))["total"]
        assert (
            f"The last 7 days: {total['turns']:,} turns, {total['compacted']:,} of them compacted."
            in done.stdout
        )
        assert f"Said {total['tokens_full']:,} tokens, sent {total['tokens']:,}" in done.stdout
        assert "(measured)" in done.stdout
        assert "(estimated)" in done.stdout
        assert f"work ({chat.session}), test-model" in done.stdout
        (one,) = (await read(proxy.http, chat, "sessions/work/report"))["compactions"]
        assert one["turns"] == 1
        assert f"  turn {one['since']}: 1 turn, no calls" in done.stdout
        told = await runs(proxy, "report", "--session", "work", "--json")
        document = json.loads(told.stdout)
        assert document["overview"] is None
        assert document["sessions"][0]["compactions"] == [one]
        nobody = await runs(proxy, "report", key="another")
        assert "0 turns" in nobody.stdout
        assert chat.session not in nobody.stdout


async def test_since_the_beginning_it_counts_what_is_stored_and_used(tmp_path: Path) -> None:
    prices = {"models": [{"match": "test-model", "prices": {"input": 2.0}}]}
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END | prices) as proxy:
        chat = proxy.chat(session="work")
        await compacted(chat)
        await proxy.chat(session="not mine", key="key-2").says("Hello.")
        told = json.loads((await runs(proxy, "report", "--days", "0", "--json")).stdout)["overview"]
        assert told == await read(proxy.http, chat, "overview?days=0")
        stored, total = told["stored"], told["total"]
        # The instructions are no messages.
        assert (stored["sessions"], stored["messages"]) == (1, len(chat.said))
        assert stored["first_at"] < stored["last_at"]
        assert told["by_day"] == []
        lines = (await runs(proxy, "report", "--days", "0")).stdout.splitlines()
        assert lines[0].startswith(f"Stored: 1 session, {stored['messages']:,} messages")
        assert lines[1].startswith(f"Since the beginning: {total['turns']} turns, ")
        row = next(line for line in lines if line.startswith("test-model")).split()
        said = [
            total[key] for key in ("turns", "tokens_full", "tokens", "cached_tokens", "completion_tokens")
        ]
        assert [int(cell.replace(",", "")) for cell in row[1:6]] == said
        assert row[6].startswith("$")
        assert "Compactions: 1 with a model's summary." in lines
        week = (await runs(proxy, "report")).stdout
        assert week.startswith("The last 7 days: ")
        assert "\nDAY (UTC) " in week
        assert told["stored"]["last_at"][:10] in week
        nobody = (await runs(proxy, "report", "--days", "0", key="another")).stdout
        assert nobody.startswith("Stored: 0 sessions, 0 messages.\nSince the beginning: 0 turns, ")


async def test_what_it_cannot_tell_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        for words, said in (
            (["--url", proxy.url, "--session", "none"], "There is nothing here, or it is not yours."),
            (
                ["--url", "http://127.0.0.1:1"],
                "The proxy cannot be reached at http://127.0.0.1:1. Is it running?",
            ),
        ):
            with pytest.raises(SystemExit) as ended:
                await asyncio.to_thread(main, ["report", *words])
            assert ended.value.code == 2
            assert said in capsys.readouterr().err
        await runs(proxy, "report", "--days", "91", code=2)
