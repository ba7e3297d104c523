"""Measures processor time and memory of `palimpsest serve`: once it listens, and after a first turn.

python -m benchmarks start
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
# Seconds after which a first turn has left nothing to do.
_SETTLED_SECONDS = 2.5


def start() -> tuple[float, float, float, float]:
    """Processor seconds and resident MB of `palimpsest serve`: once it listens, and after a first turn.

    Medians of 5. What is loaded beside the first requests, the encoding above all, is in the second pair.
    """
    with tempfile.TemporaryDirectory() as folder:
        began = [_start(Path(folder)) for _ in range(5)]
    listening, turned = zip(*began, strict=True)
    return (
        *map(statistics.median, zip(*listening, strict=True)),
        *map(statistics.median, zip(*turned, strict=True)),
    )


def _start(folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "app"), "PALIMPSEST_SERVER__PORT": "0"}
    command = [sys.executable, "-m", "palimpsest"]
    subprocess.run([*command, "migrate"], cwd=folder, env=given, capture_output=True, check=True)
    with subprocess.Popen(
        [*command, "serve"], cwd=folder, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if b"started" in line).decode()
        listening = _taken(process.pid)
        _first_turn(re.findall(r"http://[0-9.:]+", line)[0])
        turned = _taken(process.pid)
        process.terminate()
    return listening, turned


def _first_turn(address: str) -> None:
    body = b'{"model": "demo", "messages": [{"role": "user", "content": "Is the harbour open?"}]}'
    headers = {"content-type": "application/json"}
    with urlopen(Request(f"{address}/v1/chat/completions", body, headers), timeout=60) as answer:
        answer.read()
    # What goes on behind the answer: statements, the index of words, published prices.
    time.sleep(_SETTLED_SECONDS)


def _taken(pid: int) -> tuple[float, float]:
    """Processor seconds until now, and MB resident."""
    ticks = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split(") ")[1].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    seconds = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, pages * os.sysconf("SC_PAGE_SIZE") / 1_000_000


def main() -> None:
    """Prints medians of five starts."""
    seconds, megabytes, turn_seconds, turn_megabytes = start()
    sys.stdout.write(f"start: {seconds:.2f} s of CPU, {megabytes:.0f} MB resident\n")
    sys.stdout.write(f"after a first turn: {turn_seconds:.2f} s, {turn_megabytes:.0f} MB\n")


if __name__ == "__main__":
    main()
