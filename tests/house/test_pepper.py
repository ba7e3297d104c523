"""A database and its pepper belong together: another refuses the start, and `doctor` says so (rule 25)."""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from palimpsest.cli.doctor import examine
from palimpsest.cli.terminal import Finding
from palimpsest.errors import SettingsError
from palimpsest.main.application import Application, create_app
from palimpsest.proxy.server_secrets import load_pepper
from palimpsest.settings.load import load_settings
from palimpsest.settings.settings import Settings
from palimpsest.storage.migrate import migrate


async def settings_in(folder: Path) -> Settings:
    settings = load_settings(
        None,
        {
            "upstream.base_url": "http://127.0.0.1:9/v1",
            "database.url": f"sqlite:///{folder / 'palimpsest.db'}",
            "database.data_folder": str(folder),
        },
        {},
    )
    await migrate(settings.database.url.get_secret_value())
    return settings


async def starts(application: Application) -> None:
    """The application starts and stops; what refuses it is raised."""
    asked = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, str]:
        return {"type": next(asked)}

    async def send(_: object) -> None: ...

    await application({"type": "lifespan", "state": {}}, receive, send)


async def told_of_pepper(settings: Settings) -> Finding:
    (finding,) = [finding async for finding in examine(settings) if finding.name == "pepper"]
    return finding


async def test_another_pepper_refuses_the_start_until_the_first_is_restored(tmp_path: Path) -> None:
    settings = await settings_in(tmp_path)
    assert "does not exist yet" in (await told_of_pepper(settings)).detail
    await starts(create_app(settings))
    assert (await told_of_pepper(settings)).state == "ok"
    file = settings.database.pepper_file
    first = file.read_bytes()
    file.write_bytes(bytes(len(first)))
    before = (tmp_path / "palimpsest.db").read_bytes()
    application = create_app(settings)
    with pytest.raises(SettingsError, match=re.escape(str(file))):
        await starts(application)
    assert (tmp_path / "palimpsest.db").read_bytes() == before
    assert isinstance(application.refusal, SettingsError)
    assert (await told_of_pepper(settings)).state == "failed"
    file.unlink()
    assert (
        await told_of_pepper(settings)
    ).detail == f"The pepper {file} is missing, and the database was made with one"
    with pytest.raises(SettingsError, match=f"{re.escape(str(file))} is missing"):
        await starts(create_app(settings))
    # None was made that would look right.
    assert not file.exists()
    file.write_bytes(first)
    file.chmod(0o600)
    await starts(create_app(settings))


@pytest.mark.parametrize("made", ["folder", "link", "parent", "pipe"])
async def test_a_pepper_that_cannot_be_is_a_sentence(tmp_path: Path, made: str) -> None:
    settings = await settings_in(tmp_path)
    file = settings.database.pepper_file
    if made == "folder":
        file.mkdir(mode=0o700)
    elif made == "pipe":
        os.mkfifo(file, 0o600)
    elif made == "link":
        file.symlink_to(tmp_path / "none")
    else:
        (tmp_path / "file").touch()
        settings = settings.model_copy(
            update={"database": settings.database.model_copy(update={"data_folder": tmp_path / "file"})}
        )
    with pytest.raises(SettingsError, match=r"pepper .* (cannot be|is no file)"):
        await starts(create_app(settings))
    assert (await told_of_pepper(settings)).state == "failed"


def test_servers_that_start_at_the_same_moment_make_one_pepper(tmp_path: Path) -> None:
    together, rounds = threading.Barrier(8), 150

    def starts_on(folder: Path) -> bytes:
        together.wait()
        return load_pepper(folder / "pepper", None).secret

    with ThreadPoolExecutor(8) as threads:
        for number in range(rounds):
            folder = tmp_path / str(number)
            made = set(threads.map(starts_on, [folder] * 8))
            assert made == {(folder / "pepper").read_bytes()}
            assert [path.name for path in folder.iterdir()] == ["pepper"]
            assert (folder / "pepper").stat().st_mode & 0o777 == 0o600
