"""The figures of the house: `make shape` prints them, the linter holds the knots.

    python -m tests.house.shape

Counted from the files: lines, files, names used twice, branches by wire outside `core/wire`, settings of the
example, knots between sibling folders. Counted from the running program, in a process of its own: what a
plain second turn enters, and one that compacts. Measured: processor time and memory of `palimpsest serve`.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.request import Request, urlopen

import grimp
import structlog
import yaml

from tests.house.sources import ROOT, Source, sources

PACKAGE = "app/palimpsest"
# The names by which a wire is known: the two there are, and a variable or attribute that is one of them.
_WIRES = frozenset({"wire", "CHAT", "RESPONSES"})
# Seconds after which a first turn has left nothing to do.
_SETTLED_SECONDS = 2.5


@dataclass
class Entered:
    """What one request ran through: code of the package, and how often each was called."""

    calls: Counter[CodeType] = field(default_factory=Counter)

    @property
    def files(self) -> set[str]:
        """Files of the package that were entered."""
        return {code.co_filename for code in self.calls}

    def __str__(self) -> str:
        return f"{len(self.files)} files; {len(self.calls)} functions; {self.calls.total()} calls"


class _Recorder:
    """Counts calls into the package while `into` is set; tells whether any came since it was asked."""

    def __init__(self) -> None:
        self.into: Entered | None = None
        self._folder = str(ROOT / PACKAGE) + "/"
        self.seen = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self.into and frame.f_code.co_filename.startswith(self._folder):
            self.into.calls[frame.f_code] += 1
            self.seen += 1

    @contextmanager
    def recording(self) -> Iterator[Entered]:
        """What is entered in here."""
        self.into = Entered()
        yield self.into
        self.into = None


async def turns_entered() -> tuple[Entered, Entered]:
    """What a plain second turn enters, and what one enters that compacts, work after the answer included."""
    # The program is imported by who runs it, not by who counts its lines.
    from tests.kit.model import ModelServer
    from tests.kit.proxy import proxied

    recorder = _Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    with tempfile.TemporaryDirectory() as folder:
        async with proxied(ModelServer(window=4_000), Path(folder)) as proxy:
            chat = proxy.chat(system="You answer briefly.")
            await chat.says("First question.")
            await _quiet(recorder)
            with recorder.recording() as plain:
                await chat.says("Second question.")
                await _quiet(recorder)
            while True:
                with recorder.recording() as turn:
                    await chat.says("A letter about the harbour. " * 60)
                    await _quiet(recorder)
                if "compact" in chat.reply.headers.get("x-palimpsest-view", ""):
                    return plain, turn


async def _quiet(recorder: _Recorder) -> None:
    """Waits until nothing of the package has been entered for a third of a second."""
    seen = -1
    while seen != recorder.seen:
        seen = recorder.seen
        await asyncio.sleep(0.3)


def names_twice(package: list[Source]) -> tuple[list[str], list[str]]:
    """Public class names that stand in two files, and files whose name another one has."""
    classes = Counter(
        node.name
        for source in package
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    stems = Counter(source.path.stem for source in package if source.path.stem != "__init__")
    twice = sorted(name for name, times in classes.items() if times > 1)
    return twice, sorted(stem for stem, times in stems.items() if times > 1 for _ in range(times))


def wire_branches(package: list[Source]) -> list[str]:
    """Places outside `core/wire` that decide by the wire."""
    elsewhere = (source for source in package if not source.name.startswith(f"{PACKAGE}/core/wire/"))
    return [f"{source.name}:{line}" for source in elsewhere for line in by_wire(source.tree)]


def by_wire(tree: ast.AST) -> list[int]:
    """Lines that compare something with a wire, or match on one."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Compare) and any(map(_is_wire, [node.left, *node.comparators])))
        or (isinstance(node, ast.Match) and _is_wire(node.subject))
    ]


def _is_wire(value: ast.expr) -> bool:
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", None)
    return name in _WIRES


def knots() -> dict[str, int]:
    """For each folder, how many imports between its children must go before none of them form a circle.

    Nominated by grimp, which looks for the cheapest set.
    """
    graph = grimp.build_graph("palimpsest")
    packages = {module for module in graph.modules if graph.find_children(module)}
    found = {package: len(graph.nominate_cycle_breakers(package)) for package in sorted(packages)}
    return {package: number for package, number in found.items() if number}


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


def settings_of_the_example() -> int:
    """Settings that `config.example.yaml` names."""
    return _leaves(yaml.safe_load((ROOT / "config.example.yaml").read_text(encoding="utf-8")))


def _leaves(value: object) -> int:
    return sum(map(_leaves, value.values())) if isinstance(value, dict) and value else 1


def main() -> None:
    """Prints every figure."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    package = sources(PACKAGE)
    lengths = sorted(source.text.count("\n") for source in package if source.path.name != "__init__.py")
    classes, files = names_twice(package)
    plain, compacting = asyncio.run(turns_entered())
    sys.setprofile(None)
    tied = knots()
    seconds, megabytes, turn_seconds, turn_megabytes = start()
    rows = {
        "lines / files": f"{sum(lengths):,} / {len(package)}",
        "median file; below 60 lines; above 350": f"{statistics.median(lengths):.0f};"
        f" {sum(n < 60 for n in lengths)}; {sum(n > 350 for n in lengths)}",
        "a plain second turn enters": str(plain),
        "a turn that compacts enters": str(compacting),
        "knots between sibling folders": f"{sum(tied.values())}"
        + "".join(f"\n    {package}: {number}" for package, number in tied.items()),
        "public class names used twice": f"{len(classes)}: {', '.join(classes)}",
        "files whose name another has": f"{len(files)} of {len(package)}",
        "branches by wire outside core/wire": str(len(wire_branches(package))),
        "settings in config.example.yaml": str(settings_of_the_example()),
        "start: CPU seconds, resident MB": f"{seconds:.2f}, {megabytes:.0f}",
        "the same after a first turn": f"{turn_seconds:.2f}, {turn_megabytes:.0f}",
    }
    for name, value in rows.items():
        sys.stdout.write(f"{name}: {value}\n")


if __name__ == "__main__":
    main()
