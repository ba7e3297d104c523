"""`palimpsest doctor`: one finding, with a remedy, for each thing that can be wrong.

Changes nothing: it creates no file, migrates nothing, and sends only requests for lists of models.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from palimpsest.cli.commands import learned_windows, line_of
from palimpsest.core.budget.window import window_from_models_payload, window_from_name
from palimpsest.core.urls import without_password, without_query
from palimpsest.errors import PalimpsestError
from palimpsest.main.upstreams import key_of, route_options, upstream_options
from palimpsest.proxy.access import load_pepper
from palimpsest.settings.settings import Settings, configured_window, to_policy
from palimpsest.storage.migrate import MISMATCHES, schema_state, sqlite_path
from palimpsest.storage.sqlite.driver import has_word_index, sqlite_version
from palimpsest.storage.store import bound_pepper
from palimpsest.upstream.address import RawHeaders, models_reply, versioned
from palimpsest.upstream.client import UpstreamOptions
from palimpsest.upstream.headers import UpstreamKey
from palimpsest.upstream.models import window_from_model_data

State = Literal["ok", "warning", "failed"]
# Older versions can corrupt a WAL when two connections write or checkpoint at once (sqlite.org/wal.html).
_SAFE_SQLITE = (3, 51, 3)
# Enough to see whether windows are found; some servers list hundreds of models.
_MODELS_SHOWN = 8
_REACHING = (
    "Is the server up, and are host and port of base_url right? Behind a corporate proxy, look at"
    " upstream.proxy_url and upstream.ca_bundle."
)
_SHOWN_PACKAGES = ("uvicorn", "aiohttp", "httpx", "sqlalchemy", "aiosqlite", "tiktoken", "msgspec")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy` is empty when it is in order."""

    name: str
    state: State
    detail: str
    remedy: str = ""


async def examine(settings: Settings) -> list[Finding]:
    """All findings, in the order in which to fix them."""
    return [
        *_versions(),
        _sqlite(settings),
        search_index_of(settings.database.url.get_secret_value(), has_fts5=has_word_index()),
        await _database(settings),
        await _pepper(settings),
        _access(settings),
        *await _upstreams(settings),
        *await _learned_windows(settings),
    ]


def is_healthy(findings: list[Finding]) -> bool:
    """True when nothing failed; warnings do not count."""
    return all(finding.state != "failed" for finding in findings)


def _versions() -> Iterator[Finding]:
    yield Finding("palimpsest", "ok", version("palimpsest"))
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Finding("packages", "ok", ", ".join(f"{name} {version(name)}" for name in _SHOWN_PACKAGES))


def _sqlite(settings: Settings) -> Finding:
    """One thread owns writes and checkpoints, so an old library is a risk only beside other programs."""
    found = sqlite_version()
    if tuple(map(int, found.split("."))) >= _SAFE_SQLITE:
        return Finding("sqlite", "ok", f"{found}, WAL is safe")
    in_use = sqlite_path(settings.database.url.get_secret_value()) is not None
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
    detail = (
        "no index: this SQLite has no FTS5, or is older than 3.43; a search reads the newest 5,000 messages"
    )
    return Finding("search", "warning", detail, "Install the package pysqlite3, then `palimpsest migrate`.")


async def _database(settings: Settings) -> Finding:
    url = settings.database.url.get_secret_value()
    where = without_password(url)
    file = sqlite_path(url)
    if file is not None and not file.exists():
        return _new_file(file, where)
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
        return Finding("database", "failed", f"{where}, not migrated", "Run `palimpsest migrate`.")
    return Finding("database", "failed", f"{where} cannot be used", MISMATCHES[state])


def _new_file(file: Path, where: str) -> Finding:
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return Finding("database", "ok", f"{where} does not exist yet; the first start makes it")
    remedy = "Choose another place with database.url, or let this user write there."
    return Finding("database", "failed", f"{where} does not exist, and {folder} cannot be written to", remedy)


async def _pepper(settings: Settings) -> Finding:
    """The pepper must be the one the database was made with: with another, no conversations are found."""
    file = settings.database.pepper_file
    url = settings.database.url.get_secret_value()
    try:
        bound = await bound_pepper(url) if await schema_state(url) == "current" else None
        if not file.exists() and bound is None:
            return Finding("pepper", "ok", f"{file} does not exist yet; the first start makes it")
        fits = file.exists() and bound in (None, load_pepper(file).fingerprint)
    except PalimpsestError as error:
        return Finding("pepper", "failed", error.message, "See the message.")
    if not fits:
        remedy = "Restore that file from the backup that belongs to the database."
        return Finding("pepper", "failed", f"{file} is not the one the database was made with", remedy)
    return Finding("pepper", "ok", f"{file}, readable by its owner only")


def _access(settings: Settings) -> Finding:
    if settings.upstream.api_key:
        key = "the operator's key"
    else:
        # The proxy's own keys mean nothing to the upstream.
        key = "the caller's key" if settings.access.mode == "open" else "no key"
    return Finding("access", "ok", f"{settings.access.mode}; {key} goes upstream")


async def _upstreams(settings: Settings) -> list[Finding]:
    """The upstream with the windows it states, then the servers of the routes."""
    given = settings.upstream
    if given.base_url is None:
        found, payload = Finding("upstream", "ok", "none set: the built-in demo answers"), None
    else:
        key = key_of(given.api_key, given.key_header)
        found, payload = await _reached("upstream", upstream_options(settings), key)
    routes = [
        await _reached(
            f"route {route.match}", route_options(settings, route), key_of(route.api_key, route.key_header)
        )
        for route in settings.routes
    ]
    windows = _windows(settings, payload) if given.base_url and found.state == "ok" else ()
    return [found, *windows, *(finding for finding, _ in routes)]


async def _reached(name: str, options: UpstreamOptions, key: UpstreamKey | None) -> tuple[Finding, Any]:
    """Whether a server answers, and its list of models."""
    address = without_query(options.base_url)
    try:
        headers = [key.header] if key else []
        said = await models_reply(options, headers, options.connect_seconds + 10)
    except PalimpsestError as error:
        return Finding(name, "failed", f"{address}: {error.message}", _REACHING), None
    except TimeoutError:
        return Finding(name, "failed", f"{address}: no answer", "Is the server up?"), None
    except OSError:
        remedy = "upstream.ca_bundle names a PEM file of authorities."
        return Finding(name, "failed", f"{options.ca_file} cannot be read as one", remedy), None
    status, payload = said.status, said.json()
    reached = f"{address} answers GET /models with {status}"
    if status == 404:
        return await _not_found(name, reached, options, headers), None
    if status in (401, 403) and key is None:
        return Finding(name, "ok", f"{reached}: it wants a caller's key"), None
    if status >= 500:
        return Finding(name, "failed", reached, "Look at the upstream's own log."), None
    return Finding(name, "ok", reached), payload


async def _not_found(name: str, reached: str, options: UpstreamOptions, headers: RawHeaders) -> Finding:
    """A 404 most likely means a missing version path; a few servers have no list of models."""
    if longer := await versioned(options, headers):
        return Finding(name, "failed", f"{reached}; {longer} answers", f"Set base_url to {longer}.")
    remedy = "Check the path of base_url: most servers need /v1 at its end. A few have no list of models."
    return Finding(name, "warning", reached, remedy)


def _windows(settings: Settings, payload: Any) -> Iterator[Finding]:
    """Each model's window, and its source."""
    named = [entry.match for entry in settings.models if not set("*?[") & set(entry.match)]
    listed = payload.get("data") if isinstance(payload, Mapping) else None
    ids = [m.get("id") for m in listed if isinstance(m, Mapping)] if isinstance(listed, list) else []
    models = list(dict.fromkeys([*named, *(name for name in ids if isinstance(name, str))]))
    for model in models[:_MODELS_SHOWN]:
        tokens, source = _window(settings, payload, model)
        yield Finding(f"window of {model}", "ok", f"{tokens:,} tokens, from {source}")
    if len(models) > _MODELS_SHOWN:
        yield Finding("windows", "ok", f"{len(models) - _MODELS_SHOWN} more models are not shown")


def _window(settings: Settings, payload: Any, model: str) -> tuple[int, str]:
    sources: tuple[tuple[str, Callable[[], int | None]], ...] = (
        ("the settings", lambda: configured_window(settings, model)),
        ("the upstream", lambda: window_from_models_payload(payload, model)),
        ("published model data", lambda: window_from_model_data(model)),
        ("the model's name", lambda: window_from_name(model)),
    )
    found = ((tokens, source) for source, ask in sources if (tokens := ask()) is not None)
    return next(found, (to_policy(settings, model).assumed_window_tokens, "the default"))


async def _learned_windows(settings: Settings) -> list[Finding]:
    """Windows learned from requests; those that upstreams state are reported above."""
    try:
        if await schema_state(settings.database.url.get_secret_value()) != "current":
            return []
        rows = [row for row in await learned_windows(settings) if row.namespace]
    except PalimpsestError:
        # The finding on the database says so.
        return []
    shown = [Finding("learned window", "ok", line_of(row)) for row in rows[:_MODELS_SHOWN]]
    if len(rows) > _MODELS_SHOWN:
        shown.append(Finding("learned windows", "ok", f"all {len(rows)}: `palimpsest windows`"))
    return shown
