"""What a start refuses, or warns about, although every setting is valid: files, packages, processes.

Reads the files that settings name; opens no database and asks no server. What a check needs is imported where
a setting asks for it: `palimpsest config check` shall not load the proxy.
"""

from __future__ import annotations

from collections.abc import Iterator

from palimpsest.core.urls import has_version_path, without_query
from palimpsest.errors import SettingsError
from palimpsest.settings.settings import Settings
from palimpsest.storage.address import postgres_driver, sqlite_path


def check_start(settings: Settings) -> None:
    """SettingsError with all `start_problems`. A server of several workers checks in their parent.

    What is refused here would make each replacement of a worker fail.
    """
    if problems := [*start_problems(settings)]:
        raise SettingsError("\n".join(problems))


def start_problems(settings: Settings) -> Iterator[str]:
    """A line for each thing that prevents a start: the setting, what is wrong, the remedy."""
    for check in (_check_log_folder, _check_workers, _check_prompt, _check_authorities, *_PACKAGES):
        try:
            check(settings)
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


def _check_log_folder(settings: Settings) -> None:
    """A folder that disappears later fails no request."""
    folder = settings.compaction.daily_log_folder
    if folder is not None and not folder.is_dir():
        raise SettingsError(f"compaction.daily_log_folder: there is no folder {folder}; make it first.")


def _check_workers(settings: Settings) -> None:
    """Several processes must be able to work together."""
    if settings.server.workers == 1:
        return
    if _is_sqlite(settings):
        raise SettingsError(
            f"server.workers: {settings.server.workers} processes need PostgreSQL (database.url: "
            "postgresql://user:password@host/name); on SQLite one process does all the writing."
        )
    if settings.upstream.base_url is None:
        raise SettingsError(
            f"server.workers: {settings.server.workers} processes need an upstream (upstream.base_url); the "
            "demo belongs to a single one."
        )


def _check_prompt(settings: Settings) -> None:
    if settings.summarizer.prompt_file is not None:
        from palimpsest.main.front import instructions_of

        instructions_of(settings.summarizer)


def _check_authorities(settings: Settings) -> None:
    if settings.upstream.ca_bundle is not None:
        from palimpsest.main.upstreams import check_authorities

        check_authorities(settings.upstream.ca_bundle)


def _check_database_package(settings: Settings) -> None:
    if not _is_sqlite(settings):
        postgres_driver()


def _check_traces_package(settings: Settings) -> None:
    if settings.telemetry.otlp_url is not None:
        from palimpsest.main.parts import tracer_class

        tracer_class()


def _is_sqlite(settings: Settings) -> bool:
    return sqlite_path(settings.database.url.get_secret_value()) is not None


# Extras that a setting needs.
_PACKAGES = (_check_database_package, _check_traces_package)
