"""What a start refuses, or warns about, although every setting is valid: files, packages, processes.

Reads the files that settings name; opens no database and asks no server. What a check needs is imported where
a setting asks for it: `palimpsest config check` shall not load the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from palimpsest.core.urls import has_version_path, without_query
from palimpsest.errors import SettingsError
from palimpsest.settings.settings import Settings
from palimpsest.storage.address import postgres_driver, sqlite_path


def start_problems(settings: Settings) -> Iterator[str]:
    """A line for each thing that prevents a start: the setting, what is wrong, the remedy."""
    folder, workers = settings.compaction.daily_log_folder, settings.server.workers
    is_sqlite = sqlite_path(settings.database.url.get_secret_value()) is not None
    # One that disappears later fails no request.
    if folder is not None and not folder.is_dir():
        yield f"compaction.daily_log_folder: there is no folder {folder}; make it first."
    if workers > 1 and is_sqlite:
        yield (
            f"server.workers: {workers} processes need PostgreSQL (database.url: "
            "postgresql://user:password@host/name); on SQLite one process does all the writing."
        )
    elif workers > 1 and settings.upstream.base_url is None:
        yield (
            f"server.workers: {workers} processes need an upstream (upstream.base_url); the "
            "demo belongs to a single one."
        )
    checks: list[Callable[[], object]] = []
    if settings.summarizer.prompt_file is not None:
        from palimpsest.main.wiring import instructions_of

        checks.append(partial(instructions_of, settings.summarizer))
    if settings.upstream.ca_bundle is not None:
        from palimpsest.main.upstreams import check_authorities

        checks.append(partial(check_authorities, settings.upstream.ca_bundle))
    if not is_sqlite:
        checks.append(postgres_driver)
    if settings.telemetry.otlp_url is not None:
        from palimpsest.main.wiring import tracer_class

        checks.append(tracer_class)
    for check in checks:
        try:
            check()
        except SettingsError as refused:
            yield refused.message


def start_warnings(settings: Settings) -> Iterator[str]:
    """A line for each thing that a start warns about, as far as no server need be asked."""
    if settings.upstream.base_url is None:
        yield "upstream.base_url: none is set, so the built-in demo model answers."
    elif not has_version_path(settings.upstream.base_url):
        shown = without_query(settings.upstream.base_url)
        yield (
            f"upstream.base_url: {shown} has no version path such as /v1, which most servers need; "
            "`palimpsest doctor` asks the server."
        )
