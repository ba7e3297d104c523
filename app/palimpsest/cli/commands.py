"""Commands on the database: keys (rule 26) and learned windows, also beside a running proxy; and its copy.

A running server reloads learned windows within a minute.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime

import typer
import uuid_utils

from palimpsest.cli.schema import without_password
from palimpsest.core.budget.window import LIFE_SECONDS
from palimpsest.errors import SettingsError, StoreUnavailable
from palimpsest.proxy.access import key_digest
from palimpsest.settings.serving import Database
from palimpsest.settings.settings import Settings
from palimpsest.storage.accounts import KeyRow, LearnedWindow
from palimpsest.storage.store import Store, open_store

# Identifies the key to people and to secret scanners.
_PREFIX = "pk-palimpsest-"
# 256 random bits: the digest needs no salt.
_KEY_BYTES = 32


async def create_key(settings: Settings, label: str, same_as: str | None) -> tuple[KeyRow, str]:
    """A new key and its row. `same_as` is the id of a key with whose namespace it works; None: a new one."""
    async with _opened(settings) as store:
        namespace = await _namespace_of(store, same_as) if same_as else str(uuid_utils.uuid4())
        key = _PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        row = KeyRow(str(uuid_utils.uuid7()), label, namespace, time.time(), None)
        await store.accounts.add_key(row, key_digest(key))
        return row, key


async def list_keys(settings: Settings) -> Sequence[KeyRow]:
    """All keys, newest first, revoked ones included."""
    async with _opened(settings) as store:
        return await store.accounts.keys()


async def revoke_key(settings: Settings, key_id: str) -> bool:
    """False when the key does not exist or is revoked already."""
    async with _opened(settings) as store:
        return await store.accounts.revoke_key(key_id, time.time())


def described_key(row: KeyRow) -> dict[str, str | None]:
    """A row for people and for JSON: times as ISO 8601, UTC."""
    return {
        "id": row.id,
        "label": row.label,
        "namespace": row.namespace,
        "created_at": _iso(row.created_at),
        "revoked_at": None if row.revoked_at is None else _iso(row.revoked_at),
    }


async def _namespace_of(store: Store, key_id: str) -> str:
    for row in await store.accounts.keys():
        if row.id == key_id:
            return row.namespace
    raise SettingsError(
        f"command line: --same-as {key_id}: there is no such key; `palimpsest keys list` shows them."
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


async def learned_windows(settings: Settings) -> Sequence[LearnedWindow]:
    """Learned windows that have not expired, newest first."""
    async with _opened(settings) as store:
        return await store.accounts.learned_windows(time.time() - LIFE_SECONDS)


async def forget_windows(settings: Settings, model: str) -> int:
    """Forget a model's windows; returns how many."""
    async with _opened(settings) as store:
        return await store.accounts.forget_windows(model, None)


def described_window(row: LearnedWindow) -> dict[str, str | int | None]:
    """A row for people and for JSON. `namespace` is None for a window that the upstream states."""
    learned_at = datetime.fromtimestamp(row.learned_at, UTC).isoformat(timespec="seconds")
    return {
        "model": row.model,
        "tokens": row.tokens,
        "source": row.source,
        "namespace": row.namespace or None,
        "upstream": row.upstream,
        "learned_at": learned_at,
    }


def line_of(row: LearnedWindow) -> str:
    """A row as one line."""
    whose = f"namespace {row.namespace}" if row.namespace else "everybody"
    learned_at = described_window(row)["learned_at"]
    return f"{row.model}: {row.tokens:,} tokens, {row.source}, for {whose}, {learned_at}"


async def copied(database: Database, target: str) -> Mapping[str, int]:
    """Copy the configured database to `target`, with a bar on a terminal; returns the rows by table."""
    # Imported here: the other commands need no SQLAlchemy engine.
    from palimpsest.storage.copying import Progress, copy_store

    with ExitStack() as bars:

        def begun(rows: int) -> Progress:
            bar = typer.progressbar(length=rows, label="Copying and comparing", file=sys.stderr)
            return bars.enter_context(bar).update

        try:
            source, seconds = database.url.get_secret_value(), database.heartbeat_timeout_seconds
            return await copy_store(source, target, seconds, begun)
        except StoreUnavailable as failure:
            raise SettingsError(f"copy: {failure.message}. Run it again once that is mended.") from failure


def lines_of_copy(rows: Mapping[str, int], database: Database, target: str) -> Iterator[str]:
    """What was copied, and what to do next."""
    counted = ", ".join(f"{rows[name]:,} {name}" for name in ("sessions", "messages", "compactions"))
    yield f"{without_password(target)} has {counted}: every row is as in the source."
    yield f"The pepper {database.pepper_file} belongs to it. Start with the new address as database.url."


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    store = await open_store(
        settings.database.url.get_secret_value(),
        synchronous=settings.database.synchronous,
        deadline_seconds=settings.database.store_deadline_seconds,
        new_id=lambda: str(uuid_utils.uuid7()),
    )
    try:
        yield store
    finally:
        await store.close()
