"""One running proxy for a file's tests, each of which is a caller of its own, and one conversation in it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied


@dataclass
class Shared(Proxy):
    """A proxy that other tests use as well: whoever names no key is a caller nobody has met."""

    key: str = "key-1"

    def chat(self, **options: Any) -> Chat:
        return Chat(self.http, **{"key": self.key, **options})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    async with proxied(ModelServer(window=20_000), tmp_path_factory.mktemp("proxy")) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Proxy) -> Proxy:
    model = running.model
    model.seen.clear()
    model.answers.clear()
    model.summary = None
    return Shared(running.url, running.http, model, key=uuid.uuid4().hex)


@pytest_asyncio.fixture(loop_scope="module")
async def chat(proxy: Proxy) -> Chat:
    """Two questions, answered, under a name of the client's own."""
    talk = proxy.chat(system="Be kind.", session="my/own name")
    proxy.model.says("first answer", "second answer")
    await talk.says("first question")
    await talk.says("second question")
    return talk
