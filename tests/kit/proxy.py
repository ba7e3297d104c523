"""The whole proxy on a real socket with a real store, in front of a model server.

async with proxied(ModelServer(window=4_000), tmp_path) as proxy:
    chat = proxy.chat()
    await chat.says("hello")
    assert await chat.transcript() == chat.said
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.main import create_app
from app.settings.load import load_settings
from app.storage.migrate import migrate
from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.serving import served


@dataclass
class Proxy:
    """A running proxy. `http` speaks to it, `model` is the server behind it."""

    url: str
    model: ModelServer
    http: httpx.AsyncClient

    def chat(self, **options: Any) -> Chat:
        """A client that resends its whole history; options as in `Chat`."""
        return Chat(self.http, **options)


@asynccontextmanager
async def proxied(
    model: ModelServer, folder: Path, overrides: dict[str, Any] | None = None, url: str | None = None
) -> AsyncIterator[Proxy]:
    """A proxy whose database lies in `folder`, so that a second one there is a restart of the first."""
    async with served(model, lifespan="off") as upstream:
        settings = load_settings(
            None,
            {
                "upstream.base_url": f"{upstream}/v1",
                "database.url": url or f"sqlite:///{folder / 'palimpsest.db'}",
                "database.data_folder": str(folder),
                "server.shutdown_seconds": 5,
                **(overrides or {}),
            },
            {},
        )
        await migrate(settings.database.url.get_secret_value())
        async with (
            served(create_app(settings)) as address,
            httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as http,
        ):
            yield Proxy(address, model, http)
