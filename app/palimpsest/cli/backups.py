"""`palimpsest db backup` and `restore`: database and pepper together, readable by their owner only.

A backup is a folder of three files: the database, the pepper, and a manifest with version, row counts and
digests. PostgreSQL databases are left to PostgreSQL's own tools; the commands are printed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path

import msgspec

from palimpsest.cli.terminal import utc
from palimpsest.core.urls import without_password
from palimpsest.errors import SettingsError, StoreUnavailable
from palimpsest.proxy.server_secrets import PEPPER_BYTES, load_pepper
from palimpsest.settings.serving import Database
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import MISMATCHES, bound_pepper, schema_state
from palimpsest.storage.sqlite_files import ServerLock, copy_database, damage_of, rows_of

DATABASE, PEPPER, MANIFEST = "palimpsest.db", "pepper", "backup.json"
_CHUNK = 1024 * 1024
# SQLite's files beside a database: those of the old database would be applied to the restored one.
_BESIDE = ("-wal", "-shm", "-journal")


class _Manifest(msgspec.Struct):
    version: str
    made_at: str
    rows: dict[str, int]
    sha256: dict[str, str]


_MANIFEST = msgspec.json.Decoder(_Manifest)


def back_up(database: Database, folder: Path) -> Mapping[str, int]:
    """Write a verified backup to `folder`, which must be new or empty; a server may run meanwhile.

    Returns how many rows each table has.

    SettingsError, and no folder is left, when the backup cannot be written or fails the verification.
    """
    source, pepper = _file_of(database, folder, "backup"), database.pepper_file
    try:
        # Anything but a file, such as a pipe, may never end.
        if not source.exists():
            raise SettingsError(f"database.url: there is no database at {source}.")
        if not source.is_file():
            raise SettingsError(f"database.url: {source} is not a regular file.")
        if not pepper.exists():
            raise SettingsError(f"database.data_folder: there is no pepper at {pepper}.")
        if not pepper.is_file() or pepper.stat().st_size != PEPPER_BYTES:
            raise SettingsError(
                f"database.data_folder: {pepper} is no pepper: a file of {PEPPER_BYTES} bytes."
            )
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise SettingsError(f"backup: {folder} is there already; name a folder that is new or empty.")
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The folder gets its final name only when it is complete. mkdtemp creates it with mode 0700.
        making = Path(tempfile.mkdtemp(prefix=".backup-", dir=folder.parent))
        try:
            _fill(making, source, pepper)
            _, rows = verified(making)
            making.rename(folder)
            _sync(folder.parent)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    except (OSError, StoreUnavailable) as failure:
        said = failure.message if isinstance(failure, StoreUnavailable) else failure.strerror
        raise SettingsError(f"backup: {folder} cannot be made ({said}).") from failure
    return rows


def restore(database: Database, folder: Path, *, force: bool) -> tuple[str, Mapping[str, int]]:
    """Replace database and pepper by those of the backup, after verifying it; symlinks at their targets.

    Returns as `verified`.

    SettingsError, and nothing changed, while a server uses the database, when files exist and `force` is not
    given, for an invalid backup, and when one of the files cannot be replaced.
    """
    target, pepper = _file_of(database, folder, "restore"), database.pepper_file
    found = verified(folder)
    try:
        there = [path for path in (target, pepper) if path.exists()]
        for path in there:
            if not path.is_file():
                raise SettingsError(f"restore: {path} is not a regular file, and is not replaced.")
        if there and not force:
            said = " and ".join(map(str, there))
            raise SettingsError(f"restore: {said} would be overwritten; --force does so.")
        for place in (target, pepper):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        use = ServerLock(target)
        use.take()
        try:
            _put(folder, Path(os.path.realpath(target)), Path(os.path.realpath(pepper)))
        finally:
            use.release()
    except OSError as failure:
        said = f"{failure.strerror}: {failure.filename}"
        raise SettingsError(f"restore: {target} and {pepper} cannot be written ({said}).") from failure
    return found


def verified(folder: Path) -> tuple[str, Mapping[str, int]]:
    """Verify the backup in `folder` without changing it; SettingsError says what is wrong.

    Returns its schema (current, or behind: migrate after the restore), and how many rows each table has.
    """
    manifest = folder / MANIFEST
    try:
        if not manifest.is_file():
            raise FileNotFoundError
        said = _MANIFEST.decode(manifest.read_bytes())
        if said.sha256.keys() != {DATABASE, PEPPER}:
            raise ValueError
    except OSError:
        raise SettingsError(f"{folder}: is no backup; it has no {MANIFEST}.") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"{manifest}: is damaged.") from None
    for name, digest in said.sha256.items():
        if _digest(folder / name) != digest:
            raise SettingsError(
                f"{folder / name}: is not as it was when the backup was made; use another one."
            )
    path = folder / DATABASE
    if (damage := damage_of(path)) is not None:
        raise SettingsError(f"{path}: the database is damaged: {damage}.")
    url = f"sqlite:///{path.absolute()}"
    schema = asyncio.run(schema_state(url))
    if schema in MISMATCHES:
        raise SettingsError(f"{path}, of version {said.version}: {MISMATCHES[schema]}")
    load_pepper(folder / PEPPER, asyncio.run(bound_pepper(url)) if schema == "current" else None)
    if (rows := rows_of(path)) != said.rows:
        raise SettingsError(f"{path}: does not hold as many rows as it did when it was copied.")
    return schema, rows


def _fill(folder: Path, source: Path, pepper: Path) -> None:
    _copy(pepper, folder / PEPPER)
    rows = copy_database(source, folder / DATABASE)
    digests = {name: str(_digest(folder / name)) for name in (DATABASE, PEPPER)}
    said = _Manifest(version("palimpsest"), str(utc(time.time())), dict(rows), digests)
    _write(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(said)) + b"\n")
    for name in (DATABASE, PEPPER, MANIFEST):
        _sync(folder / name)
    _sync(folder)


def _put(folder: Path, target: Path, pepper: Path) -> None:
    """Put both files in place. When a step fails, what was there is put back."""
    places = {PEPPER: pepper, DATABASE: target}
    try:
        for name, place in places.items():
            _ready(place).unlink(missing_ok=True)
            _copy(folder / name, _ready(place))
            _sync(_ready(place))
        _replace(target, pepper)
    finally:
        for place in places.values():
            _ready(place).unlink(missing_ok=True)


def _replace(target: Path, pepper: Path) -> None:
    """Replace both by the copies that are ready, the old ones kept aside until all is done.

    The order is for a kill, or a power cut, between two steps. The pepper leaves first and comes last; in
    between it is empty, and `serve` refuses every database until `restore --force` is run again. The old log
    leaves before the new database comes, which it would damage. It is not deleted before: without it the old
    database lacks its newest commits. A kill leaves what was there as `.NAME.replaced`.
    """
    beside = [target.with_name(target.name + ending) for ending in _BESIDE]
    with ExitStack() as undoing:
        for place in (pepper, *beside, target):
            if place.exists():
                _keep(place, stays=place == target)
                undoing.callback(_put_back, place)
            elif place not in beside:
                undoing.callback(place.unlink, missing_ok=True)
            if place == pepper:
                _write(pepper, b"")
            _sync(place.parent)
        for place in (target, pepper):
            _ready(place).replace(place)
            _sync(place.parent)
        undoing.pop_all()
    for place in (pepper, *beside, target):
        _aside(place).unlink(missing_ok=True)


def _ready(place: Path) -> Path:
    return place.with_name(f".{place.name}.restoring")


def _aside(place: Path) -> Path:
    return place.with_name(f".{place.name}.replaced")


def _keep(place: Path, *, stays: bool) -> None:
    """Keep the file aside; `stays`: in place too, where the file system has hard links."""
    kept = _aside(place)
    if stays:
        kept.unlink(missing_ok=True)
        with suppress(OSError):
            kept.hardlink_to(place)
            return
    place.replace(kept)


def _put_back(place: Path) -> None:
    try:
        _aside(place).replace(place)
        # Renaming one of two links to a file leaves both.
        _aside(place).unlink(missing_ok=True)
    except OSError as failure:
        said = f"{place} cannot be put back ({failure.strerror}); it is {_aside(place)} now"
        raise SettingsError(f"restore: failed, and {said}.") from failure


def _file_of(database: Database, folder: Path, what: str) -> Path:
    """The SQLite file. For PostgreSQL a SettingsError with the commands to run."""
    url = database.url.get_secret_value()
    file = sqlite_path(url)
    if file is not None:
        return file
    shown = shlex.quote(without_password(url, mask=None))
    dump, kept = shlex.quote(str(folder / "palimpsest.dump")), shlex.quote(str(folder / PEPPER))
    pepper = shlex.quote(str(database.pepper_file))
    if what == "backup":
        make, copy = f"pg_dump --format=custom --file={dump} --dbname={shown}", f"cp -p {pepper} {kept}"
        commands = [f"(umask 077; mkdir -p {shlex.quote(str(folder))}; {make}; {copy})"]
    else:
        commands = [
            f"pg_restore --clean --if-exists --exit-on-error --dbname={shown} {dump}",
            f"install -m 600 {kept} {pepper}",
        ]
    raise SettingsError(
        f"{what}: PostgreSQL is backed up by its own tools, with the pepper beside (the password comes from"
        f" ~/.pgpass or PGPASSWORD):\n" + "\n".join(f"    {command}" for command in commands)
    )


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, os.fdopen(_created(target), "wb") as writing:
        shutil.copyfileobj(reading, writing, _CHUNK)


def _write(target: Path, content: bytes) -> None:
    with os.fdopen(_created(target), "wb") as writing:
        writing.write(content)


def _created(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _digest(path: Path) -> str | None:
    """None where no file can be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
