"""A restore replaces all files or none, whatever fails; what a kill leaves is not mixed. Real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from palimpsest.cli.backups import DATABASE, MANIFEST, PEPPER

from tests.house.sources import ROOT
from tests.kit.processes import ran as run_command

pytestmark = pytest.mark.spec("H06")
REFUSED = 2
FILES = ("palimpsest.db", "palimpsest.db-wal", "pepper")
# What a restore does to names in the folder: it makes way for copies (1, 2), moves pepper and log away (3,
# 4), keeps the database (5, 6), puts the new files in place (7, 8), and removes what is left (from 9 on).
IN_PLACE, STEPS = 8, 15
# Without hard links the database is moved away instead.
LINKING = 6
# Restores over the files of each folder. In the first one the first step fails, in the second the second.
HARMED = """
import os, signal, sys
from pathlib import Path
from palimpsest.cli.backups import restore
from palimpsest.errors import SettingsError
from palimpsest.settings.serving import Database

harm, kept, *folders = sys.argv[1:]
for at, data in enumerate(folders, start=1):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    left = [None] * at

    def hook(event, arguments):
        if event in ("os.rename", "os.link", "os.remove") and str(arguments[0]).startswith(data) and left:
            left.pop()
            if not left and harm == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if not left:
                raise OSError(16, "Device or resource busy", str(arguments[0]))

    sys.addaudithook(hook)
    try:
        restore(Database(url=f"sqlite:///{data}/palimpsest.db", data_folder=data), Path(kept), force=True)
    except SettingsError as refused:
        Path(data, "said").write_text(refused.message)
    os._exit(0)
"""
Harm: TypeAlias = Literal["failed", "killed"]


def ran(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "PALIMPSEST_DATABASE__URL": f"sqlite:///{data / 'palimpsest.db'}",
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(data),
    }
    return run_command(data.parent, *words, settings=settings)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of an empty database."""
    data = tmp_path_factory.mktemp("kept") / "data"
    assert ran(data, "db", "migrate").returncode == 0
    (data / "pepper").touch(mode=0o600)
    (data / "pepper").write_bytes(bytes(range(32)))
    assert ran(data, "db", "backup", str(data.parent / "backup")).returncode == 0
    return data.parent / "backup"


def old(data: Path) -> Path:
    """Files that a restore replaces, each with its name in it."""
    data.mkdir()
    for name in FILES:
        (data / name).write_text(f"old {name}")
    return data


def found(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data.iterdir() if path.suffix != ".lock"}


def all_old() -> dict[str, bytes]:
    return {name: f"old {name}".encode() for name in FILES}


def all_new(kept: Path) -> dict[str, bytes]:
    return {"palimpsest.db": (kept / DATABASE).read_bytes(), "pepper": (kept / PEPPER).read_bytes()}


def harmed(harm: Harm, kept: Path, tmp_path: Path) -> list[Path]:
    """Folders after restores that a failure, or a kill, has met at the first step, the second, and so on."""
    folders = [old(tmp_path / str(at)) for at in range(1, STEPS + 1)]
    words = [sys.executable, "-c", HARMED, harm, str(kept), *map(str, folders)]
    subprocess.run(words, env={**os.environ, "PYTHONPATH": str(ROOT / "app")}, check=True, timeout=60)
    return folders


def test_a_restore_that_fails_changes_nothing(kept: Path, tmp_path: Path) -> None:
    for at, data in enumerate(harmed("failed", kept, tmp_path), start=1):
        there = found(data)
        said = there.pop("said", b"").decode()
        if at <= IN_PLACE and at != LINKING:
            assert there == all_old(), at
            assert (
                f"{data}/palimpsest.db and {data}/pepper cannot be written (Device or resource busy" in said
            )
        else:
            assert {name: there[name] for name in all_new(kept)} == all_new(kept), at
            assert "palimpsest.db-wal" not in there
            assert bool(said) is (at > IN_PLACE)


def test_a_killed_restore_mixes_nothing_and_is_done_again(kept: Path, tmp_path: Path) -> None:
    new = all_new(kept)
    seen = set()
    for data in harmed("killed", kept, tmp_path):
        there = found(data)
        is_new = there["palimpsest.db"] == new["palimpsest.db"]
        has_pepper, has_log = bool(there.get("pepper")), "palimpsest.db-wal" in there
        assert not (is_new and has_log)
        # With a pepper, which a server needs, everything belongs together.
        assert has_log or is_new or not has_pepper
        if has_pepper:
            assert (there["pepper"] == new["pepper"]) is is_new
        if not (is_new and has_pepper):
            lies = {name: there.get(f".{name}.replaced", there.get(name)) for name in FILES}
            assert lies == all_old()
        # No server starts with an empty pepper, whichever database is there.
        assert has_pepper or "pepper" in there
        seen.add((is_new, has_log, has_pepper))
        assert ran(data, "db", "restore", str(kept), "--force").returncode == 0
        assert found(data) == new
    assert seen == {
        (False, True, True),
        (False, True, False),
        (False, False, False),
        (True, False, False),
        (True, False, True),
    }


@pytest.mark.parametrize("name", ["palimpsest.db", "pepper"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a folder"])
def test_what_is_no_file_is_not_replaced(kept: Path, tmp_path: Path, name: str, kind: str) -> None:
    data = old(tmp_path / "data")
    (data / name).unlink()
    if kind == "folder":
        (data / name).mkdir()
    elif kind == "pipe":
        os.mkfifo(data / name)
    else:
        (data / name).symlink_to(tmp_path)
    before = {path.name for path in data.iterdir()}
    said = ran(data, "db", "restore", str(kept), "--force")
    assert said.returncode == REFUSED
    assert said.stderr == f"palimpsest: restore: {data / name} is not a regular file, and is not replaced.\n"
    assert {path.name for path in data.iterdir()} == before
    assert [(data / one).read_text() for one in FILES if one != name] == [
        f"old {one}" for one in FILES if one != name
    ]


def test_a_symlink_is_restored_at_its_target(kept: Path, tmp_path: Path) -> None:
    disk, data = old(tmp_path / "disk"), tmp_path / "data"
    data.mkdir()
    for name in ("palimpsest.db", "pepper"):
        (data / name).symlink_to(disk / name)
    assert ran(data, "db", "restore", str(kept), "--force").returncode == 0
    assert (data / "palimpsest.db").readlink() == disk / "palimpsest.db"
    assert found(data) == found(disk) == all_new(kept)


@pytest.mark.parametrize("harm", ["name too long", "manifest a pipe"])
def test_a_folder_that_is_no_backup(tmp_path: Path, harm: str) -> None:
    folder = tmp_path / ("a" * 300 if "long" in harm else "backup")
    if "pipe" in harm:
        folder.mkdir()
        os.mkfifo(folder / MANIFEST)
    said = ran(tmp_path / "data", "db", "restore", str(folder))
    assert said.returncode == REFUSED
    assert said.stderr == f"palimpsest: {folder}: is no backup; it has no {MANIFEST}.\n"


def test_no_server_starts_with_the_empty_pepper_of_a_killed_restore(kept: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert ran(data, "db", "restore", str(kept)).returncode == 0
    (data / "pepper").write_bytes(b"")
    said = ran(data, "serve", "--port", "0")
    assert (said.returncode, said.stdout) == (REFUSED, "")
    assert said.stderr == (
        f"palimpsest: The pepper {data / 'pepper'} is damaged (0 bytes): restore it from a backup.\n"
    )
