"""What a model looked up is told again after a restart, on both databases (F25, rule 31)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.recalls import GREP, READ, compacted_chat, resumed, saying

SECOND = ("g2", *GREP[1:])
# Several results before the next fold.
FEW = {"recall.result_chars": 500}


@pytest.mark.spec("F25", "F21", "F22", "P10")
@pytest.mark.timeout(90)
async def test_a_restart_changes_no_byte(url: str, tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, stream=True, overrides=FEW, url=url) as (proxy, chat):
        model = proxy.model
        model.answers.extend([saying("Hm. ", GREP), saying("Port 8000."), saying("Both.", SECOND, READ)])
        await chat.says("Which port?")
        await chat.says("Look into the file.")
    async with resumed(proxy, chat, tmp_path, url) as (_, again):
        await again.sends({"role": "tool", "tool_call_id": "c1", "content": "x = 1"})
        await again.says("Thanks.")
        assert await again.transcript() == again.said
    assert len(model.prompts) == 5
    assert all(later.extends(earlier) for earlier, later in pairwise(model.prompts))
    assert not any(seen.faults for seen in model.prompts)
    ids = [message["tool_call_id"] for message in model.prompts[-1].messages if message["role"] == "tool"]
    assert ids == ["g1", "g2", "c1"]
