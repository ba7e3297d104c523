"""After failures in a row nobody is asked for a while, then again; having nothing to do is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.proxy.compacting.breaker import Breaker
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose


@pytest.mark.spec("F05")
def test_it_opens_after_failures_in_a_row_and_closes_by_itself() -> None:
    now = [0.0]
    breaker = Breaker(3, 60.0, lambda: now[0])
    breaker.failed()
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    breaker.failed()
    assert not breaker.is_open
    breaker.failed()
    assert breaker.is_open
    now[0] = 59.9
    assert breaker.is_open
    now[0] = 60.0
    assert not breaker.is_open


@pytest.mark.spec("F05")
async def test_having_nothing_to_compact_is_no_failure(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=4_000), tmp_path, {"policy.breaker_failures": 1}) as proxy:
        chat = proxy.chat()
        await chat.says("hello")
        for _ in range(3):
            path = f"/api/sessions/{chat.session}/compact"
            reply = await proxy.http.post(path, headers=chat.headers)
            assert reply.json()["compacted"] is False
        for turn in range(30):
            await chat.says(prose(turn, 150))
        assert proxy.model.summaries
