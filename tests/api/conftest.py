"""A running proxy with a real store, and one conversation in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    async with proxied(ModelServer(window=20_000), tmp_path) as running:
        yield running


@pytest.fixture
async def chat(proxy: Proxy) -> Chat:
    """Two questions, answered, under a name of the client's own."""
    talk = proxy.chat(system="Be kind.", session="my/own name")
    proxy.model.says("first answer", "second answer")
    await talk.says("first question")
    await talk.says("second question")
    return talk
