"""Two sessions that begin alike, without any session header, stay two (S2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied


@pytest.mark.spec("S2")
async def test_a_twin_that_is_one_answer_behind_keeps_its_own_session(tmp_path: Path) -> None:
    model = ModelServer()
    async with proxied(model, tmp_path) as proxy:
        ahead, behind = proxy.chat(system="Same."), proxy.chat(system="Same.")
        model.says("Same answer.", "Of the one ahead.", "Same answer.", "Of the one behind.")
        await ahead.says("Same opening")
        await ahead.says("Same second message")
        await behind.says("Same opening")
        await behind.says("Same second message")
        assert ahead.session != behind.session
        await ahead.says("The secret of the one ahead is ALPHA.")
        await behind.says("The secret of the one behind is OMEGA.")
        assert await ahead.transcript() == ahead.said
        assert await behind.transcript() == behind.said


@pytest.mark.spec("S2")
async def test_regenerating_is_a_branch_where_nobody_else_waits(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(system="Same.")
        await chat.says("Opening")
        await chat.says("Second message")
        session = chat.session
        await chat.posts(chat.said[:-1])
        assert chat.session == session
