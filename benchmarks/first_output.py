"""Times the first output of every command: `palimpsest COMMAND --help`, each in a process of its own.

    python -m benchmarks first_output [--rounds 7]

Prints medians: seconds until the output, and of processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from palimpsest.cli.main import app
from typer.main import get_command

# What a person waits for without noticing that it was a wait.
BOUND_SECONDS = 0.4


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, those that have commands of their own included; the first is empty."""
    yield path
    for name, command in getattr(group or get_command(app), "commands", {}).items():
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else [(*path, name)]


def measured(words: tuple[str, ...], rounds: int) -> tuple[float, float]:
    """Median seconds until the output of `--help`, and of processor time."""
    waited, worked = [], []
    for _ in range(rounds):
        before, begun = os.times(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "palimpsest", *words, "--help"], stdout=subprocess.DEVNULL, check=True
        )
        waited.append(time.perf_counter() - begun)
        after = os.times()
        worked.append(sum(after[2:4]) - sum(before[2:4]))
    return statistics.median(waited), statistics.median(worked)


def main() -> None:
    """A line for each command, the slowest last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    rows = sorted((*measured(words, rounds), " ".join(words)) for words in commands())
    for seconds, cpu, name in rows:
        print(f"{seconds:.2f} s  {cpu:.2f} s of a processor  palimpsest {name}".rstrip())
    slow = sum(row[0] > BOUND_SECONDS for row in rows)
    middle, last = statistics.median(row[0] for row in rows), rows[-1][0]
    print(
        f"{len(rows)} commands: median {middle:.2f} s, slowest {last:.2f} s, {slow} above {BOUND_SECONDS} s"
    )


if __name__ == "__main__":
    main()
