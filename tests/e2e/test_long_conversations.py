"""Conversations far longer than the window go on, and every word of them stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied

FILLER = "The quick brown fox jumps over the lazy dog and writes it down. " * 12


@pytest.mark.spec("A01")
async def test_a_long_conversation_never_fails(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=4_000), tmp_path) as proxy:
        chat = proxy.chat(system="You are a careful assistant.")
        for turn in range(60):
            await chat.says(f"Message {turn}. {FILLER}")
        assert all(not seen.faults and seen.tokens <= 4_000 for seen in proxy.model.prompts)
        assert all(seen.messages[0] == chat.said[0] for seen in proxy.model.prompts)
        assert chat.reply.headers["x-palimpsest-view"] == "compacted"


@pytest.mark.spec("P1")
async def test_until_needed_the_body_is_the_clients_own(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        body = (
            b'{ "model":"test-model", "unknown": 1e2, "messages" : [ {"role":"user","content":"\\u0068i"} ]}'
        )
        reply = await proxy.http.post("/v1/chat/completions", content=body)
        assert reply.status_code == 200
        assert proxy.model.seen[0].raw == body
