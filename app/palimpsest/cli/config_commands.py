"""`palimpsest config show | schema | check`, and the options by which commands find the configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.cli.proxy_commands import AsJson, print_json
from palimpsest.cli.terminal import say
from palimpsest.errors import SettingsError

if TYPE_CHECKING:
    from palimpsest.settings.settings import Settings

Config = Annotated[Path | None, typer.Option("--config", help="Settings file; default ./palimpsest.yaml.")]
Database = Annotated[str | None, typer.Option("--database", help="sqlite:///path or postgresql://...")]
UpstreamUrl = Annotated[
    str | None, typer.Option("--upstream", help="Base URL of the OpenAI-compatible server.")
]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")]
WindowTokens = Annotated[int | None, typer.Option("--window-tokens", help="Window of models without one.")]
Workers = Annotated[int | None, typer.Option("--workers", help="Processes that answer; needs PostgreSQL.")]

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
    from palimpsest.cli.configuration import effective
    from palimpsest.settings.load import sources_of
    from palimpsest.settings.settings import DEFAULT

    found = effective(sources_of(config, {"database.url": database, "upstream.base_url": upstream}))
    shown = [one for one in found if everything or one.source != DEFAULT]
    if as_json:
        print_json([one._asdict() for one in shown])
        return
    for one in shown:
        say(f"{one.key}: {json.dumps(one.value, ensure_ascii=False)}  # {one.source}")
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
    from palimpsest.cli.configuration import checked, fields_of, lines_of

    options = serve_options(host, port, upstream, database, window_tokens, workers)
    found = checked(file, options)
    if as_json:
        print_json(fields_of(found))
        raise typer.Exit(2 if found.problems else 0)
    for warning in found.warnings:
        say(f"warning: {warning}", err=True)
    if found.problems:
        raise SettingsError("\n".join(found.problems))
    for line in lines_of(found):
        say(line)


def settings_from(config: Path | None, database: str | None, upstream: str | None = None) -> Settings:
    """The settings of a command with these options. SettingsError."""
    from palimpsest.settings.load import load_settings

    return load_settings(config, {"database.url": database, "upstream.base_url": upstream})


def serve_options(
    host: str | None,
    port: int | None,
    upstream: str | None,
    database: str | None,
    window_tokens: int | None,
    workers: int | None,
) -> dict[str, str | int | None]:
    """The options of `serve` by the settings that they set."""
    return {
        "server.host": host,
        "server.port": port,
        "upstream.base_url": upstream,
        "database.url": database,
        "window.window_tokens": window_tokens,
        "server.workers": workers,
    }
