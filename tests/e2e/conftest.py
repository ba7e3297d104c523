"""What several end-to-end modules share: one proxy for all tests of a module that need no settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.wire import Line, wired


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy between a scripted upstream and raw clients; starting one takes a second."""
    async with wired(tmp_path_factory.mktemp("line")) as running:
        yield running
