"""`palimpsest db migrate | backup | restore | copy | windows | retention`: the database, without a proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palimpsest.cli.config_commands import Config, Database, settings_from
from palimpsest.cli.proxy_commands import AsJson, awaited, print_json
from palimpsest.cli.terminal import counted, say

db = typer.Typer(
    help="The database: its schema, backups and copies, and what is learned in it.", no_args_is_help=True
)


@db.command()
def migrate(database: Database = None, config: Config = None) -> None:
    """Bring the database to the schema of this version; repeating it changes nothing."""
    from palimpsest.cli.schema import migrated
    from palimpsest.core.urls import without_password

    url = settings_from(config, database).database.url.get_secret_value()
    awaited(migrated(url))
    say(f"{without_password(url)} is up to date.")


@db.command()
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; new, or empty.")],
    database: Database = None,
    config: Config = None,
) -> None:
    """Copy database and pepper into a folder, verified, readable by you only, beside a running server."""
    from palimpsest.cli.backups import back_up

    made = back_up(settings_from(config, database).database, folder)
    say(f"{made.folder} holds {made.described}, and the pepper. Keep it secret.")


@db.command()
def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `db backup` made.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    database: Database = None,
    config: Config = None,
) -> None:
    """Verify a backup and put its database and pepper in place; no server may run."""
    from palimpsest.cli.backups import restore as put_back

    put = put_back(settings_from(config, database).database, folder, force=force)
    say(f"Restored {put.described}, and the pepper.")
    if put.schema == "behind":
        say("It is of an older version: run `palimpsest db migrate` before you start.")


@db.command()
def copy(
    target: Annotated[
        str, typer.Argument(metavar="URL", help="An empty database: sqlite:///path or postgresql://...")
    ],
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Copy the database, of stopped servers, into an empty one, and compare every row."""
    from palimpsest.cli.commands import copied, lines_of_copy

    source = settings_from(config, database).database
    rows = awaited(copied(source, target))
    if as_json:
        print_json({"rows": rows})
        return
    for line in lines_of_copy(rows, source, target):
        say(line)


@db.command()
def windows(
    forget: Annotated[
        str | None, typer.Option(help="Model whose windows are forgotten, everybody's.")
    ] = None,
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List learned model windows, or forget a model's; a running server notices within a minute."""
    from palimpsest.cli.commands import described_window, forget_windows, learned_windows, line_of

    settings = settings_from(config, database)
    if forget is not None:
        gone = awaited(forget_windows(settings, forget))
        say(f"{forget}: {gone} forgotten.")
        raise typer.Exit(0 if gone else 1)
    rows = awaited(learned_windows(settings))
    if as_json:
        print_json([described_window(row) for row in rows])
        return
    for line in [line_of(row) for row in rows] or ("No window was learned.",):
        say(line)


@db.command()
def retention(
    days: Annotated[int | None, typer.Option(min=0, help="Instead of retention.days.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=0, help="Instead of retention.max_bytes.")] = None,
    database: Database = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions that a server would erase now for their age or size. Erases nothing itself."""
    from palimpsest.cli.commands import described_session, due_sessions, retention_limits

    settings = settings_from(config, database)
    found = awaited(due_sessions(settings, retention_limits(settings, days, max_bytes)))
    if as_json:
        print_json([described_session(old) for old in found])
        return
    for row in map(described_session, found):
        say("  ".join(filter(None, (row["updated_at"], row["session"], row["name"]))))
    say(f"{counted(len(found), 'session')} would be erased.", err=True)
