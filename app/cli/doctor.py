"""Is everything in order? One finding for each thing that can be wrong, with the way to mend it.

Changes nothing: no file is made, nothing is migrated, nothing is sent but a question for models.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from app.cli.schema import without_password
from app.cli.windows import learned_windows, line_of
from app.core.budget.window import window_from_models_payload, window_from_name
from app.errors import PalimpsestError
from app.main.upstreams import key_of, route_options, upstream_options
from app.proxy.access.pepper import load_pepper
from app.settings.settings import Settings, configured_window, to_policy
from app.storage.migrate import schema_state, sqlite_path
from app.storage.open import bound_pepper
from app.storage.sqlite.driver import sqlite_version
from app.upstream.address import without_query
from app.upstream.client import UpstreamOptions
from app.upstream.headers import UpstreamKey
from app.upstream.version_path import RawHeaders, models_reply, versioned
from app.upstream.windows import window_from_model_data

State = Literal["ok", "warning", "failed"]
# Older ones can corrupt a WAL when two connections write or checkpoint at once (sqlite.org/wal.html).
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
    """One thing that was looked at. `remedy` is empty when it is in order."""

    name: str
    state: State
    detail: str
    remedy: str = ""


async def examine(settings: Settings) -> list[Finding]:
    """Everything that was found, in the order in which it would be mended."""
    return [
        *_versions(),
        _sqlite(settings),
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
    """One writer owns writes and checkpoints, so an old library is a risk only beside other programs."""
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
    return Finding(
        "database", "failed", f"{where}, unknown schema", "Use the version that made it, or another database."
    )


def _new_file(file: Path, where: str) -> Finding:
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return Finding("database", "ok", f"{where} does not exist yet; the first start makes it")
    remedy = "Choose another place with database.url, or let this user write there."
    return Finding("database", "failed", f"{where} does not exist, and {folder} cannot be written to", remedy)


async def _pepper(settings: Settings) -> Finding:
    """Also whether it is the one the database was made with: another finds nobody's conversations."""
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
        # A key of ours says nothing to the upstream.
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
    """Most likely the version path is missing; a few servers have no list of models."""
    if longer := await versioned(options, headers):
        return Finding(name, "failed", f"{reached}; {longer} answers", f"Set base_url to {longer}.")
    remedy = "Check the path of base_url: most servers need /v1 at its end. A few have no list of models."
    return Finding(name, "warning", reached, remedy)


def _windows(settings: Settings, payload: Any) -> Iterator[Finding]:
    """Each model's window as it will be found, and from where."""
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
    """What requests have taught of windows; what upstreams state themselves is asked for above."""
    try:
        if await schema_state(settings.database.url.get_secret_value()) != "current":
            return []
        rows = [row for row in await learned_windows(settings) if row.namespace]
    except PalimpsestError:
        # Said of the database already.
        return []
    shown = [Finding("learned window", "ok", line_of(row)) for row in rows[:_MODELS_SHOWN]]
    if len(rows) > _MODELS_SHOWN:
        shown.append(Finding("learned windows", "ok", f"all {len(rows)}: `palimpsest windows`"))
    return shown
