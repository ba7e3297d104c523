"""Commands on the database: keys (rule 26), learned windows, what is due to be erased; and its copy.

All but the copy run beside a proxy, which notices changed keys within seconds, forgotten windows within a
minute.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import uuid_utils
from pydantic import SecretStr, ValidationError

from palimpsest.cli.terminal import counted_rows
from palimpsest.core.budget.quota import quota_of
from palimpsest.core.budget.window import LIFE_SECONDS
from palimpsest.core.urls import without_password
from palimpsest.core.utc import DAY, day_of
from palimpsest.core.wire.credentials import key_digest
from palimpsest.errors import SettingsError, StoreUnavailable
from palimpsest.settings.load import Source, explained
from palimpsest.settings.serving import Database
from palimpsest.settings.settings import Settings
from palimpsest.storage.accounts import Accounts, KeyRow, LearnedWindow, ProvenNamespaces
from palimpsest.storage.database import SqlDatabase
from palimpsest.storage.opening import open_database
from palimpsest.storage.retention import (
    NamespaceLimits,
    OldSession,
    OldSessions,
    RetentionLimits,
    due,
    own_limits,
)

# Identifies the key to people and to secret scanners.
_PREFIX = "pk-palimpsest-"
# 256 random bits: the digest needs no salt.
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """What an operator sets for a key; None: as it was, or the default.

    `expires` is a number of days ("30d"), a UTC date or time in ISO 8601, or "never". Limits of 0 are taken
    back: those of `access` and `retention` hold then.
    """

    label: str | None = None
    expires: str | None = None
    daily_tokens: int | None = None
    retention_days: int | None = None
    retention_bytes: int | None = None


class ListedKey(NamedTuple):
    """A key, its tokens of a day, or those of `access`, and how many count against them today.

    `used` is None without a limit. Keys without a limit of their own share what their namespace has used.
    """

    row: KeyRow
    daily_tokens: int = 0
    used: int | None = None


_NO_KEY = "there is no such key; `palimpsest keys list` shows them."
# The limits of a key, which 0 takes back.
_LIMITS = ("daily_tokens", "retention_days", "retention_bytes")


async def create_key(
    settings: Settings, label: str, same_as: str | None, terms: KeyTerms | None = None
) -> tuple[KeyRow, str]:
    """A new key and its row. `same_as` is the id of a key with whose namespace it works; None: a new one."""
    async with _accounts(settings) as accounts:
        now, namespace = time.time(), str(uuid_utils.uuid4())
        if same_as is not None:
            known = await _row_of(accounts, same_as)
            if known is None:
                raise SettingsError(f"command line: --same-as {same_as}: {_NO_KEY}")
            namespace = known.namespace
        key = _PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        row = _under(terms or KeyTerms(), KeyRow(str(uuid_utils.uuid7()), label, namespace, now), now)
        await accounts.add_key(row, key_digest(key))
        return row, key


async def change_key(settings: Settings, key_id: str, terms: KeyTerms) -> ListedKey | None:
    """Change the key. None, and nothing changed, when it does not exist or is revoked."""
    async with _accounts(settings) as accounts:
        row = await _row_of(accounts, key_id)
        if row is None or not await accounts.change_key(row := _under(terms, row, time.time())):
            return None
        return _listed(settings, row, await accounts.used_on(day_of(time.time())))


def _under(terms: KeyTerms, row: KeyRow, now: float) -> KeyRow:
    """The row under these terms."""
    given = {name: getattr(terms, name) for name in _LIMITS}
    limits: dict[str, Any] = {name: each or None for name, each in given.items() if each is not None}
    return replace(
        row,
        label=row.label if terms.label is None else terms.label,
        expires_at=row.expires_at if terms.expires is None else _expiry(terms.expires, now),
        **limits,
    )


def _expiry(text: str, now: float) -> float | None:
    """UTC seconds; None for "never". SettingsError for what is no time, or none of the future."""
    if text == "never":
        return None
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


async def list_keys(settings: Settings) -> Sequence[ListedKey]:
    """All keys, newest first, revoked ones included."""
    async with _accounts(settings) as accounts:
        used = await accounts.used_on(day_of(time.time()))
        return [_listed(settings, row, used) for row in await accounts.keys()]


def _listed(settings: Settings, row: KeyRow, used: Mapping[str, int]) -> ListedKey:
    quota = quota_of(row.namespace, settings.access.daily_tokens, row.id, row.daily_tokens or 0)
    return ListedKey(row) if quota is None else ListedKey(row, quota.tokens, used.get(quota.account, 0))


async def revoke_key(settings: Settings, key_id: str) -> bool:
    """False when the key does not exist or is revoked already."""
    async with _accounts(settings) as accounts:
        return await accounts.revoke_key(key_id, time.time())


def described_key(row: KeyRow, used: int | None = None) -> dict[str, Any]:
    """A row as JSON: times as ISO 8601, UTC."""
    return {
        "id": row.id,
        "label": row.label,
        "namespace": row.namespace,
        "created_at": _iso(row.created_at),
        "revoked_at": _iso(row.revoked_at),
        "expires_at": _iso(row.expires_at),
        "last_used_at": _iso(row.last_used_at),
        "daily_tokens": row.daily_tokens,
        "retention_days": row.retention_days,
        "retention_bytes": row.retention_bytes,
        "used_today": None if used is None else {"tokens": used},
    }


def line_of_key(key: ListedKey) -> str:
    """A key as one line."""
    row, daily_tokens, used = key
    state = "valid"
    if row.revoked_at is not None:
        state = f"revoked {_iso(row.revoked_at)}"
    elif row.expires_at is not None:
        state = f"{'expired' if row.expires_at <= time.time() else 'until'} {_iso(row.expires_at)}"
    parts = [row.id, f"{_iso(row.created_at)}", state, f"used {_iso(row.last_used_at) or 'never'}"]
    if used is not None:
        parts.append(f"{used:,} of {daily_tokens:,} tokens today")
    if row.retention_days or row.retention_bytes:
        kept = (row.retention_days, "days"), (row.retention_bytes, "bytes")
        parts.append("keeps " + ", ".join(f"{limit:,} {unit}" for limit, unit in kept if limit))
    return "  ".join([*parts, row.label]).rstrip()


async def _row_of(accounts: Accounts, key_id: str) -> KeyRow | None:
    return next((row for row in await accounts.keys() if row.id == key_id), None)


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def retention_limits(settings: Settings, days: int | None, max_bytes: int | None) -> RetentionLimits:
    """The configured limits, except those given."""
    kept = settings.retention
    return RetentionLimits(
        kept.days if days is None else days, kept.max_bytes if max_bytes is None else max_bytes
    )


async def due_sessions(settings: Settings, limits: RetentionLimits) -> Sequence[OldSession]:
    """The sessions that retention would erase now; nothing is erased."""
    async with _opened(settings) as database:
        all_limits = NamespaceLimits(limits, own_limits(await _accounts_of(database).keys()))
        return await due(OldSessions(database), all_limits, time.time())


def described_session(old: OldSession) -> dict[str, str | None]:
    """A session as JSON."""
    return {
        "namespace": old.namespace,
        "session": old.session,
        "name": old.external_id,
        "updated_at": _iso(old.updated_at),
    }


async def learned_windows(settings: Settings) -> Sequence[LearnedWindow]:
    """Learned windows that have not expired, newest first."""
    async with _accounts(settings) as accounts:
        return await accounts.learned_windows(time.time() - LIFE_SECONDS)


async def forget_windows(settings: Settings, model: str) -> int:
    """Forget a model's windows; returns how many."""
    async with _accounts(settings) as accounts:
        return await accounts.forget_windows(model, None)


def described_window(row: LearnedWindow) -> dict[str, str | int | None]:
    """A row for people and for JSON. `namespace` is None for a window that the upstream states."""
    return {
        "model": row.model,
        "tokens": row.tokens,
        "source": row.source,
        "namespace": row.namespace or None,
        "upstream": row.upstream,
        "learned_at": _iso(row.learned_at),
    }


def line_of(row: LearnedWindow) -> str:
    """A row as one line."""
    whose = f"namespace {row.namespace}" if row.namespace else "everybody"
    return f"{row.model}: {row.tokens:,} tokens, {row.source}, for {whose}, {_iso(row.learned_at)}"


async def copied(database: Database, target: str) -> Mapping[str, int]:
    """Copy the configured database to `target`; returns the rows by table."""
    # Imported here: the other commands need no SQLAlchemy engine.
    from palimpsest.storage.copying import copy_store

    try:
        source, seconds = database.url.get_secret_value(), database.heartbeat_timeout_seconds
        return await copy_store(source, _target(target), seconds)
    except StoreUnavailable as failure:
        raise SettingsError(f"copy: {failure.message}. Run it again once that is mended.") from failure


def _target(url: str) -> str:
    """The URL as database.url takes it. SettingsError for one that it does not take."""
    try:
        return Database(url=SecretStr(url)).url.get_secret_value()
    except ValidationError as error:
        given = Source("copy", lambda _: "the target", {"url": url})
        raise SettingsError(explained(error, [given])) from None


def lines_of_copy(rows: Mapping[str, int], database: Database, target: str) -> Iterator[str]:
    """What was copied, and what to do next."""
    yield f"{without_password(target)} has {counted_rows(rows)}: every row is as in the source."
    yield f"The pepper {database.pepper_file} belongs to it. Start with the new address as database.url."


@asynccontextmanager
async def _accounts(settings: Settings) -> AsyncIterator[Accounts]:
    async with _opened(settings) as database:
        yield _accounts_of(database)


def _accounts_of(database: SqlDatabase) -> Accounts:
    return Accounts(database, lambda: str(uuid_utils.uuid7()), ProvenNamespaces())


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[SqlDatabase]:
    how = settings.database
    database = await open_database(how.url.get_secret_value(), how.synchronous, how.store_deadline_seconds)
    try:
        yield database
    finally:
        await database.close()
