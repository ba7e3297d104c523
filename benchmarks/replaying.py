"""How long `palimpsest replay` takes for a long chat: seconds of one processor for each policy.

python -m benchmarks replaying [--messages 10000] [--words 50] [--presets auto,working_state]
"""

from __future__ import annotations

import argparse
import random
import time

from palimpsest.core.budget.budget import Window
from palimpsest.core.history.message import conversation_of, seed_of
from palimpsest.core.history.read import read_message
from palimpsest.core.presets import PRESETS
from palimpsest.core.runtime.recorded_turns import ReplayFacts, derived_turns
from palimpsest.core.wire.json_text import encoded
from palimpsest.proxy.policy_replay import ReplayInput, replayed
from palimpsest.tokenizer.counting import Tokenizer

_WINDOW = 128_000
_WORDS = [
    "anchor",
    "harbour",
    "lantern",
    "ledger",
    "market",
    "meadow",
    "orchard",
    "quarry",
    "river",
    "saddle",
    "timber",
    "willow",
]


def given(messages: int, words: int) -> ReplayInput:
    """A chat of so many messages with so many words each, drawn from a fixed seed."""
    chance, counter = random.Random(7), Tokenizer().counter_for("gpt-4o")  # no secret
    said = [
        read_message(
            encoded(
                {
                    "role": ("user", "assistant")[number % 2],
                    "content": f"Note {number}. {_text(chance, words)}",
                }
            ),
            counter.count_message,
        )
        for number in range(messages)
    ]
    talk = conversation_of(said, seed_of(""))
    turns = derived_turns([(message.role, float(at)) for at, message in enumerate(said)], "gpt-4o", 3)
    facts = ReplayFacts(PRESETS["auto"], Window(_WINDOW, "configured"))
    return ReplayInput(talk, [(turn, ()) for turn in turns], facts, counter.count_text)


def _text(chance: random.Random, words: int) -> str:
    """Sentences of ten words."""
    drawn = [f"{chance.choice(_WORDS)}{chance.randrange(100)}" for _ in range(words)]
    return " ".join(f"{' '.join(drawn[at : at + 10]).capitalize()}." for at in range(0, words, 10))


def main() -> None:
    """Print a line for each preset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--words", type=int, default=50)
    parser.add_argument("--presets", default="auto,rolling,working_state")
    asked = parser.parse_args()
    case = given(asked.messages, asked.words)
    for name in asked.presets.split(","):
        began = time.process_time()
        found = replayed(case, PRESETS[name], case.facts.window, lambda _: None)
        seconds, folds = time.process_time() - began, len(found.compactions)
        print(f"{name}: {seconds:.1f} s, {found.turns:,} turns, {folds} compactions", flush=True)


if __name__ == "__main__":
    main()
