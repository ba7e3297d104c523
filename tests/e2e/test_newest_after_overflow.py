"""After the upstream said "too long" the model still sees the newest exchanges (rule 38)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.judge import is_sound
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied
from tests.kit.words import prose

WINDOW = 8_000


@pytest.mark.spec("H16")
async def test_a_refused_prompt_keeps_its_newest_exchanges(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, models=False)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the log of a harbour.")
        turn = 0
        while "x-palimpsest-compaction" not in (chat.replies[-1].headers if chat.replies else {}):
            model.answers.append(Says({"role": "assistant", "content": prose(100 + turn, 400)}))
            await chat.says(f"Entry {turn}. {prose(turn, 400)}")
            model.answers.clear()
            turn += 1
            assert turn < 20
        recovered = model.prompts[-1]
        is_sound(recovered, chat.said[:-1], WINDOW)
        # The newest question, and the two exchanges before it.
        assert recovered.messages[-5:] == chat.said[-6:-1]
