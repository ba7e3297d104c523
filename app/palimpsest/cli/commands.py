"""Commands on the database, also beside a running proxy: keys (rule 26) and learned windows.

A running server reloads learned windows within a minute.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uuid_utils

from palimpsest.core.budget.window import LIFE_SECONDS
from palimpsest.errors import SettingsError
from palimpsest.proxy.access import key_digest
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
