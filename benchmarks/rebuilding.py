"""What a record keeps when every writing loses lines: carried on from fold to fold, or written from messages.

    python -m benchmarks rebuilding [--folds 12] [--talks 3] [--keeps 0.8]

A chat whose messages hold one fact each goes through the running proxy. The summarizer knows a fact when it
sees one and keeps it with the given chance, whether a message or an earlier record tells it. Printed of the
last fold, averaged over the conversations: the share of folded facts in the model's record, by age; the same
of the whole view (code adds what it finds); and all questions for summaries, with their tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.summaries import quiet
from tests.kit.words import prose

WINDOW = 6_000
# Words of a message beside its fact: some five messages a fold.
WORDS = 180
_TOLD = re.compile(r"fact-(\d+) is (\w+)")
_KEPT = re.compile(r"- fact-(\d+) is \w+")
_COMMON: Mapping[str, Any] = {
    "models": [{"match": "*", "window_tokens": WINDOW}],
    "policy.advanced.summary_input_chars": 400_000,
    "summarizer.window_tokens": 100_000,
}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "carried on": {"policy.advanced.rebuild_after_folds": 0},
    "anew every 4th, one call": {"policy.advanced.rebuild_after_folds": 4},
    "anew every 4th, in parts": {
        "policy.advanced.rebuild_after_folds": 4,
        "policy.advanced.summary_input_chars": 12_000,
    },
    "anew every 2nd, one call": {"policy.advanced.rebuild_after_folds": 2},
}


@dataclass(frozen=True, slots=True)
class Kept:
    """Of one conversation: shares by age (early, middle, late thirds), in the record and in the view."""

    record: tuple[float, ...]
    view: tuple[float, ...]
    asked: int
    calls: int


class Lossy:
    """A summarizer that keeps each fact it is told with the chance `keeps`."""

    def __init__(self, keeps: float, seed: int) -> None:
        self._keeps = keeps
        self._random = random.Random(seed)

    def __call__(self, seen: Seen) -> Says:
        """Facts alone, in their order; what is said twice is kept or lost once."""
        facts = dict(_TOLD.findall(seen.text))
        kept = [number for number in facts if self._random.random() < self._keeps]
        lines = "\n".join(f"- fact-{number} is {facts[number]}" for number in sorted(kept, key=int))
        text = f"## 1. Primary request and intent\nFacts are kept.\n## 5. Key technical details\n{lines}"
        return Says({"role": "assistant", "content": text})


async def measured(way: Mapping[str, Any], folds: int, keeps: float, seed: int) -> Kept:
    """One conversation of so many folds."""
    model = ModelServer(summary=Lossy(keeps, seed))
    with tempfile.TemporaryDirectory() as folder:
        async with proxied(model, Path(folder), {**_COMMON, **way}) as proxy:
            return await _played(proxy, model, folds, seed)


async def _played(proxy: Proxy, model: ModelServer, folds: int, seed: int) -> Kept:
    chat, made, last = proxy.chat(system="You keep facts."), 0, {}
    while made < folds:
        number = len(chat.replies)
        word = prose(seed * 10_000 + number, 3).split()[-1].strip(".")
        await chat.says(f"{prose(seed * 1_000 + number, WORDS)} Note that fact-{number} is {word}.")
        await quiet(proxy, chat)
        stored = [one for one in await chat.compactions() if one["kind"] == "message_removal"]
        made, last = len(stored), stored[-1] if stored else {}
    folded = _folded(chat, last)
    record = set(_KEPT.findall(last["summary"]))
    view = set(re.findall(r"fact-(\d+)", json.dumps(await chat.view())))
    asked = sum(seen.tokens for seen in model.summaries)
    return Kept(_shares(folded, record), _shares(folded, view), asked, len(model.summaries))


def _folded(chat: Chat, last: Mapping[str, Any]) -> list[str]:
    """The facts of messages that stand in the view no more, the first apart: that is always there."""
    said = [message for message in chat.said if message["role"] == "user"]
    count = int(last["messages_folded"]) // 2
    return [found[0] for message in said[1:count] if (found := re.findall(r"fact-(\d+)", message["content"]))]


def _shares(facts: list[str], held: set[str]) -> tuple[float, ...]:
    third = len(facts) // 3
    parts = facts[:third], facts[third : 2 * third], facts[2 * third :]
    return tuple(sum(fact in held for fact in part) / max(1, len(part)) for part in parts)


def _mean(rows: list[tuple[float, ...]]) -> str:
    return " / ".join(f"{statistics.mean(column):.2f}" for column in zip(*rows, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folds", type=int, default=12)
    parser.add_argument("--talks", type=int, default=3)
    parser.add_argument("--keeps", type=float, default=0.8)
    options = parser.parse_args()
    print("| record | in the record: early / middle / late | in the view | calls | tokens asked |")
    print("|---|---|---|---|---|")
    for name, way in WAYS.items():
        rows = [
            asyncio.run(measured(way, options.folds, options.keeps, seed)) for seed in range(options.talks)
        ]
        calls, asked = (
            statistics.mean(each) for each in zip(*((r.calls, r.asked) for r in rows), strict=True)
        )
        shown = _mean([row.record for row in rows]), _mean([row.view for row in rows])
        print(f"| {name} | {shown[0]} | {shown[1]} | {calls:.0f} | {asked:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
