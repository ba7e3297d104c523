"""What has been learned of models' windows, by everybody: shown to the operator, and forgotten.

Knows nothing of how a window is learned. A running server reads it again within a minute.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uuid_utils

from app.core.budget.learned import LIFE_SECONDS
from app.settings.settings import Settings
from app.storage.contract import Store
from app.storage.learned.contract import LearnedWindow
from app.storage.open import open_store


async def learned_windows(settings: Settings) -> Sequence[LearnedWindow]:
    """Those that are believed, newest first."""
    async with _opened(settings) as store:
        return await store.learned_windows(time.time() - LIFE_SECONDS)


async def forget_windows(settings: Settings, model: str) -> int:
    """How many were forgotten."""
    async with _opened(settings) as store:
        return await store.forget_windows(model, None)


def described(row: LearnedWindow) -> dict[str, str | int | None]:
    """A row for people and for JSON. A namespace is an id of ours; None for what the upstream states."""
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
    return f"{row.model}: {row.tokens:,} tokens, {row.source}, for {whose}, {described(row)['learned_at']}"


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    url = settings.database.url.get_secret_value()
    store = await open_store(url, new_id=lambda: str(uuid_utils.uuid7()))
    try:
        yield store
    finally:
        await store.close()
