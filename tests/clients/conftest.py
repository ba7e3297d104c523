"""The conversations of all clients, held once for all tests of this folder."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
import pytest_asyncio

from tests.clients.install import require
from tests.clients.roster import CLIENTS, HERE, NODE, Client
from tests.clients.running import Run, migrated, run

# Two cores: one client's process, and the servers.
AT_ONCE = 2


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run | BaseException]:
    """What every client did, or what went wrong with it, by its name."""
    require()
    # Modules are looked for from where a script lies.
    for script in (HERE / "drivers").glob("*.mjs"):
        shutil.copy(script, NODE / script.name)
    places = asyncio.Semaphore(AT_ONCE)

    async def held(client: Client, folder: Path) -> Run:
        async with places:
            return await run(client, folder)

    folders = [tmp_path_factory.mktemp("client") for _ in CLIENTS]
    for folder in folders:
        await migrated(folder)
    made = await asyncio.gather(*map(held, CLIENTS, folders), return_exceptions=True)
    return dict(zip([client.name for client in CLIENTS], made, strict=True))
