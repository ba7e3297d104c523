"""What several end-to-end modules share: one proxy for all tests of a module that need no settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.postgres import empty_database, server_address
from tests.kit.wire import Json, Line, wired


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy between a scripted upstream and raw clients; starting one takes a second."""
    async with wired(tmp_path_factory.mktemp("line")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgresql"])
async def each_database(request: pytest.FixtureRequest) -> AsyncIterator[Json]:
    """The settings of a database that is empty: a file of the proxy's own, then PostgreSQL."""
    if request.param == "sqlite":
        yield {}
        return
    async with empty_database(server_address()) as url:
        yield {"database.url": url}
