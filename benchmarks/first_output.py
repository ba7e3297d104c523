"""Times the first output of every command, each in a process of its own, on a terminal.

    python -m benchmarks first_output [--rounds 7]

First `--help` of each, then what commands print of a database and a running proxy, with one session.
Prints medians: seconds until the first output and until the end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from palimpsest.cli.main import app
from typer.main import get_command

# What a person waits for without noticing that it was a wait.
BOUND_SECONDS = 0.4
# Of the database; then of the proxy, whose address is added.
_LOCAL = (
    *("--version", "config show", "config check", "config schema", "keys list", "keys create", "db windows"),
    *("db retention", "db migrate", "doctor"),
)
_ASKING = (
    *("sessions", "show talk", "view talk", "search Hello", "report", "pins talk"),
    *("export talk", "tail --last 1 --most 1", "compact talk"),
    "connect codex --no-wait",
)
_PROGRAM = (sys.executable, "-m", "palimpsest")


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, those that have commands of their own included; the first is empty."""
    yield path
    for name, command in getattr(group or get_command(app), "commands", {}).items():
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else [(*path, name)]


def measured(words: Sequence[str], rounds: int, folder: str = ".") -> tuple[float, float]:
    """Median seconds until the command's first output on a terminal, and until its end."""
    runs = [_run(words, folder) for _ in range(rounds)]
    return statistics.median(first for first, _ in runs), statistics.median(end for _, end in runs)


def _run(words: Sequence[str], folder: str) -> tuple[float, float]:
    screen, terminal = os.openpty()
    begun, first = time.perf_counter(), 0.0
    with subprocess.Popen([*_PROGRAM, *words], stdout=terminal, stderr=terminal, cwd=folder) as command:
        os.close(terminal)
        # Reading from a terminal that nobody writes to any more fails.
        with suppress(OSError):
            while os.read(screen, 65_536):
                first = first or time.perf_counter() - begun
    os.close(screen)
    assert (command.returncode, first > 0) == (0, True), words
    return first, time.perf_counter() - begun


@contextmanager
def talked(folder: str) -> Iterator[str]:
    """The address of a proxy on a database in `folder`, with the demo behind it and one session."""
    subprocess.run([*_PROGRAM, "db", "migrate"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with (
        Path(folder, "log").open("wb") as log,
        subprocess.Popen(
            [*_PROGRAM, "serve", "--port", "0"], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        ) as server,
    ):
        try:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "listens" in line).split(" at ")[1].strip()
            said = {"model": "demo", "messages": [{"role": "user", "content": "Hello."}]}
            headers = {"x-session-id": "talk"}
            httpx.post(f"{address}/chat/completions", json=said, headers=headers).raise_for_status()
            yield address
        finally:
            server.terminate()


def told(title: str, rows: Sequence[tuple[float, float, str]]) -> None:
    """A line for each command, the slowest last."""
    for first, end, name in sorted(rows):
        print(f"{first:.2f} s  ends after {end:.2f} s  palimpsest {name}".rstrip())
    slow = sum(row[0] > BOUND_SECONDS for row in rows)
    middle, last = statistics.median(row[0] for row in rows), max(row[0] for row in rows)
    print(
        f"{title}: {len(rows)}, median {middle:.2f} s, slowest {last:.2f} s, {slow} above {BOUND_SECONDS} s"
    )


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    told("--help", [(*measured((*words, "--help"), rounds), " ".join(words)) for words in commands()])
    with tempfile.TemporaryDirectory() as folder, talked(folder) as address:
        asking = [f"{line} --url {address}" for line in _ASKING]
        lines = [*_LOCAL, *asking]
        rows = [(*measured(line.split(), rounds, folder), line.partition(" --url")[0]) for line in lines]
    told("output", rows)


if __name__ == "__main__":
    main()
