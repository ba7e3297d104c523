"""`palimpsest config`: the values that a start would use, where each comes from, and what it refuses.

Opens no database and asks no server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from palimpsest.cli.command import AsJson, Config, Database, UpstreamUrl, print_json, settings_from
from palimpsest.cli.terminal import say
from palimpsest.errors import SettingsError

Host = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")]
WindowTokens = Annotated[int | None, typer.Option("--window-tokens", help="Window of models without one.")]
Workers = Annotated[int | None, typer.Option("--workers", help="Processes that answer; needs PostgreSQL.")]

# What the options of `serve` set, in their order.
_SERVE_KEYS = (
    "server.host",
    "server.port",
    "upstream.base_url",
    "database.url",
    "window.window_tokens",
    "server.workers",
)
config = typer.Typer(
    help="What a start would use, whether it would start, and the schema of its file.", no_args_is_help=True
)


@config.command()
def show(
    everything: Annotated[bool, typer.Option("--all", help="Defaults, too.")] = False,
    upstream: UpstreamUrl = None,
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print the settings that a start would use, each with its source; secrets are masked."""
    from palimpsest.core.urls import without_password, without_query
    from palimpsest.settings.fields import value_at
    from palimpsest.settings.settings import DEFAULT, known_keys

    settings = settings_from(config, database, upstream)
    values = settings.model_dump(mode="json")
    # Of entries of lists only what is set: their defaults are those of the section they stand for.
    for name in ("models", "routes"):
        values[name] = [
            entry.model_dump(mode="json", exclude_unset=True) for entry in getattr(settings, name)
        ]
    values["database"]["url"] = without_password(settings.database.url.get_secret_value())
    # Some servers take their key in the query.
    for there in (values["upstream"], *values["routes"]):
        there["base_url"] = there["base_url"] and without_query(there["base_url"])
    sources = {key: settings.source_of(key) for key in known_keys()}
    shown = [
        {"key": key, "value": value_at(values, key), "source": source}
        for key, source in sources.items()
        if everything or source != DEFAULT
    ]
    if as_json:
        print_json(shown)
        return
    for one in shown:
        say(f"{one['key']}: {json.dumps(one['value'], ensure_ascii=False)}  # {one['source']}")
    if not shown:
        say("Nothing is set: every value is its default. `--all` prints them.", err=True)


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    from palimpsest.settings.reference import schema

    say(schema(), nl=False)


@config.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="Settings file; default ./palimpsest.yaml.")] = None,
    host: Host = None,
    port: Port = None,
    upstream: UpstreamUrl = None,
    database: Database = None,
    window_tokens: WindowTokens = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Read the configuration as `serve` would, and say what is set where, or everything that is wrong.

    Opens no database and asks no server. Exits with 2 when a start would be refused.
    """
    from palimpsest.cli.start_checks import start_problems, start_warnings
    from palimpsest.settings.fields import value_at
    from palimpsest.settings.load import settings_of, sources_of
    from palimpsest.settings.settings import known_keys

    warnings, found = list[str](), list[dict[str, Any]]()
    try:
        sources = sources_of(file, serve_options(host, port, upstream, database, window_tokens, workers))
        settings = settings_of(sources)
        problems, warnings = [*start_problems(settings)], [*start_warnings(settings)]
    except SettingsError as refused:
        sources, problems = [], refused.message.splitlines()
    # By source, the strongest first; a file that was read and sets nothing is named, too.
    used: dict[str, str] = {}
    for source in sources:
        keys = [key for key in known_keys() if value_at(source.tree, key) is not None]
        there = [{"key": key, "spelt": source.spelt(key), "instead": used.get(key)} for key in keys]
        if there or Path(source.name).is_file():
            found.append({"source": source.name, "settings": there})
        used = {key: source.place_of(key) for key in keys} | used
    if as_json:
        print_json({"ok": not problems, "sources": found, "warnings": warnings, "problems": problems})
        raise typer.Exit(2 if problems else 0)
    for warning in warnings:
        say(f"warning: {warning}", err=True)
    if problems:
        raise SettingsError("\n".join(problems))
    named = ", ".join(each["source"] for each in found)
    say(f"ok: {named or 'nothing is set, every value is its default'}")
    for each in found:
        say(f"{each['source']}:" if each["settings"] else f"{each['source']}: sets nothing")
        for one in each["settings"]:
            say(f"  {one['spelt']}" + (f"  # not used: {one['instead']}" if one["instead"] else ""))


def serve_options(*given: str | int | None) -> dict[str, str | int | None]:
    """The options of `serve` by the settings that they set."""
    return dict(zip(_SERVE_KEYS, given, strict=True))
