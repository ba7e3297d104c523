"""What each preset adds to a turn: an agent's long conversation through one proxy per preset, and directly.

    python -m benchmarks presets [--rounds 3] [--requests 200] [--window 24000] [--write]

The agent reads a file in every second request, so that the conversation crosses the trigger several times. It
begins each request a moment after the answer before. Upstream, proxies and the agent are processes of one
machine. Every round goes to all of them in turn, each time with a conversation of its own; "added" is against
the same request of the round's direct conversation. `--write` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from palimpsest.core.presets import PRESETS

from benchmarks.agent_upstream import READS, AgentUpstream
from benchmarks.overhead import PAGE, written
from benchmarks.servers import Proxy, palimpsest, trivial_upstream
from tests.kit.words import prose

# The same proxy with a window that nothing reaches: what is added without any compaction.
NONE = "no compaction"
# The source's reserve of 40,000 is more than the window here.
NUMBERS: Mapping[str, Mapping[str, str]] = {"rolling": {"POLICY__ADVANCED__TRIGGER_RESERVE_TOKENS": "0"}}
# Between an answer and the next request: less than any tool or person takes.
PAUSE_SECONDS = 0.02
# No round begins that would end later.
MOST_SECONDS = 5 * 60


@dataclass(slots=True)
class Run:
    """One conversation: milliseconds of each request, those that came with a new compaction, CPU of all."""

    took: list[float] = field(default_factory=list)
    compacting: set[int] = field(default_factory=set)
    cpu: float = 0.0


class Agent:
    """One conversation, whole history in every request; the same for every target but for its number."""

    def __init__(self, port: int, number: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        system = {"role": "system", "content": f"You are agent {number}. Do what is asked, and no more."}
        self._messages = [_encoded(system)]
        self._compaction: str | None = None

    def asks(self, message: dict[str, object]) -> tuple[dict[str, object], float, bool]:
        """The answer's message, what it took in milliseconds, and whether a new compaction came with it."""
        self._messages.append(_encoded(message))
        body = b'{"model":"m","messages":[' + b",".join(self._messages) + b"]}"
        headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-measured"}
        begun = time.perf_counter()
        self._connection.request("POST", "/v1/chat/completions", body, headers)
        reply = self._connection.getresponse()
        said = reply.read()
        took = (time.perf_counter() - begun) * 1e3
        if reply.status != 200:
            raise RuntimeError(said.decode())
        answer: dict[str, object] = json.loads(said)["choices"][0]["message"]
        self._messages.append(_encoded(answer))
        known, self._compaction = self._compaction, reply.headers.get("x-palimpsest-compaction")
        return answer, took, self._compaction not in (None, known)

    def closes(self) -> None:
        """The connection is closed."""
        self._connection.close()


def conversation(requests: int) -> Iterator[dict[str, object]]:
    """New messages, one a request: a question that makes the model read a file, then the file."""
    for turn in range(requests // 2):
        path = f"notes/part{turn}"
        yield {
            "role": "user",
            "content": f"Step {turn}: we decided on gate {turn * 37}. {prose(turn, 40)} {READS}{path}.md",
        }
        found = f"# {path}\n{prose(1_000 + turn, 420)}"
        yield {"role": "tool", "tool_call_id": f"call_{path.replace('/', '_')}", "content": found}


def talked(target: int | Proxy, number: int, requests: int) -> Run:
    """The conversation, held with an upstream at that port or through a proxy."""
    proxy = target if isinstance(target, Proxy) else None
    agent = Agent(target.port if isinstance(target, Proxy) else target, number)
    run = Run()
    spent = proxy.cpu_seconds() if proxy else 0.0
    for place, message in enumerate(conversation(requests)):
        _, took, is_new = agent.asks(message)
        run.took.append(took)
        if is_new:
            run.compacting.add(place)
        time.sleep(PAUSE_SECONDS)
    run.cpu = ((proxy.cpu_seconds() - spent) if proxy else 0.0) * 1e3 / requests
    agent.closes()
    return run


def measured(targets: Mapping[str, int | Proxy], options: argparse.Namespace) -> dict[str, list[Run]]:
    """So many rounds of every target, in turns, the first uncounted; fewer when time is over."""
    ends = time.monotonic() + MOST_SECONDS
    runs: dict[str, list[Run]] = {name: [] for name in targets}
    for number in range(options.rounds + 1):
        begun = time.monotonic()
        # The first is to warm up, and short.
        requests = options.requests if number else 20
        for name, target in targets.items():
            runs[name].append(talked(target, number, requests))
        print(f"round {number}: {time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        if number and time.monotonic() + (time.monotonic() - begun) > ends:
            break
    return {name: its[1:] for name, its in runs.items()}


def added(direct: Run, run: Run) -> list[float]:
    """Of each request that came with no new compaction, what it took more than the direct one."""
    pairs = enumerate(zip(direct.took, run.took, strict=True))
    return [through - straight for at, (straight, through) in pairs if at not in run.compacting]


def share(values: Sequence[float], part: float) -> float:
    """The value below which that part of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def row(name: str, direct: Sequence[Run], runs: Sequence[Run], base: float) -> str:
    """A row of the table; `base` is the p50 of the proxy that never compacts."""
    ordinary = [added(straight, run) for straight, run in zip(direct, runs, strict=True)]
    p50 = statistics.median(share(values, 0.5) for values in ordinary)
    p95 = statistics.median(share(values, 0.95) for values in ordinary)
    compacting = [run.took[at] for run in runs for at in run.compacting]
    count = statistics.median(len(run.compacting) for run in runs)
    took = f"{count:g}, {share(compacting, 0.5):.0f}, {max(compacting):.0f}" if compacting else "-"
    cpu = statistics.median(run.cpu for run in runs)
    return f"| {name} | {p50:.2f} | {p50 / base:.2f} | {p95:.2f} | {took} | {cpu:.2f} |"


def table(runs: Mapping[str, Sequence[Run]]) -> str:
    """All rows."""
    direct = runs["direct"]
    medians = [share(added(a, b), 0.5) for a, b in zip(direct, runs[NONE], strict=True)]
    base = statistics.median(medians)
    lines = [
        "| preset | p50 added, ms | of no compaction | p95 added, ms "
        "| turns that compact: number, p50, most, ms | CPU ms each |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        row(name if name == NONE else f"`{name}`", direct, its, base)
        for name, its in runs.items()
        if name != "direct"
    ]
    return "\n".join(lines)


def page(rows: str, rounds: int, options: argparse.Namespace, load: str) -> str:
    """The section of docs/benchmarks.md."""
    return f"""## Presets

What each preset adds to a request of an agent that reads a file in every second one. One conversation has
{options.requests} requests, the window is {options.window:,}, the whole history comes every time,
{PAUSE_SECONDS * 1e3:.0f} ms after the answer before. One proxy per preset, a trivial upstream and the agent
are processes of one machine with {os.cpu_count()} cores; the upstream extracts summaries at once. "Added" is
against the same request of the direct conversation, for requests that came with no new compaction; medians
of {rounds} rounds in turns. CPU time is the proxy's, all threads, summaries included. "{NONE}" is the
same proxy with a window that nothing reaches. Load average of the machine, the benchmark included: {load}.
Python {platform.python_version()}, {time.strftime("%Y-%m-%d", time.gmtime())}. To repeat:
`python -m benchmarks presets --write`.

{rows}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; about four minutes with the defaults."""
    parser = argparse.ArgumentParser(prog="benchmarks presets", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--window", type=int, default=24_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        upstream = stack.enter_context(trivial_upstream(AgentUpstream))
        targets: dict[str, int | Proxy] = {"direct": upstream}
        targets[NONE] = stack.enter_context(palimpsest(upstream))
        for name in PRESETS:
            numbers = {"POLICY__NAME": name, "WINDOW__WINDOW_TOKENS": str(options.window)}
            others = {**numbers, **NUMBERS.get(name, {})}
            targets[name] = stack.enter_context(palimpsest(upstream, others=others))
        runs = measured(targets, options)
    rows = table(runs)
    print(rows)
    if options.write:
        load = f"{before:.1f} before, {os.getloadavg()[0]:.1f} at the end"
        PAGE.write_text(written(PAGE.read_text(), page(rows, len(runs["direct"]), options, load)))
        print(f"written to {PAGE}")


def _encoded(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
