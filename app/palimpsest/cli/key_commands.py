"""The commands of keys that the proxy issues, `palimpsest keys`; the module `commands` has what they do."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from palimpsest.cli.proxy_commands import AsJson

if TYPE_CHECKING:
    from palimpsest.settings.settings import Settings

keys = typer.Typer(help="Keys issued by this proxy, for access.mode: keys.", no_args_is_help=True)

Config = Annotated[Path | None, typer.Option("--config", help="Settings file; default ./palimpsest.yaml.")]
Database = Annotated[str | None, typer.Option("--database", help="sqlite:///path or postgresql://...")]
# A petabyte: larger numbers are mistakes, and far larger ones no database takes.
_MOST_BYTES = 10**15
# What `create` and `set` both take, by the fields of `KeyTerms`.
Terms: TypeAlias = Mapping[str, Any]
_TERMS: Mapping[str, Any] = {
    "expires": Annotated[
        str | None, typer.Option(help="Days such as 30d, a UTC date such as 2030-12-31, never.")
    ],
    "daily_tokens": Annotated[
        int | None, typer.Option(min=0, help="Tokens a UTC day; 0: as access.daily_tokens.")
    ],
    "daily_dollars": Annotated[
        float | None, typer.Option(min=0, help="Dollars a UTC day; 0: as access says.")
    ],
    "max_bytes": Annotated[
        int | None,
        typer.Option(min=0, max=_MOST_BYTES, help="Bytes that may be stored; 0: as access.max_bytes."),
    ],
    "retention_days": Annotated[
        int | None, typer.Option(min=0, max=36_500, help="Days that sessions are kept; 0: as retention.days.")
    ],
    "retention_bytes": Annotated[
        int | None,
        typer.Option(min=0, max=_MOST_BYTES, help="Bytes that are kept; 0: as retention.max_bytes."),
    ],
}


def _with_terms(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each of `_TERMS`, in place of its parameter `terms`."""

    def run(**given: Any) -> None:
        command(terms={name: given.pop(name) for name in _TERMS}, **given)

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _TERMS.items()
    ]
    own = inspect.signature(command, eval_str=True).parameters
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.values()]
    at = list(own).index("terms")
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature([*named[:at], *options, *named[at + 1 :]])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


@keys.command("create")
@_with_terms
def keys_create(
    terms: Terms,
    label: Annotated[str, typer.Option(help="What the key is for; shown in lists.")] = "",
    same_as: Annotated[str | None, typer.Option(help="Id of a key whose conversations it shall see.")] = None,
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once. Only its digest is stored."""
    from palimpsest.cli.commands import KeyTerms, create_key, described_key

    made = create_key(_settings(config, database), label, same_as, KeyTerms(**terms))
    row, key = asyncio.run(made)
    if as_json:
        _print_json(described_key(row) | {"key": key})
    else:
        typer.echo(key)
        typer.echo(f"id {row.id}. The key is not shown again.", err=True)


@keys.command("list")
def keys_list(database: Database = None, config: Config = None, as_json: AsJson = False) -> None:
    """List keys, newest first, revoked ones included."""
    from palimpsest.cli.commands import described_key, line_of_key, list_keys

    rows = asyncio.run(list_keys(_settings(config, database)))
    if as_json:
        _print_json([described_key(row, used) for row, used in rows])
        return
    for row, used in rows:
        typer.echo(line_of_key(row, used))


@keys.command("set")
@_with_terms
def keys_set(
    key_id: str,
    terms: Terms,
    label: Annotated[str | None, typer.Option(help="What the key is for.")] = None,
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given of a valid key, within seconds."""
    from palimpsest.cli.commands import KeyTerms, change_key, described_key, line_of_key

    row, used = asyncio.run(change_key(_settings(config, database), key_id, KeyTerms(label, **terms)))
    if as_json:
        _print_json(described_key(row, used))
    else:
        typer.echo(line_of_key(row, used))


@keys.command("revoke")
def keys_revoke(key_id: str, database: Database = None, config: Config = None) -> None:
    """Revoke a key, within seconds. Exits with 1 when there is no such valid key."""
    from palimpsest.cli.commands import revoke_key

    if not asyncio.run(revoke_key(_settings(config, database), key_id)):
        typer.echo(f"{key_id}: no such key, or revoked already.", err=True)
        raise typer.Exit(1)
    typer.echo(f"{key_id} is revoked.")


def _settings(config: Path | None, database: str | None) -> Settings:
    from palimpsest.settings.load import load_settings

    return load_settings(config, {"database.url": database})


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
