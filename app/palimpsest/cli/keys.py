"""`palimpsest keys`: the keys that the proxy issues (rule 26), read and written in the database.

They run beside a proxy, which notices changed keys within seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from palimpsest.cli.command import AsJson, command, configured, print_json
from palimpsest.cli.terminal import say, utc
from palimpsest.core.utc import DAY, day_of
from palimpsest.errors import SettingsError

if TYPE_CHECKING:
    from palimpsest.settings.settings import Settings
    from palimpsest.storage.accounts import Accounts, KeyRow
    from palimpsest.storage.database import SqlDatabase

keys = typer.Typer(help="Keys issued by this proxy, for access.mode: keys.", no_args_is_help=True)

# Identifies the key to people and to secret scanners.
_PREFIX = "pk-palimpsest-"
# 256 random bits: the digest needs no salt.
_KEY_BYTES = 32
# A petabyte: larger numbers are mistakes, and far larger ones no database takes.
_MOST_BYTES = 10**15
_SHOWN = "`palimpsest keys list` shows them."
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


# Shown as ISO 8601.
_TIMES = ("created_at", "revoked_at", "expires_at", "last_used_at")


class ListedKey(NamedTuple):
    """A key, its tokens of a day, or those of `access`, and how many count against them today.

    `used` is None without a limit. Keys without a limit of their own share what their namespace has used.
    """

    row: KeyRow
    daily_tokens: int = 0
    used: int | None = None


@asynccontextmanager
async def opened_database(settings: Settings) -> AsyncIterator[SqlDatabase]:
    """The configured database."""
    from palimpsest.storage.migrate import open_database

    how = settings.database
    database = await open_database(how.url.get_secret_value(), how.synchronous, how.store_deadline_seconds)
    try:
        yield database
    finally:
        await database.close()


def accounts_of(database: SqlDatabase) -> Accounts:
    """Its keys and what they have used, and learned windows. Nothing is added that needs an id."""
    from palimpsest.storage.accounts import Accounts
    from palimpsest.storage.database import Recent

    return Accounts(database, str, Recent())


@asynccontextmanager
async def opened_accounts(settings: Settings) -> AsyncIterator[Accounts]:
    """As `accounts_of`, of the configured database."""
    async with opened_database(settings) as database:
        yield accounts_of(database)


async def create_key(
    settings: Settings,
    label: str,
    same_as: str | None = None,
    *,
    expires: str | None = None,
    **limits: int | None,
) -> tuple[KeyRow, str]:
    """A new key and its row. `same_as` is the id of a key with whose namespace it works; None: a new one.

    The other terms are as in `change_key`.
    """
    from secrets import token_urlsafe

    from uuid_utils import uuid4, uuid7

    from palimpsest.core.wire.credentials import key_digest
    from palimpsest.storage.accounts import KeyRow

    async with opened_accounts(settings) as accounts:
        namespace = str(uuid4())
        if same_as is not None:
            known = await _row_of(accounts, same_as)
            if known is None:
                raise SettingsError(f"command line: --same-as {same_as}: there is no such key; {_SHOWN}")
            namespace = known.namespace
        key = _PREFIX + token_urlsafe(_KEY_BYTES)
        row = KeyRow(str(uuid7()), label, namespace, time.time())
        row = _changed(row, None, expires, **limits)
        await accounts.add_key(row, key_digest(key))
        return row, key


async def change_key(
    settings: Settings,
    key_id: str,
    *,
    label: str | None = None,
    expires: str | None = None,
    **limits: int | None,
) -> ListedKey | None:
    """Change what is not None. None, and nothing changed, when the key does not exist or is revoked.

    `expires` is a number of days ("30d"), a UTC date or time in ISO 8601, or "never". Limits (`daily_tokens`,
    `retention_days`, `retention_bytes`) of 0 are taken back: those of `access` and `retention` hold then.
    """
    async with opened_accounts(settings) as accounts:
        row = await _row_of(accounts, key_id)
        if row is None or not await accounts.change_key(row := _changed(row, label, expires, **limits)):
            return None
        return _listed(settings, row, await accounts.used_on(day_of(time.time())))


async def revoke_key(settings: Settings, key_id: str) -> bool:
    """False when the key does not exist or is revoked already."""
    async with opened_accounts(settings) as accounts:
        return await accounts.revoke_key(key_id, time.time())


async def _row_of(accounts: Accounts, key_id: str) -> KeyRow | None:
    return next((row for row in await accounts.keys() if row.id == key_id), None)


def _changed(row: KeyRow, label: str | None, expires: str | None, **limits: int | None) -> KeyRow:
    given: dict[str, Any] = {name: each or None for name, each in limits.items() if each is not None}
    if label is not None:
        given["label"] = label
    if expires is not None:
        given["expires_at"] = _expiry(expires)
    return replace(row, **given)


def _expiry(text: str) -> float | None:
    """UTC seconds; None for "never". SettingsError for what is no time, or none of the future."""
    if text == "never":
        return None
    now = time.time()
    try:
        if text.endswith("d"):
            at = now + int(text[:-1]) * DAY
        else:
            given = datetime.fromisoformat(text)
            at = (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
        datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f"command line: --expires {text}: write a number of days such as 30d, a UTC date such as"
            " 2030-12-31, or never."
        ) from error
    if at <= now:
        raise SettingsError(f"command line: --expires {text} is past; `palimpsest keys revoke` ends a key.")
    return at


def _listed(settings: Settings, row: KeyRow, used: Mapping[str, int]) -> ListedKey:
    from palimpsest.proxy.quotas import quota_of

    quota = quota_of(row.namespace, settings.access.daily_tokens, row)
    return ListedKey(row) if quota is None else ListedKey(row, quota.tokens, used.get(quota.account, 0))


def _fields(key: ListedKey) -> dict[str, Any]:
    used = None if key.used is None else {"tokens": key.used}
    return {**asdict(key.row), **{name: utc(getattr(key.row, name)) for name in _TIMES}, "used_today": used}


def _line(key: ListedKey) -> str:
    row, daily_tokens, used = key
    state = "valid"
    if row.revoked_at is not None:
        state = f"revoked {utc(row.revoked_at)}"
    elif row.expires_at is not None:
        state = f"{'expired' if row.expires_at <= time.time() else 'until'} {utc(row.expires_at)}"
    parts = [row.id, str(utc(row.created_at)), state, f"used {utc(row.last_used_at) or 'never'}"]
    if used is not None:
        parts.append(f"{used:,} of {daily_tokens:,} tokens today")
    if row.retention_days or row.retention_bytes:
        kept = (row.retention_days, "days"), (row.retention_bytes, "bytes")
        parts.append("keeps " + ", ".join(f"{limit:,} {unit}" for limit, unit in kept if limit))
    return "  ".join([*parts, row.label]).rstrip()


@keys.command("create")
@command(configured)
async def keys_create(
    settings: Settings,
    label: Annotated[str, typer.Option(help="What the key is for; shown in lists.")] = "",
    same_as: Annotated[str | None, typer.Option(help="Id of a key whose conversations it shall see.")] = None,
    expires: Expires = None,
    daily_tokens: DailyTokens = None,
    retention_days: RetentionDays = None,
    retention_bytes: RetentionBytes = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once. Only its digest is stored."""
    if sys.stdout is None:
        raise SettingsError("command line: standard output is closed, and a key is shown only once.")
    limits = {
        "daily_tokens": daily_tokens,
        "retention_days": retention_days,
        "retention_bytes": retention_bytes,
    }
    row, key = await create_key(settings, label, same_as, expires=expires, **limits)
    try:
        if as_json:
            print_json(_fields(ListedKey(row)) | {"key": key})
        else:
            say(key)
    except OSError:
        # Nobody has seen it.
        await revoke_key(settings, row.id)
        raise
    if not as_json:
        say(f"id {row.id}. The key is not shown again.", err=True)


@keys.command("list")
@command(
    configured,
    lambda rows: [*map(_line, rows)] or ["There are no keys; `palimpsest keys create` makes one."],
    lambda rows: [*map(_fields, rows)],
)
async def keys_list(settings: Settings) -> Any:
    """List keys, newest first, revoked ones included."""
    async with opened_accounts(settings) as accounts:
        used = await accounts.used_on(day_of(time.time()))
        return [_listed(settings, row, used) for row in await accounts.keys()]


@keys.command("set")
@command(configured, lambda key: [_line(key)], _fields)
async def keys_set(
    settings: Settings,
    key_id: str,
    label: Annotated[str | None, typer.Option(help="What the key is for.")] = None,
    expires: Expires = None,
    daily_tokens: DailyTokens = None,
    retention_days: RetentionDays = None,
    retention_bytes: RetentionBytes = None,
) -> Any:
    """Change what is given of a valid key, within seconds. Exits with 1 when there is no such key."""
    limits = {
        "daily_tokens": daily_tokens,
        "retention_days": retention_days,
        "retention_bytes": retention_bytes,
    }
    return await change_key(settings, key_id, label=label, expires=expires, **limits) or _unknown(key_id)


@keys.command("revoke")
@command(configured)
async def keys_revoke(settings: Settings, key_id: str) -> None:
    """Revoke a key, within seconds. Exits with 1 when there is no such valid key."""
    if not await revoke_key(settings, key_id):
        _unknown(key_id)
    say(f"{key_id} is revoked.")


def _unknown(key_id: str) -> NoReturn:
    say(f"{key_id}: no such key, or revoked already; {_SHOWN}", err=True)
    raise typer.Exit(1)
