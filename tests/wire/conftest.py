"""What the modules of this folder share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.wire import Line, wired

# Small enough that a few messages are folded, by code: no model is asked, so every request is a prompt.
SMALL = {
    "models": [{"match": "small", "window_tokens": 4_000}, {"match": "*", "window_tokens": 1_000_000}],
    "compaction.deadline_seconds": 0,
    "compaction.background": False,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy that folds what is said to the model `small`, and nothing else."""
    async with wired(tmp_path_factory.mktemp("line"), SMALL) as running:
        yield running
