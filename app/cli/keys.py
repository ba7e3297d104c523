"""Keys issued by this proxy: create, list, revoke (rule 26). A key is shown once and stored as a digest.

Knows nothing of how a request presents a key.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import uuid_utils

from app.errors import SettingsError
from app.proxy.access.access import key_digest
from app.settings.settings import Settings
from app.storage.contract import KeyRow, Store
from app.storage.open import open_store

# Tells a person, and scanners of leaked secrets, whose key it is.
_PREFIX = "pk-palimpsest-"
# 256 random bits: the digest needs no salt.
_KEY_BYTES = 32


async def create_key(settings: Settings, label: str, same_as: str | None) -> tuple[KeyRow, str]:
    """A new key and its row. `same_as` is the id of a key whose conversations it shall see; None: its own."""
    store = await _open(settings)
    try:
        namespace = await _namespace_of(store, same_as) if same_as else str(uuid_utils.uuid4())
        key = _PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        row = KeyRow(str(uuid_utils.uuid7()), label, namespace, time.time(), None)
        await store.add_key(row, key_digest(key))
        return row, key
    finally:
        await store.close()


async def list_keys(settings: Settings) -> Sequence[KeyRow]:
    """All keys, newest first, revoked ones included."""
    store = await _open(settings)
    try:
        return await store.keys()
    finally:
        await store.close()


async def revoke_key(settings: Settings, key_id: str) -> bool:
    """False when there is no such key, or it is revoked already."""
    store = await _open(settings)
    try:
        return await store.revoke_key(key_id, time.time())
    finally:
        await store.close()


def described(row: KeyRow) -> dict[str, str | None]:
    """A row for people and for JSON: times as ISO 8601, UTC."""
    return {
        "id": row.id,
        "label": row.label,
        "namespace": row.namespace,
        "created_at": _iso(row.created_at),
        "revoked_at": None if row.revoked_at is None else _iso(row.revoked_at),
    }


async def _open(settings: Settings) -> Store:
    return await open_store(
        settings.database.url.get_secret_value(),
        synchronous=settings.database.synchronous,
        deadline_seconds=settings.database.store_deadline_seconds,
        new_id=lambda: str(uuid_utils.uuid4()),
    )


async def _namespace_of(store: Store, key_id: str) -> str:
    for row in await store.keys():
        if row.id == key_id:
            return row.namespace
    raise SettingsError(
        f"command line: --same-as {key_id}: there is no such key; `palimpsest keys list` shows them."
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
