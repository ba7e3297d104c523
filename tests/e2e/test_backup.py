"""A backup made while the server runs is whole, its owner's only, and restores (H06). Real processes."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.cli.backups import DATABASE, MANIFEST, PEPPER
from palimpsest.storage.sqlite_files import driver

from benchmarks.kill_loop import server
from tests.kit.model import ModelServer
from tests.kit.processes import ran as run_command
from tests.kit.serving import served

pytestmark = pytest.mark.spec("H06")
REFUSED = 2
KEY = {"authorization": "Bearer key-1"}


def ran(folder: Path, *words: str, database: str | None = None) -> subprocess.CompletedProcess[str]:
    """A command on the database in `folder`, by somebody whose files others may read."""
    settings = {
        "PALIMPSEST_DATABASE__URL": database or f"sqlite:///{folder / 'palimpsest.db'}",
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(folder),
    }
    return run_command(folder.parent, *words, settings=settings)


def modes(folder: Path) -> dict[str, int]:
    """Permissions of a folder's files, and of itself as `.`."""
    return {
        path.name if path != folder else ".": stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.iterdir())
    }


async def says(http: httpx.AsyncClient, session: str, text: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    reply = await http.post("/v1/chat/completions", json=body, headers=KEY | {"x-session-id": session})
    assert reply.status_code == 200, reply.text


async def transcript(http: httpx.AsyncClient, session: str) -> Any:
    reply = await http.get(f"/api/sessions/{session}/messages", headers=KEY)
    assert reply.status_code == 200, reply.text
    return [row["message"] for row in reply.json()["messages"]]


async def test_a_backup_under_load_restores_what_was_answered_before_it(tmp_path: Path) -> None:
    data, other, kept = tmp_path / "data", tmp_path / "other", tmp_path / "kept"
    data.mkdir(mode=0o700)
    async with served(ModelServer(window=100_000), lifespan="off") as upstream:
        async with (
            server(data, upstream) as running,
            httpx.AsyncClient(base_url=running.url, timeout=60, verify=False) as http,
        ):
            for n in range(5):
                await says(http, f"before-{n}", f"question {n}")
            told = [await transcript(http, f"before-{n}") for n in range(5)]
            copying = asyncio.create_task(asyncio.to_thread(ran, data, "db", "backup", str(kept)))
            during = 0
            while not copying.done():
                await says(http, f"during-{during}", f"meanwhile {during}")
                during += 1
            made = await copying
            assert (made.returncode, made.stderr) == (0, "")
            assert during > 0
            assert "messages" in made.stdout
        assert modes(kept) == {".": 0o700, DATABASE: 0o600, PEPPER: 0o600, MANIFEST: 0o600}
        put = ran(other, "db", "restore", str(kept))
        assert (put.returncode, put.stderr) == (0, "")
        assert modes(other) == {
            ".": 0o700,
            "palimpsest.db": 0o600,
            "pepper": 0o600,
            "palimpsest.db.lock": 0o600,
        }
        async with (
            server(other, upstream) as running,
            httpx.AsyncClient(base_url=running.url, timeout=60, verify=False) as http,
        ):
            assert [await transcript(http, f"before-{n}") for n in range(5)] == told
            await says(http, "after", "and on it goes")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of an empty database; tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("kept")
    data = folder / "data"
    assert ran(data, "db", "migrate").returncode == 0
    (data / "pepper").touch(mode=0o600)
    (data / "pepper").write_bytes(bytes(range(32)))
    made = ran(data, "db", "backup", str(folder / "backup"))
    assert made.returncode == 0, made.stderr
    return folder / "backup"


def copied(kept: Path, folder: Path) -> Path:
    """The backup again, to be spoilt."""
    target = folder / "spoilt"
    target.mkdir()
    for path in kept.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
        (target / path.name).chmod(0o600)
    return target


def refused(said: subprocess.CompletedProcess[str], part: str) -> None:
    assert said.returncode == REFUSED, said
    assert part in said.stderr
    assert "Traceback" not in said.stderr


def test_the_unspoilt_copy_restores(kept: Path, tmp_path: Path) -> None:
    """The control of those below: the copy itself is not what is refused."""
    assert ran(tmp_path / "new", "db", "restore", str(copied(kept, tmp_path))).returncode == 0


@pytest.mark.parametrize("name", [DATABASE, PEPPER])
@pytest.mark.parametrize("harm", ["flipped", "short", "missing"])
def test_what_is_not_whole_is_not_restored(kept: Path, tmp_path: Path, name: str, harm: str) -> None:
    spoilt = copied(kept, tmp_path)
    content = bytearray((spoilt / name).read_bytes())
    if harm == "missing":
        (spoilt / name).unlink()
    else:
        content[len(content) // 2] ^= 1
        (spoilt / name).write_bytes(content if harm == "flipped" else content[:-1])
    refused(ran(tmp_path / "new", "db", "restore", str(spoilt)), "is not as it was when the backup was made")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_no_backup_is_said_to_be_none(tmp_path: Path) -> None:
    refused(ran(tmp_path / "new", "db", "restore", str(tmp_path)), f"no {MANIFEST}")


def test_nothing_is_overwritten_without_force(kept: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert ran(data, "db", "migrate").returncode == 0
    before = (data / "palimpsest.db").read_bytes()
    refused(ran(data, "db", "restore", str(kept)), "--force")
    assert (data / "palimpsest.db").read_bytes() == before
    # The log of the old database would be read into the new one.
    (data / "palimpsest.db-wal").write_bytes(b"old")
    assert ran(data, "db", "restore", str(kept), "--force").returncode == 0
    assert (data / "palimpsest.db").read_bytes() == (kept / DATABASE).read_bytes()
    assert not (data / "palimpsest.db-wal").exists()


async def test_nothing_is_restored_under_a_running_server(kept: Path, tmp_path: Path) -> None:
    async with served(ModelServer(), lifespan="off") as upstream, server(tmp_path, upstream):
        before = (tmp_path / "pepper").read_bytes()
        refused(
            await asyncio.to_thread(ran, tmp_path, "db", "restore", str(kept), "--force"),
            "another process serves",
        )
        assert (tmp_path / "pepper").read_bytes() == before


def test_a_pepper_of_another_database_makes_no_backup(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert ran(data, "db", "migrate").returncode == 0
    with closing(driver.connect(data / "palimpsest.db")) as connection, connection:
        connection.execute("INSERT INTO pepper (id, fingerprint) VALUES ('pepper', ?)", (b"another",))
    (data / "pepper").touch(mode=0o600)
    (data / "pepper").write_bytes(bytes(32))
    refused(ran(data, "db", "backup", str(tmp_path / "kept")), "is not the one")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("harm", ["empty pepper", "pepper a pipe", "database a pipe"])
def test_what_is_no_database_with_its_pepper_makes_no_backup(kept: Path, tmp_path: Path, harm: str) -> None:
    data = tmp_path / "data"
    assert ran(data, "db", "restore", str(kept)).returncode == 0
    spoilt = data / ("palimpsest.db" if "database" in harm else "pepper")
    spoilt.unlink()
    if "pipe" in harm:
        os.mkfifo(spoilt)
    else:
        spoilt.touch(mode=0o600)
    refused(ran(data, "db", "backup", str(tmp_path / "kept")), f"{spoilt} is no")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("name", ["a" * 300, "file/below", "file/far/below"])
def test_a_backup_that_cannot_be_made_says_so(kept: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    said = ran(kept.parent / "data", "db", "backup", str(tmp_path / name))
    refused(said, f"backup: {tmp_path / name} cannot be made (")
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "harm",
    [b"", b"[" * 100_000, {"sha256": 5}, {"sha256": None}, {"sha256": [DATABASE, PEPPER]}, {"rows": None}],
)
def test_a_damaged_manifest_is_said_to_be_damaged(
    kept: Path, tmp_path: Path, harm: bytes | dict[str, object]
) -> None:
    manifest = copied(kept, tmp_path) / MANIFEST
    content = (
        harm if isinstance(harm, bytes) else json.dumps(json.loads(manifest.read_text()) | harm).encode()
    )
    manifest.write_bytes(content)
    said = ran(tmp_path / "new", "db", "restore", str(manifest.parent))
    refused(said, f"{manifest}: is damaged.")
    assert len(said.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_backup_lies_in_a_folder_of_its_own(kept: Path, tmp_path: Path) -> None:
    refused(ran(kept.parent / "data", "db", "backup", str(kept)), "new or empty")
    refused(ran(tmp_path / "none", "db", "backup", str(tmp_path / "kept")), "no database")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert ran(kept.parent / "data", "db", "backup", str(empty)).returncode == 0
    assert modes(empty)["."] == 0o700


@pytest.mark.parametrize(
    ("database", "shown", "masked"),
    [
        (
            "postgresql://me:s3cret@db:5432/name",
            "--dbname=postgresql://me@db:5432/name",
            "postgresql://me:***@db:5432/name",
        ),
        (
            "postgresql://h/x?user=u&password=s3cret",
            "--dbname='postgresql://h/x?user=u'",
            "postgresql://h/x?user=u&password=***",
        ),
        (
            "postgresql://h/x?Pass%77ord=s3cret&sslpassword=s3cret",
            "--dbname=postgresql://h/x",
            "postgresql://h/x?Pass%77ord=***&sslpassword=***",
        ),
        ("postgresql:///x", "--dbname=postgresql:///x", "postgresql:///x"),
    ],
)
def test_postgresql_is_left_to_its_own_tools_and_its_password_is_not_shown(
    tmp_path: Path, database: str, shown: str, masked: str
) -> None:
    for word, tool in (("backup", "pg_dump"), ("restore", "pg_restore")):
        said = ran(tmp_path, "db", word, str(tmp_path / "kept"), database=database)
        refused(said, f"{tool} ")
        assert shown in said.stderr
        assert "s3cret" not in said.stderr
    config = ran(tmp_path, "config", "show", database=database)
    assert masked in config.stdout
    assert "s3cret" not in config.stdout


async def test_what_a_server_makes_is_its_owners_only(tmp_path: Path) -> None:
    """Started by somebody whose files others may read, in a folder that does not exist yet."""
    data, log = tmp_path / "data", tmp_path / "daily"
    log.mkdir()
    before = os.umask(0o022)
    try:
        settings = {
            "PALIMPSEST_DATABASE__URL": f"sqlite:///{data / 'palimpsest.db'}",
            "PALIMPSEST_DATABASE__DATA_FOLDER": str(data / "secret"),
            "PALIMPSEST_COMPACTION__DAILY_LOG_FOLDER": str(log),
            "PALIMPSEST_COMPACTION__DEADLINE_SECONDS": "0",
        }
        messages = [{"role": "user", "content": f"{n} " + "word " * 150} for n in range(20)]
        async with (
            served(ModelServer(window=2_000), lifespan="off") as upstream,
            server(tmp_path, upstream, 2_000, **settings) as running,
            httpx.AsyncClient(base_url=running.url, timeout=60, verify=False) as http,
        ):
            reply = await http.post(
                "/v1/chat/completions", json={"model": "m", "messages": messages}, headers=KEY
            )
            assert reply.status_code == 200
            found, secret, logged = modes(data), modes(data / "secret"), modes(log)
    finally:
        os.umask(before)
    assert {"palimpsest.db", "palimpsest.db-wal", "palimpsest.db-shm", "palimpsest.db.lock"} <= set(found)
    assert secret == {".": 0o700, "pepper": 0o600}
    assert [mode for name, mode in logged.items() if name != "."] == [0o600]
    assert (found.pop("."), found.pop("secret")) == (0o700, 0o700)
    assert set(found.values()) == {0o600}


def test_the_manifest_says_what_is_there(kept: Path) -> None:
    said = json.loads((kept / MANIFEST).read_text())
    assert said["rows"]["messages"] == 0
    assert set(said["sha256"]) == {DATABASE, PEPPER}
