"""When a conversation is compacted under either objective, and that the reasons given are the true ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 16_000
pytestmark = pytest.mark.timeout(120)
# Seconds; as a deployment that never pauses, and as one whose cache is gone at once.
_LONG, _SHORT = 604_800, 1


async def compacted(chat: Chat) -> Json:
    """The first compaction of a growing log."""
    while not (chat.replies and await chat.compactions()):
        await chat.says(f"Entry {len(chat.replies)}. {prose(len(chat.replies), 300)}")
    (made,) = await chat.compactions()
    return made


@pytest.mark.spec("P1", "A02", "E11")
async def test_by_default_nothing_is_touched_before_the_trigger_and_then_one_step_leads_down(
    tmp_path: Path,
) -> None:
    model = ModelServer(window=WINDOW)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="log")
        made = await compacted(chat)
    untouched = model.prompts[:-1]
    assert [seen.body["messages"] for seen in untouched] == chat.sent[:-1]
    assert untouched[-1].tokens > 0.85 * WINDOW
    assert made["tokens_before"] >= 0.9 * WINDOW
    assert made["reason"] == f"{made['tokens_before']:,} tokens of {WINDOW:,} (0.90 asked)"
    assert made["tokens_after"] <= 0.55 * WINDOW


@pytest.mark.spec("E11")
@pytest.mark.parametrize("old", [None, "balanced"])
async def test_cost_folds_sooner_and_says_from_where_on(old: str | None, tmp_path: Path) -> None:
    settings: Json = {
        "policy.objective": old or "cost",
        "compaction.deadline_seconds": 0,
        "compaction.background": False,
    }
    async with proxied(ModelServer(window=WINDOW), tmp_path, settings) as proxy:
        chat = proxy.chat(session="log")
        made = await compacted(chat)
    assert 0.45 * WINDOW <= made["tokens_before"] < 0.85 * WINDOW
    size, _, mark = made["reason"].partition(" (objective cost: from ")
    assert size == f"{made['tokens_before']:,} tokens of {WINDOW:,}"
    assert int(mark.removesuffix(" on)").replace(",", "")) <= made["tokens_before"]


@pytest.mark.spec("E11", "F15")
@pytest.mark.parametrize(("objective", "lives"), [("cost", _SHORT), ("cost", _LONG), ("fidelity", _SHORT)])
async def test_a_cold_cache_is_the_moment_to_fold_under_cost(
    objective: str, lives: int, tmp_path: Path
) -> None:
    window = 64_000
    settings: Json = {
        "policy.objective": objective,
        "models": [{"match": "*", "prices": {"cache_seconds": lives}}],
        # Nobody is asked: what code writes is there at once.
        "compaction.deadline_seconds": 0,
        "compaction.background": False,
    }
    model = ModelServer(window=window)
    async with proxied(model, tmp_path, settings) as proxy:
        chat = proxy.chat(session="log")
        while not model.prompts or model.prompts[-1].tokens < 0.4 * window:
            await chat.says(f"Entry {len(chat.replies)}. {prose(len(chat.replies), 700)}")
        assert await chat.compactions() == []
        warm = model.prompts[-1].tokens
        await asyncio.sleep(_SHORT + 0.2)
        await chat.says("Back again.")
        made = await chat.compactions()
    if (objective, lives) != ("cost", _SHORT):
        assert made == []
        assert model.prompts[-1].body["messages"] == chat.sent[-1]
        return
    (fold,) = made
    assert model.prompts[-1].tokens < warm
    saved = fold["tokens_before"] - fold["tokens_after"]
    size, _, reason = fold["reason"].partition(", cache cold for ")
    seconds, _, rest = reason.partition(" s: ")
    assert size == f"{fold['tokens_before']:,} tokens of {window:,}"
    assert int(seconds) >= _SHORT
    assert rest == f"folding now saves reading {saved:,} of them anew"
    assert saved >= 0.05 * window
