"""A database that is gone, replaced, damaged or without room is noticed, told, and erased from (H12).

Real processes and real files; the full disk is a small one of the process's own. Each property is tried on a
process that lacks what keeps it, too: there it must not hold.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.house.sources import ROOT
from tests.kit.migrated import make_file
from tests.kit.model import ModelServer
from tests.kit.processes import Process
from tests.kit.serving import served

pytestmark = pytest.mark.spec("H12")

Json = dict[str, Any]
KEY = {"authorization": "Bearer key-1"}
# A start on a busy machine.
PATIENCE_SECONDS = 60
SERVE = "from palimpsest.cli.main import main; main(['serve', '--port', '0'])"
# The deliberately broken variant: nobody looks at the files.
BLIND = (
    "from palimpsest.storage.sqlite_files import FileCondition as C;"
    "C.lost = lambda self: None; C.looked_at = lambda self: None;"
)
DISK_BYTES = 24 * 1024 * 1024
# As root a mount namespace is enough; others need a user namespace around it.
ALONE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


@dataclass
class Running:
    """A server process; `folder` is its data folder as this process reaches it."""

    process: asyncio.subprocess.Process | Process
    http: httpx.AsyncClient
    folder: Path
    log: Path

    @property
    def database(self) -> Path:
        return self.folder / "palimpsest.db"

    async def says(self, session: str, text: str = "Hello.") -> httpx.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        headers = KEY | {"x-session-id": session}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    async def stored(self, session: str) -> bool:
        reply = await self.http.get(f"/api/sessions/{session}/messages", headers=KEY)
        return reply.status_code == 200 and len(reply.json()["messages"]) == 2

    async def is_red(self, reason: str) -> bool:
        reply = await self.http.get("/readyz")
        return (reply.status_code, reply.json().get("reason")) == (503, reason)

    async def logged(self, event: str) -> Json:
        """The first line of the log with this event, once it is there."""
        for _ in range(2_000):
            lines = [json.loads(line) for line in self.log.read_text().splitlines()]
            if found := next((line for line in lines if line["event"] == event), None):
                return dict(found)
            await asyncio.sleep(0.01)
        raise AssertionError(f"{event} was not logged: {self.log.read_text()}")


@asynccontextmanager
async def running(
    folder: Path, upstream: str, *, code: str = SERVE, alone: str = "", **settings: str
) -> AsyncIterator[Running]:
    """A server on the database in `folder`, killed at the end. `alone`: what a shell does for it before."""
    given = {
        "PALIMPSEST_DATABASE__URL": f"sqlite:///{folder / 'palimpsest.db'}",
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(folder),
        "PALIMPSEST_UPSTREAM__BASE_URL": f"{upstream}/v1",
        "PALIMPSEST_WINDOW__WINDOW_TOKENS": "1000000",
        "PALIMPSEST_LOGGING__FORMAT": "json",
        **settings,
    }
    out, log = (folder.parent / f"{folder.name}.{kind}" for kind in ("out", "log"))
    out.unlink(missing_ok=True)
    process = (
        await _started(code, alone, given, out, log)
        if alone or code != SERVE
        else Process(folder.parent, "serve", "--port", "0", settings=given, out=out, err=log)
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (out.exists() and (said := out.read_text()).endswith("\n")):  # noqa: ASYNC110 - a process's
                await asyncio.sleep(0.01)
        assert "listens" in said, log.read_text()
        url = said.split(" at ")[1].splitlines()[0].removesuffix("/v1")
        seen = Path(f"/proc/{process.pid}/root{folder}") if alone else folder
        async with httpx.AsyncClient(
            base_url=url, timeout=PATIENCE_SECONDS, trust_env=False, verify=False
        ) as http:
            yield Running(process, http, seen, log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def _started(
    code: str, alone: str, settings: dict[str, str], out: Path, log: Path
) -> asyncio.subprocess.Process:
    """A new interpreter with this code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PALIMPSEST_")}
    command = [sys.executable, "-c", code]
    if alone:
        command = [*ALONE, "sh", "-c", f'{alone} && exec "$@"', "sh", *command]
    with out.open("ab") as said, log.open("ab") as written:
        return await asyncio.create_subprocess_exec(
            *command, env=kept | {"PYTHONPATH": str(ROOT / "app")} | settings, stdout=said, stderr=written
        )


def refused(reply: httpx.Response) -> bool:
    return (reply.status_code, reply.json()["error"]["code"]) == (503, "store_unavailable")


@asynccontextmanager
async def served_beside(
    folder: Path, code: str = SERVE, **settings: str
) -> AsyncIterator[tuple[Running, ModelServer]]:
    """A server in a folder of its own that has stored a session `before`."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    if not (data / "palimpsest.db").exists():
        await make_file(data / "palimpsest.db")
    model = ModelServer(window=1_000_000)
    async with (
        served(model, lifespan="off") as upstream,
        running(data, upstream, code=code, **settings) as server,
    ):
        assert (await server.says("before")).status_code == 200
        yield server, model


def delete(database: Path) -> None:
    database.unlink()


def delete_log(database: Path) -> None:
    database.with_name(database.name + "-wal").unlink()


def replace(database: Path) -> None:
    other = database.with_name("other")
    other.write_bytes(database.read_bytes())
    other.replace(database)


def empty(database: Path) -> None:
    os.truncate(database, 0)


def overwrite(database: Path) -> None:
    with database.open("r+b") as file:
        file.write(b"not a database\n" * 1_000)


HARMS: dict[str, tuple[Callable[[Path], None], str]] = {
    "deleted": (delete, "file_missing"),
    "log deleted": (delete_log, "file_missing"),
    "replaced": (replace, "file_replaced"),
    "emptied": (empty, "damaged"),
    "overwritten": (overwrite, "damaged"),
}


@pytest.mark.parametrize("name", HARMS)
async def test_a_file_that_is_lost_while_running_is_noticed_and_told(tmp_path: Path, name: str) -> None:
    harm, reason = HARMS[name]
    async with served_beside(tmp_path) as (server, model):
        assert (await server.http.get("/readyz")).status_code == 200
        harm(server.database)
        assert await server.is_red(reason)
        asked = len(model.prompts)
        assert refused(await server.says("after"))
        assert len(model.prompts) == asked
        line = await server.logged("database_unusable")
        assert (line["level"], line["reason"]) == ("error", reason)
        assert line["remedy"]


@pytest.mark.parametrize("name", ["deleted", "replaced"])
async def test_nothing_is_acknowledged_that_a_restart_does_not_find(tmp_path: Path, name: str) -> None:
    harm, _ = HARMS[name]
    assert await _lost_after(tmp_path, harm, SERVE) == []


@pytest.mark.parametrize("name", ["deleted", "replaced"])
async def test_who_does_not_look_loses_what_was_acknowledged(tmp_path: Path, name: str) -> None:
    """The control."""
    harm, _ = HARMS[name]
    assert await _lost_after(tmp_path, harm, BLIND + SERVE) == ["after-0", "after-1", "after-2"]


async def _lost_after(folder: Path, harm: Callable[[Path], None], code: str) -> list[str]:
    """The sessions whose answers came after the harm, and that are not there after a kill and a restart."""
    async with served_beside(folder, code) as (server, _):
        harm(server.database)
        said = {f"after-{n}": await server.says(f"after-{n}") for n in range(3)}
        answered = [session for session, reply in said.items() if reply.status_code == 200]
    for ending in ("-wal", "-shm"):
        (folder / "data" / f"palimpsest.db{ending}").unlink(missing_ok=True)
    async with served_beside(folder) as (server, _):
        return [session for session in answered if not await server.stored(session)]


async def test_a_file_that_comes_back_is_used_again_without_a_restart(tmp_path: Path) -> None:
    async with served_beside(tmp_path) as (server, _):
        away = server.database.with_name("away")
        server.database.rename(away)
        assert refused(await server.says("meanwhile"))
        assert (await server.logged("database_unusable"))["reason"] == "file_missing"
        away.rename(server.database)
        assert (await server.says("after")).status_code == 200
        assert (await server.http.get("/readyz")).status_code == 200
        await server.logged("database_usable_again")
    async with served_beside(tmp_path) as (server, _):
        assert [await server.stored(session) for session in ("before", "after")] == [True, True]


async def test_where_the_operator_prefers_answers_they_are_given(tmp_path: Path) -> None:
    async with served_beside(tmp_path, PALIMPSEST_DATABASE__ON_STORE_FAILURE="passthrough") as (server, _):
        delete(server.database)
        answer = await server.says("after")
        assert (answer.status_code, answer.headers["x-palimpsest-store"]) == (200, "unavailable")
        assert await server.is_red("file_missing")


@asynccontextmanager
async def on_a_small_disk(folder: Path, **settings: str) -> AsyncIterator[Running]:
    """A server that alone sees a disk of DISK_BYTES, on which `large` is stored and then no byte is free."""
    data = folder / "data"
    data.mkdir()
    alone = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs {data}"
    reserve = {"PALIMPSEST_DATABASE__ERASE_RESERVE_BYTES": "4000000", **settings}
    model = ModelServer(window=100_000_000)
    async with (
        served(model, lifespan="off") as upstream,
        running(data, upstream, alone=alone, **reserve) as server,
    ):
        assert (await server.says("large", "word " * 200_000)).status_code == 200
        assert (await server.says("small")).status_code == 200
        with suppress(OSError), (server.folder / "filling").open("wb", buffering=0) as filling:
            while True:
                filling.write(bytes(4096))
        yield server


async def filled(server: Running) -> None:
    """No request can be stored; what the log still has room for is used up first."""
    for n in range(200):
        if refused(await server.says(f"more-{n}", f"{n} " + "x " * 20_000)):
            return
    raise AssertionError("the disk is not full")


async def test_a_full_disk_is_red_can_be_erased_from_and_recovers(tmp_path: Path) -> None:
    async with on_a_small_disk(tmp_path) as server:
        await filled(server)
        assert await server.is_red("disk_full")
        assert (await server.logged("database_unusable"))["reason"] == "disk_full"
        erased = await server.http.delete("/api/sessions/large", headers=KEY)
        assert erased.status_code == 200, erased.text
        assert erased.json()["rows"]["messages"] == 2
        assert (await server.http.get("/api/sessions/large", headers=KEY)).status_code == 404
        (server.folder / "filling").unlink()
        assert (await server.says("after")).status_code == 200
        assert (await server.http.get("/readyz")).status_code == 200
        await server.logged("database_usable_again")
        reserve = server.folder / "palimpsest.db.reserve"
        for _ in range(2_000):
            if reserve.exists() and reserve.stat().st_size:
                break
            await asyncio.sleep(0.01)
        assert reserve.stat().st_size == 4_000_000


async def test_without_a_reserve_a_full_disk_cannot_be_erased_from(tmp_path: Path) -> None:
    """The control."""
    async with on_a_small_disk(tmp_path, PALIMPSEST_DATABASE__ERASE_RESERVE_BYTES="0") as server:
        await filled(server)
        erased = await server.http.delete("/api/sessions/large", headers=KEY)
        assert refused(erased), erased.text


async def test_the_reserve_is_given_back_at_a_stop(tmp_path: Path) -> None:
    async with served_beside(tmp_path) as (server, _):
        reserve = server.folder / "palimpsest.db.reserve"
        assert reserve.stat().st_mode & 0o777 == 0o600
        server.process.terminate()
        await server.process.wait()
        assert not reserve.exists()
