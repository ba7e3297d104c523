"""`palimpsest doctor`: one finding, with a remedy, for each thing that can be wrong.

Changes nothing: it creates no file, migrates nothing, and sends only requests for lists of models.
"""

from __future__ import annotations

import os
import platform
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

from palimpsest.cli.db_commands import learned_windows, line_of_window
from palimpsest.cli.start_checks import start_problems
from palimpsest.cli.terminal import MODELS_SHOWN, Finding
from palimpsest.core.urls import without_password
from palimpsest.errors import PalimpsestError
from palimpsest.proxy.server_secrets import load_pepper
from palimpsest.settings.settings import Settings
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import MISMATCHES, bound_pepper, schema_state
from palimpsest.storage.sqlite_files import has_word_index, sqlite_version

# Older versions can corrupt a WAL when two connections write or checkpoint at once (sqlite.org/wal.html).
_SAFE_SQLITE = (3, 51, 3)
# The settings that say where the files are.
_PLACES = {"database": "url", "pepper": "data_folder"}
_SHOWN_PACKAGES = ("uvicorn", "aiohttp", "httpx", "sqlalchemy", "aiosqlite", "tiktoken", "msgspec")


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """All findings as they are made, in the order in which to fix them."""
    yield Finding("palimpsest", "ok", version("palimpsest"))
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Finding("packages", "ok", ", ".join(f"{name} {version(name)}" for name in _SHOWN_PACKAGES))
    url = settings.database.url.get_secret_value()
    yield _sqlite(url)
    yield search_index_of(url, has_fts5=has_word_index())
    yield await _database(url)
    yield await _pepper(settings, url)
    # The proxy's own keys mean nothing to the upstream.
    key = "the caller's key" if settings.access.mode == "open" else "no key"
    key = "the operator's key" if settings.upstream.api_key else key
    yield Finding("access", "ok", f"{settings.access.mode}; {key} goes upstream")
    problems = [*start_problems(settings)]
    for problem in problems:
        yield Finding("settings", "failed", problem, "Change it: until then no start is possible.")
    if not problems:
        yield Finding("settings", "ok", "a start accepts them")
    # Imported here: what is found above is seen before a client is loaded.
    from palimpsest.cli.doctor_upstreams import asked_upstreams

    async for one in asked_upstreams(settings):
        yield one
    for one in await _learned_windows(settings):
        yield one


def _sqlite(url: str) -> Finding:
    """One thread owns writes and checkpoints, so an old library is a risk only beside other programs."""
    found = sqlite_version()
    if tuple(map(int, found.split("."))) >= _SAFE_SQLITE:
        return Finding("sqlite", "ok", f"{found}, WAL is safe")
    in_use = sqlite_path(url) is not None
    return Finding(
        "sqlite",
        "warning" if in_use else "ok",
        f"{found}, older than {'.'.join(map(str, _SAFE_SQLITE))}: a WAL can be corrupted by a second writer",
        "Let no other program write to the database, or install the package pysqlite3." if in_use else "",
    )


def search_index_of(url: str, *, has_fts5: bool) -> Finding:
    """Whether searches use an index; PostgreSQL always has one."""
    if has_fts5 or sqlite_path(url) is None:
        return Finding("search", "ok", "an index of words")
    detail = "this SQLite has no FTS5, or is older than 3.43, so that nothing can be served"
    return Finding("search", "failed", detail, "Install pysqlite3-binary, or use PostgreSQL.")


async def _database(url: str) -> Finding:
    where = without_password(url)
    file = sqlite_path(url)
    if file is not None and (found := _unusable("database", file, where)) is not None:
        return found
    try:
        state = await schema_state(url)
    except PalimpsestError as error:
        return Finding(
            "database", "failed", f"{where}: {error.message}", "Check database.url and the server."
        )
    if state == "current" and file is not None and file.stat().st_mode & 0o077:
        return Finding("database", "warning", f"{where} can be read by others", f"Run `chmod 600 {file}*`.")
    if state == "current":
        return Finding("database", "ok", f"{where}, schema is current")
    if state == "behind":
        return Finding("database", "failed", f"{where}, not migrated", "Run `palimpsest db migrate`.")
    return Finding("database", "failed", f"{where} cannot be used", MISMATCHES[state])


def _unusable(name: str, file: Path, where: str) -> Finding | None:
    """What is to be said of a file that is not there, or that this user cannot write; None: nothing."""
    remedy = f"Choose another place with database.{_PLACES[name]}, or run as the user of the proxy."
    try:
        folder = next(parent for parent in file.absolute().parents if parent.exists())
        is_there = file.exists()
    except OSError as error:
        return Finding(name, "failed", f"{where} cannot be looked at: {error.strerror}", remedy)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        state = "is in" if is_there else "does not exist, and is to be made in"
        return Finding(name, "failed", f"{where} {state} {folder}, which cannot be written to", remedy)
    if not is_there:
        return Finding(name, "ok", f"{where} does not exist yet; the first start makes it")
    if not os.access(file, os.R_OK | os.W_OK):
        return Finding(name, "failed", f"{where} cannot be written to", remedy)
    return None


async def _pepper(settings: Settings, url: str) -> Finding:
    """The pepper must be the one the database was made with: with another, no conversations are found."""
    file = settings.database.pepper_file
    try:
        bound = await bound_pepper(url)
    except PalimpsestError:
        # The finding on the database says so.
        bound = None
    try:
        if not file.exists() and not file.is_symlink() and bound is None:
            return _unusable("pepper", file, str(file)) or Finding("pepper", "ok", str(file))
        load_pepper(file, bound)
    except OSError as error:
        return Finding("pepper", "failed", f"{file} cannot be looked at", f"{error.strerror}.")
    except PalimpsestError as error:
        found, _, remedy = error.message.rpartition(": ")
        return Finding("pepper", "failed", found, remedy[:1].upper() + remedy[1:])
    return Finding("pepper", "ok", f"{file}, readable by its owner only")


async def _learned_windows(settings: Settings) -> list[Finding]:
    """Windows learned from requests; those that upstreams state are reported above."""
    try:
        if await schema_state(settings.database.url.get_secret_value()) != "current":
            return []
        rows = [row for row in await learned_windows(settings) if row.namespace]
    except PalimpsestError:
        # The finding on the database says so.
        return []
    shown = [Finding("learned window", "ok", line_of_window(row)) for row in rows[:MODELS_SHOWN]]
    if len(rows) > MODELS_SHOWN:
        shown.append(Finding("learned windows", "ok", f"all {len(rows)}: `palimpsest db windows`"))
    return shown
