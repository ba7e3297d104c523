"""Scenario 1: many plain turns and a slow summarizer. Few summaries, a stable prefix, nobody waits."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise
from pathlib import Path

import pytest
from palimpsest.core.budget.budget import Window, budget_of
from palimpsest.core.policy import Policy

from tests.kit.judge import are_sound, rewritten
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import proxied
from tests.kit.replicas import until
from tests.kit.summaries import is_compacting
from tests.kit.words import prose

TURNS = 36


class SlowSummarizer:
    """Each summary is ready only when the conversation has gone on for so many more turns."""

    def __init__(self, model: ModelServer, turns: int) -> None:
        self._model = model
        self._turns = turns
        self._begun: list[tuple[int, asyncio.Event]] = []
        model.summary = self

    async def __call__(self, seen: Seen) -> Says:
        done = asyncio.Event()
        self._begun.append((len(self._model.prompts), done))
        await done.wait()
        return Says({"role": "assistant", "content": plain_summary(seen)})

    @property
    def is_asked(self) -> bool:
        """A question waits for its summary."""
        return any(not done.is_set() for _, done in self._begun)

    def turn_ended(self) -> None:
        for begun, done in self._begun:
            if len(self._model.prompts) >= begun + self._turns:
                done.set()

    def let_go(self) -> None:
        """Nobody waits any more; a proxy that stops would wait for what is asked."""
        for _, done in self._begun:
            done.set()


def most_summaries(total: int, window: int) -> int:
    """1 + ceil((total - trigger) / (trigger - target))."""
    budget = budget_of(
        Window(window, "upstream"), fixed_tokens=16, max_output_tokens=None, ratio=1.0, policy=Policy()
    )
    return 1 + math.ceil((total - budget.trigger_tokens) / (budget.trigger_tokens - budget.target_tokens))


@pytest.mark.spec("S1", "P10", "F03", "F04", "F15")
@pytest.mark.parametrize(
    ("window", "words", "slow", "stream"), [(16_000, 700, 1, False), (12_000, 330, 2, True)]
)
async def test_a_slow_summarizer_is_asked_rarely_and_waited_for_never(
    window: int, words: int, slow: int, stream: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=window)
    summarizer = SlowSummarizer(model, slow)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You keep the harbour's log.", stream=stream)
        for turn in range(TURNS):
            await chat.says(f"Entry {turn}. {prose(turn, words)}")
            summarizer.turn_ended()

            async def is_under_way() -> bool:
                """What is begun is asked: how long that takes on a busy machine is not what is slow here."""
                return summarizer.is_asked or not await is_compacting(proxy, chat)

            await until(is_under_way)
        are_sound(model.prompts, chat.sent, window)
        assert await chat.transcript() == chat.said
        compactions = await chat.compactions()
        full = int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0])
        assert 1 <= len(model.summaries) <= most_summaries(full, window)
        # A turn that waited for a summary would have been answered with one made by code, at the deadline.
        by_code = [row["reason"] for row in compactions if row["author"] != "model"]
        assert len(by_code) < len(compactions)
        assert all(reason.endswith("more than it is worth") for reason in by_code), by_code
        assert rewritten(model.prompts) == len(compactions)
        first = next(
            at for at, reply in enumerate(chat.replies) if "x-palimpsest-compaction" in reply.headers
        )
        after = model.prompts[first:]
        extending = sum(later.extends(earlier) for earlier, later in pairwise(after))
        assert extending >= 0.8 * (len(after) - 1)
        summarizer.let_go()
