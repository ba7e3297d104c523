"""The commands of keys that the proxy issues, `palimpsest keys`; the module `commands` has what they do."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from palimpsest.cli.config_commands import Config, Database, settings_from
from palimpsest.cli.proxy_commands import AsJson, awaited, print_json
from palimpsest.cli.terminal import say
from palimpsest.errors import SettingsError

keys = typer.Typer(help="Keys issued by this proxy, for access.mode: keys.", no_args_is_help=True)

# A petabyte: larger numbers are mistakes, and far larger ones no database takes.
_MOST_BYTES = 10**15
_NONE = ("There are no keys; `palimpsest keys create` makes one.",)
Expires = Annotated[str | None, typer.Option(help="Days such as 30d, a UTC date such as 2030-12-31, never.")]
DailyTokens = Annotated[
    int | None, typer.Option(min=0, max=10**12, help="Tokens a UTC day; 0: as access.daily_tokens.")
]
RetentionDays = Annotated[
    int | None, typer.Option(min=0, max=36_500, help="Days that sessions are kept; 0: as retention.days.")
]
RetentionBytes = Annotated[
    int | None,
    typer.Option(min=0, max=_MOST_BYTES, help="Bytes that are kept; 0: as retention.max_bytes."),
]


@keys.command("create")
def keys_create(
    label: Annotated[str, typer.Option(help="What the key is for; shown in lists.")] = "",
    same_as: Annotated[str | None, typer.Option(help="Id of a key whose conversations it shall see.")] = None,
    expires: Expires = None,
    daily_tokens: DailyTokens = None,
    retention_days: RetentionDays = None,
    retention_bytes: RetentionBytes = None,
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once. Only its digest is stored."""
    from palimpsest.cli.commands import KeyTerms, create_key, described_key, revoke_key

    if sys.stdout is None:
        raise SettingsError("command line: standard output is closed, and a key is shown only once.")
    settings = settings_from(config, database)
    terms = KeyTerms(None, expires, daily_tokens, retention_days, retention_bytes)
    row, key = awaited(create_key(settings, label, same_as, terms))
    try:
        if as_json:
            print_json(described_key(row) | {"key": key})
        else:
            say(key)
    except OSError:
        # Nobody has seen it.
        awaited(revoke_key(settings, row.id))
        raise
    if not as_json:
        say(f"id {row.id}. The key is not shown again.", err=True)


@keys.command("list")
def keys_list(database: Database = None, config: Config = None, as_json: AsJson = False) -> None:
    """List keys, newest first, revoked ones included."""
    from palimpsest.cli.commands import described_key, line_of_key, list_keys

    rows = awaited(list_keys(settings_from(config, database)))
    if as_json:
        print_json([described_key(key.row, key.used) for key in rows])
        return
    for line in [line_of_key(key) for key in rows] or _NONE:
        say(line)


@keys.command("set")
def keys_set(
    key_id: str,
    label: Annotated[str | None, typer.Option(help="What the key is for.")] = None,
    expires: Expires = None,
    daily_tokens: DailyTokens = None,
    retention_days: RetentionDays = None,
    retention_bytes: RetentionBytes = None,
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given of a valid key, within seconds. Exits with 1 when there is no such key."""
    from palimpsest.cli.commands import KeyTerms, change_key, described_key, line_of_key

    terms = KeyTerms(label, expires, daily_tokens, retention_days, retention_bytes)
    key = awaited(change_key(settings_from(config, database), key_id, terms))
    if key is None:
        _unknown(key_id)
    if as_json:
        print_json(described_key(key.row, key.used))
    else:
        say(line_of_key(key))


@keys.command("revoke")
def keys_revoke(key_id: str, database: Database = None, config: Config = None) -> None:
    """Revoke a key, within seconds. Exits with 1 when there is no such valid key."""
    from palimpsest.cli.commands import revoke_key

    if not awaited(revoke_key(settings_from(config, database), key_id)):
        _unknown(key_id)
    say(f"{key_id} is revoked.")


def _unknown(key_id: str) -> NoReturn:
    say(f"{key_id}: no such key, or revoked already; `palimpsest keys list` shows them.", err=True)
    raise typer.Exit(1)
