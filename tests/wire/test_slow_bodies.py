"""What only passes through takes the time it takes, either way, where an answer would be given up (H07)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.wire import Line, wired
from tests.upstream.scripted import head, replies
from tests.wire.test_broken_upstreams import HASTY, drips

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("H07")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy with little patience."""
    async with wired(tmp_path_factory.mktemp("hasty"), HASTY) as running:
        yield running


async def test_what_only_passes_through_takes_the_time_it_takes(hasty: Line) -> None:
    """More than the time that a recorded answer has, and never silent."""
    pieces = [b"x" * 10] * 60
    length = (b"Content-Length", b"%d" % sum(map(len, pieces)))
    # Behind its pieces the script says no more, to nobody.
    hasty.upstream.expects(drips(head(200, [length, (b"Connection", b"close")]), pieces))
    reply = await hasty.asks(b"GET /v1/files/1/content HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (reply.is_whole, reply.body) == (True, b"".join(pieces))


async def test_an_upload_takes_the_time_it_takes(hasty: Line) -> None:
    """More than the upstream has to begin its answer, which it does once it has all of it."""
    hasty.upstream.expects(replies(b"{}"))
    async with hasty.caller() as caller:
        await caller.sends(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 600\r\n\r\n")
        for _ in range(60):
            await caller.sends(b"x" * 10)
            await asyncio.sleep(0.02)
        reply = await caller.reply()
    assert (reply.status, reply.body) == (200, b"{}")
    assert hasty.upstream.requests[-1].body == b"x" * 600
