"""What stands still while something large goes on: the event loop, and a second client that asks /healthz.

    python -m benchmarks stalls [--rounds 3] [--phases messages,bodies,...] [--write]

Each phase asks something large of one proxy. Beside it a second client asks /healthz all the time; a meter in
the proxy's loop (`metered.py`) wakes every millisecond. Printed are, in ms: what the phase took, the longest
answer of /healthz, the longest pause of the loop by the clock and in its own processor time. The last two
tell a busy machine from a busy loop. Figures are medians of the rounds, each on a fresh database.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.servers import Proxy, palimpsest, trivial_upstream
from benchmarks.soak import Talker, write_section

_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "parser",
    "module",
    "function",
    "returns",
    "error",
    "line",
    "file",
    "test",
    "commit",
    "branch",
]
# Tokens. The small model's window is that of many local servers, a tenth of what the phases bring.
_MODELS = [{"match": "small", "window_tokens": 32_000}, {"match": "large", "window_tokens": 4_000_000}]
_TIMEOUT = 300
# Of a processor. Meter and second client take some .2 of it.
_QUIET_SHARE = 0.4
_MOST_BACKGROUND_SECONDS = 120


@dataclass(slots=True)
class Side:
    """The two clients of one proxy, and how its meter is read."""

    proxy: Proxy
    meter: Path
    source: random.Random
    http: HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.http = HTTPConnection("127.0.0.1", self.proxy.port, timeout=_TIMEOUT)

    def ask(self, messages: Sequence[bytes], model: str) -> bytes:
        """The answer, as a message to send back."""
        body = b'{"model":"%b","messages":[%b]}' % (model.encode(), b",".join(messages))
        answer = self.send("POST", "/v1/chat/completions", body)
        return json.dumps(json.loads(answer)["choices"][0]["message"] | {"refusal": None}).encode()

    def send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """What is answered; RuntimeError for anything but 200."""
        headers = {"authorization": "Bearer sk-stalls", "content-type": "application/json"}
        self.http.request(method, path, body, headers)
        response = self.http.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {answer[:200]!r}")
        return answer

    def read_meter(self) -> dict[str, float]:
        """The loop's longest pauses since the last reading."""
        self.meter.unlink(missing_ok=True)
        os.kill(self.proxy.pid, signal.SIGUSR1)
        while not self.meter.exists():
            time.sleep(0.01)
        read: dict[str, float] = json.loads(self.meter.read_text())
        return read

    def said(self, count: int, size: int) -> list[bytes]:
        """So many messages of so many bytes of text, none like another; the last one is a user's."""
        return [self._message("assistant" if at % 2 == count % 2 else "user", size) for at in range(count)]

    def _message(self, role: str, size: int) -> bytes:
        text = f"{self.source.getrandbits(60)} " + _prose(self.source, size)
        return json.dumps({"role": role, "content": text[:size]}).encode()


def _prose(source: random.Random, size: int) -> str:
    start = source.randrange(len(_TEXT) // 2)
    return (_TEXT[start:] * (1 + 2 * size // len(_TEXT)))[:size]


_TEXT = " ".join(random.Random(1).choices(_WORDS, k=30_000))


def _first(side: Side) -> None:
    """The first request after the start."""
    side.ask(side.said(1, 8_000), "gpt-4o")


def _many(side: Side) -> None:
    """20,000 messages nobody has seen, then the same with one more turn."""
    messages = side.said(19_997, 200)
    messages += [side.ask(messages, "large"), *side.said(1, 200)]
    side.ask(messages, "large")


def _many_folded(side: Side) -> None:
    """19,999 messages for a small window, then one more turn."""
    messages = side.said(19_997, 200)
    messages += [side.ask(messages, "small"), *side.said(1, 200)]
    side.ask(messages, "small")


def _text_body(side: Side) -> None:
    """A body of 60 MB in 600 messages of text."""
    side.ask(side.said(599, 100_000), "large")


def _image_body(side: Side) -> None:
    """A body of 60 MB that is one picture."""
    url = "data:image/png;base64," + "iVBORw0KGgoAAAAN" * 3_750_000
    part = {"type": "image_url", "image_url": {"url": url}}
    side.ask([json.dumps({"role": "user", "content": [part]}).encode()], "large")


def _tool_body(side: Side) -> None:
    """One message of 20 MB that holds JSON with quotes, as a tool's result does."""
    rows = json.dumps([{"id": at, "name": f"row {at}", "tags": ["a", "b"]} for at in range(350_000)])
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": rows}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    side.ask([*side.said(1, 200), json.dumps(asked).encode(), json.dumps(result).encode()], "large")


def _fold(side: Side) -> None:
    """2,000 messages for a small window: read, folded, and gone on with."""
    messages = side.said(1_999, 400)
    messages += [side.ask(messages, "small"), *side.said(1, 400)]
    side.ask(messages, "small")


def _contact(side: Side) -> None:
    """First contact with 2,000 messages of 2 kB, for a small window."""
    side.ask(side.said(1_999, 2_000), "small")


def _again(side: Side) -> None:
    """First contact with 2,000 messages of 400 bytes, then the same list four times more."""
    messages = side.said(1_999, 400)
    for _ in range(5):
        side.ask(messages, "small")


PHASES: dict[str, Callable[[Side], None]] = {
    "first": _first,
    "messages": _many,
    "folded": _many_folded,
    "text": _text_body,
    "image": _image_body,
    "tool": _tool_body,
    "fold": _fold,
    "contact": _contact,
    "again": _again,
}


@dataclass(slots=True)
class Figures:
    """Of one phase in all rounds, in ms."""

    took: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def row(self, name: str) -> str:
        """A row of the table."""
        medians = (
            f"{statistics.median(each):,.0f}" for each in (self.took, self.health, self.wall, self.cpu)
        )
        return f"| {name} | {' | '.join(medians)} |"


def _measured(side: Side, phase: Callable[[], object], figures: Figures) -> None:
    """The phase is done, and what comes of it in the background."""
    # What the start itself took is noted at the loop's next turn.
    time.sleep(0.1)
    side.read_meter()
    with _second_client(side.proxy.port) as seen:
        begun = time.perf_counter()
        phase()
        figures.took.append((time.perf_counter() - begun) * 1e3)
        _until_quiet(side.proxy)
    meter = side.read_meter()
    figures.health.append(max(seen))
    figures.wall.append(meter["wall"])
    figures.cpu.append(meter["cpu"])


def _until_quiet(proxy: Proxy) -> None:
    """Until the process has worked little for two seconds: the second client alone takes a part of it."""
    for _ in range(_MOST_BACKGROUND_SECONDS // 2):
        before = proxy.cpu_seconds()
        time.sleep(2)
        if proxy.cpu_seconds() - before < 2 * _QUIET_SHARE:
            return
    raise RuntimeError("the background work does not end")


@contextmanager
def _second_client(port: int) -> Iterator[list[float]]:
    """How long /healthz took, in ms, each time it was asked meanwhile.

    By a process of its own: the first client keeps the interpreter busy, too.
    """
    seen: list[float] = []
    ours, theirs = multiprocessing.Pipe()
    asking = multiprocessing.get_context("spawn").Process(target=_asked_all_the_time, args=(port, theirs))
    asking.start()
    ours.recv()
    try:
        yield seen
    finally:
        ours.send(None)
        seen += ours.recv()
        asking.join()


def _asked_all_the_time(port: int, pipe: Connection) -> None:
    seen: list[float] = []
    http = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    pipe.send(None)
    while not pipe.poll(0.005):
        begun = time.perf_counter()
        http.request("GET", "/healthz")
        http.getresponse().read()
        seen.append((time.perf_counter() - begun) * 1e3)
    pipe.send(seen)


def _round(upstream: int, names: Sequence[str], all_figures: dict[str, Figures]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        meter = Path(folder) / "meter.json"
        source = random.Random(time.time_ns())
        for name in (name for name in names if name in PHASES):
            with _proxy(upstream, folder, meter) as proxy:
                side = Side(proxy, meter, source)
                if name != "first":
                    side.ask(side.said(1, 200), "large")
                _measured(side, lambda: PHASES[name](side), all_figures.setdefault(name, Figures()))  # noqa: B023
        if "pages" in names:
            _pages(upstream, folder, meter, all_figures)


def _pages(upstream: int, folder: str, meter: Path, all_figures: dict[str, Figures]) -> None:
    """The pages of a session with 10,000 messages, each the first request after a restart."""
    source = random.Random(time.time_ns())
    with _proxy(upstream, folder, meter) as proxy:
        side = Side(proxy, meter, source)
        messages = side.said(9_997, 400)
        messages += [side.ask(messages, "small"), *side.said(1, 400)]
        side.ask(messages, "small")
        sessions: list[dict[str, Any]] = json.loads(side.send("GET", "/api/sessions"))["sessions"]
        session = max(sessions, key=lambda row: row["messages"])["id"]
    api, ui = "/api/sessions/{}/", "/ui/sessions/{}/"
    for page in (api + "status", api + "view", api + "messages", ui + "events", ui + "turns/1"):
        with _proxy(upstream, folder, meter) as proxy:
            side = Side(proxy, meter, source)
            figures = all_figures.setdefault(f"page: {page.partition('}/')[2]}", Figures())
            _measured(side, lambda: side.send("GET", page.format(session)), figures)  # noqa: B023


@contextmanager
def _proxy(upstream: int, folder: str, meter: Path) -> Iterator[Proxy]:
    os.environ["STALL_METER"] = str(meter)
    program = [sys.executable, str(Path(__file__).with_name("metered.py"))]
    others = {
        "MODELS": json.dumps(_MODELS),
        "ACCESS__UNPROVEN_MESSAGES": "1000000",
        # A busy disk is not what is measured.
        "DATABASE__STORE_DEADLINE_SECONDS": "60",
    }
    with palimpsest(upstream, others=others, kept_in=folder, program=program) as proxy:
        yield proxy


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--phases", default=",".join((*PHASES, "pages")))
    options.add_argument("--write", action="store_true", help="put it under Stalls in docs/benchmarks.md")
    given = options.parse_args()
    figures: dict[str, Figures] = {}
    names = given.phases.split(",")
    with trivial_upstream(Talker) as upstream:
        for _ in range(given.rounds):
            _round(upstream, names, figures)
    busy = os.getloadavg()[0]
    rows = "\n".join(seen.row(name) for name, seen in figures.items())
    table = (
        f"`python -m benchmarks stalls --rounds {given.rounds}`, Python {platform.python_version()},"
        f" {time.strftime('%Y-%m-%d')}, load average {busy:.1f}; ms:\n\n"
        "| phase | took | longest /healthz | loop's longest pause, clock | processor time |\n"
        f"|---|---|---|---|---|\n{rows}"
    )
    print(table)
    if given.write:
        write_section("Stalls", table)


if __name__ == "__main__":
    main()
