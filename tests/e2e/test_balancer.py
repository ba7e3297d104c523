"""Two servers behind the balancer of `deploy/compose.postgres.yml`, with its configuration as it is there."""

from __future__ import annotations

import asyncio
import csv
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.house.sources import ROOT
from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.replicas import replicated, until

pytestmark = pytest.mark.timeout(240)
TURNS = 12
# Where Debian puts it, and who is not root does not look.
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"


class Balancer:
    """It runs; `http` is a client of it."""

    def __init__(self, http: httpx.AsyncClient, control: Path) -> None:
        self.http = http
        self._control = control

    async def servers(self) -> dict[str, tuple[int, str]]:
        """Of each server: how many requests it had, and its state. Empty while the balancer starts."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._control)
        except OSError:
            return {}
        writer.write(b"show stat\n")
        rows = csv.DictReader((await reader.read()).decode().removeprefix("# ").splitlines())
        writer.close()
        await writer.wait_closed()
        return {
            row["svname"]: (int(row["stot"]), row["status"])
            for row in rows
            if row["svname"] in ("one", "two")
        }

    async def sees(self, **wanted: str) -> None:
        """It takes the servers for these."""

        async def so() -> bool:
            return {name: state for name, (_, state) in (await self.servers()).items()} == wanted

        await until(so)


@asynccontextmanager
async def balanced(folder: Path, one: str, two: str) -> AsyncIterator[Balancer]:
    """The balancer before two addresses. Another port, and how it is asked, is all that is changed."""
    listening = socket.create_server(("127.0.0.1", 0))
    text = (ROOT / "deploy/haproxy.cfg").read_text(encoding="utf-8")
    for there, here in (
        ("bind :8000", f"bind fd@{listening.fileno()}"),
        ("one:8000", one),
        ("two:8000", two),
    ):
        assert text.count(there) == 1
        text = text.replace(there, here)
    settings, control = folder / "haproxy.cfg", folder / "control"
    settings.write_text(f"{text}\nglobal\n    stats socket {control}\n", encoding="utf-8")
    with (folder / "haproxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            HAPROXY, "-f", settings, pass_fds=[listening.fileno()], stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.close()
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
            yield Balancer(http, control)
    finally:
        process.terminate()
        await process.wait()


async def test_a_conversation_moves_between_servers_and_goes_on_when_one_is_killed(tmp_path: Path) -> None:
    async with replicated(ModelServer(window=4_000), tmp_path) as both:
        addresses = [running.url.removeprefix("http://") for running in both.servers]
        async with balanced(tmp_path, *addresses) as balancer:
            await balancer.sees(one="UP", two="UP")
            chat = Chat(balancer.http)
            for turn in range(TURNS):
                chat.stream = turn % 2 == 0
                await chat.says(f"Note {turn}. " + "The harbour is open. " * 70)
            had = {name: requests for name, (requests, _) in (await balancer.servers()).items()}
            assert sum(had.values()) == TURNS
            assert min(had.values()) >= TURNS // 3

            both.servers[0].process.send_signal(9)
            await balancer.sees(one="DOWN", two="UP")
            for turn in range(TURNS):
                await chat.says(f"Further note {turn}.")
        client = both.clients[1]
        sessions = (await client.get("/api/sessions", headers=chat.headers)).json()["sessions"]
        assert [session["id"] for session in sessions] == [chat.session]
        kept = await client.get(f"/api/sessions/{chat.session}/messages?limit=1000", headers=chat.headers)
        assert [row["message"] for row in kept.json()["messages"]] == chat.said
        assert {reply.headers.get("x-palimpsest-compaction") for reply in chat.replies} != {None}
        assert len(both.model.prompts) == 2 * TURNS
