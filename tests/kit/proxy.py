"""The whole proxy on a real socket with a real store, in front of a model server.

async with proxied(ModelServer(window=4_000), tmp_path) as proxy:
    chat = proxy.chat()
    await chat.says("hello")
    assert await chat.transcript() == chat.said
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from palimpsest.main.application import create_app
from palimpsest.settings.load import load_settings

from tests.kit.chat import Chat
from tests.kit.migrated import migrated
from tests.kit.model import ModelServer
from tests.kit.serving import served, shared_tokenizer


@dataclass
class Front:
    """A running proxy. `http` speaks to it."""

    url: str
    http: httpx.AsyncClient

    def chat(self, **options: Any) -> Chat:
        """A client that resends its whole history; options as in `Chat`."""
        return Chat(self.http, **options)


@dataclass
class Proxy(Front):
    """A running proxy, and the scripted server behind it."""

    model: ModelServer


@asynccontextmanager
async def proxied(
    model: ModelServer,
    folder: Path,
    overrides: dict[str, Any] | None = None,
    url: str | None = None,
    *,
    around: Callable[[Any], Any] = lambda app: app,
) -> AsyncIterator[Proxy]:
    """A proxy whose database lies in `folder`, so that a second one there is a restart of the first."""
    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1", folder, overrides, url=url, around=around) as front,
    ):
        yield Proxy(front.url, front.http, model)


@asynccontextmanager
async def fronting(
    upstream: str,
    folder: Path,
    overrides: dict[str, Any] | None = None,
    *,
    url: str | None = None,
    patience_seconds: float = 60,
    migrates: bool = True,
    around: Callable[[Any], Any] = lambda app: app,
) -> AsyncIterator[Front]:
    """As `proxied`, before any server whose base URL is `upstream`; clients wait so long for a byte.

    Without `migrates` the database is opened as it lies there. What is served is what `around` makes of the
    application.
    """
    settings = load_settings(
        None,
        {
            "upstream.base_url": upstream,
            "database.url": url or f"sqlite:///{folder / 'palimpsest.db'}",
            "database.data_folder": str(folder),
            "server.shutdown_seconds": 5,
            **(overrides or {}),
        },
        {},
    )
    if migrates:
        await migrated(settings.database.url.get_secret_value())
    async with (
        served(around(create_app(settings, shared_tokenizer()))) as address,
        httpx.AsyncClient(base_url=address, timeout=patience_seconds, trust_env=False, verify=False) as http,
    ):
        yield Front(address, http)
