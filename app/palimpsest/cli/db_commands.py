"""`palimpsest db migrate | backup | restore | copy | windows | retention`: the database, without a proxy.

All but the copy and the restore run beside a proxy, which notices forgotten windows within a minute.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palimpsest.cli.command import (
    AsJson,
    Config,
    Database,
    Json,
    command,
    configured,
    print_json,
    settings_from,
)
from palimpsest.cli.keys import opened_accounts, opened_database
from palimpsest.cli.terminal import counted, counted_rows, say, utc
from palimpsest.errors import SettingsError, StoreUnavailable

if TYPE_CHECKING:
    from palimpsest.settings.settings import Settings
    from palimpsest.storage.accounts import LearnedWindow
    from palimpsest.storage.namespaces import OldSession

db = typer.Typer(
    help="The database: its schema, backups and copies, and what is learned in it.", no_args_is_help=True
)


@db.command()
@command(configured)
async def migrate(settings: Settings) -> None:
    """Bring the database to the schema of this version; repeating it changes nothing."""
    from palimpsest.cli.schema import migrated
    from palimpsest.core.urls import without_password

    url = settings.database.url.get_secret_value()
    await migrated(url)
    say(f"{without_password(url)} is up to date.")


@db.command()
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; new, or empty.")],
    database: Database = None,
    config: Config = None,
) -> None:
    """Copy database and pepper into a folder, verified, readable by you only, beside a running server."""
    from palimpsest.cli.backups import back_up

    rows = back_up(settings_from(config, database).database, folder)
    say(f"{folder} holds {counted_rows(rows)}, and the pepper. Keep it secret.")


@db.command()
def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `db backup` made.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    database: Database = None,
    config: Config = None,
) -> None:
    """Verify a backup and put its database and pepper in place; no server may run."""
    from palimpsest.cli.backups import restore as put_back

    schema, rows = put_back(settings_from(config, database).database, folder, force=force)
    say(f"Restored {counted_rows(rows)}, and the pepper.")
    if schema == "behind":
        say("It is of an older version: run `palimpsest db migrate` before you start.")


@db.command()
@command(configured)
async def copy(
    settings: Settings,
    target: Annotated[
        str, typer.Argument(metavar="URL", help="An empty database: sqlite:///path or postgresql://...")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy the database, of stopped servers, into an empty one, and compare every row."""
    from pydantic import SecretStr, ValidationError

    from palimpsest.core.urls import without_password
    from palimpsest.settings.load import Source, explained
    from palimpsest.settings.serving import Database
    from palimpsest.storage.migrate import copy_store

    source = settings.database
    try:
        to = Database(url=SecretStr(target)).url.get_secret_value()
        rows = await copy_store(source.url.get_secret_value(), to, source.heartbeat_timeout_seconds)
    except ValidationError as error:
        given = Source("copy", lambda _: "the target", {"url": target})
        raise SettingsError(explained(error, [given])) from None
    except StoreUnavailable as failure:
        raise SettingsError(f"copy: {failure.message}. Run it again once that is mended.") from failure
    if as_json:
        print_json({"rows": rows})
        return
    say(f"{without_password(target)} has {counted_rows(rows)}: every row is as in the source.")
    say(f"The pepper {source.pepper_file} belongs to it. Start with the new address as database.url.")


async def learned_windows(settings: Settings) -> Sequence[LearnedWindow]:
    """Learned windows that have not expired, newest first."""
    from palimpsest.core.budget.window import LIFE_SECONDS

    async with opened_accounts(settings) as accounts:
        return await accounts.learned_windows(time.time() - LIFE_SECONDS)


def line_of_window(row: LearnedWindow) -> str:
    """A learned window as one line."""
    whose = f"namespace {row.namespace}" if row.namespace else "everybody"
    return f"{row.model}: {row.tokens:,} tokens, {row.source}, for {whose}, {utc(row.learned_at)}"


def _fields(row: LearnedWindow) -> Json:
    # A window that the upstream states has no namespace.
    return asdict(row) | {"namespace": row.namespace or None, "learned_at": utc(row.learned_at)}


@db.command()
@command(
    configured,
    lambda rows: [*map(line_of_window, rows)] or ["No window was learned."],
    lambda rows: [*map(_fields, rows)],
)
async def windows(
    settings: Settings,
    forget: Annotated[
        str | None, typer.Option(help="Model whose windows are forgotten, everybody's.")
    ] = None,
) -> Any:
    """List learned model windows, or forget a model's; a running server notices within a minute."""
    if forget is None:
        return await learned_windows(settings)
    async with opened_accounts(settings) as accounts:
        gone = await accounts.forget_windows(forget, None)
    say(f"{forget}: {gone} forgotten.")
    raise typer.Exit(0 if gone else 1)


async def due_sessions(
    settings: Settings, days: int | None = None, max_bytes: int | None = None
) -> Sequence[OldSession]:
    """The sessions that retention would erase now; the limits given stand for the configured ones."""
    from palimpsest.storage.namespaces import Namespaces

    kept = settings.retention
    async with opened_database(settings) as database:
        there = Namespaces(database)
        limits = await there.limits(
            kept.days if days is None else days, kept.max_bytes if max_bytes is None else max_bytes
        )
        return await there.due(limits, time.time())


@db.command()
@command(configured)
async def retention(
    settings: Settings,
    days: Annotated[int | None, typer.Option(min=0, help="Instead of retention.days.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=0, help="Instead of retention.max_bytes.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions that a server would erase now for their age or size. Erases nothing itself."""
    found = [
        {
            "namespace": old.namespace,
            "session": old.session,
            "name": old.external_id,
            "updated_at": utc(old.updated_at),
        }
        for old in await due_sessions(settings, days, max_bytes)
    ]
    if as_json:
        print_json(found)
        return
    for row in found:
        say("  ".join(filter(None, (row["updated_at"], row["session"], row["name"]))))
    say(f"{counted(len(found), 'session')} would be erased.", err=True)
