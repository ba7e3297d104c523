"""Whether the proxy's memory stays where it is: conversations that grow and begin anew, for as long as asked.

    python -m benchmarks soak --minutes 30 [--conversations 16] [--rate 50] [--write]

Every conversation resends its whole history with each question, as an SDK spells it, and begins anew after
`--turns` questions; every second answer is streamed, and every fourth conversation uses a model with a small
window, so that it is compacted on the way. Every answer is another text. The resident memory of the proxy is
sampled every five seconds. Printed are its course, its slope over the last half (least squares), and what
went wrong: 0 errors and a slope near zero are a plateau. Exit code 1 for errors.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import platform
import random
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp
import uvloop

from benchmarks.servers import Proxy, Upstream, palimpsest, trivial_upstream

_SAMPLE_SECONDS = 5.0
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
_PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
# Tokens: a conversation of the small model is compacted every few turns.
_MODELS = [{"match": "small", "window_tokens": 8_000}, {"match": "large", "window_tokens": 1_000_000}]


class Talker(Upstream):
    """Says something else each time, in one piece or as a stream of three frames."""

    said = itertools.count(time.time_ns())

    def data_received(self, data: bytes) -> None:
        """Answer once head and body are there."""
        self.seen += data
        head, end, body = bytes(self.seen).partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if not end or len(body) < int(length[1] if length else 0):
            return
        self.seen.clear()
        text = f"Answer {next(self.said)}. " + " ".join(random.choices(_WORDS, k=160))
        if b'"stream": true' in body:
            self._streamed(text)
        else:
            self._whole(text)

    def _whole(self, text: str) -> None:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]})
        self._written(b"application/json", body.encode())

    def _streamed(self, text: str) -> None:
        half = len(text) // 2
        deltas: tuple[dict[str, str], ...] = ({"content": text[:half]}, {"content": text[half:]}, {})
        frames = [
            json.dumps({
                "id": "c",
                "object": "chat.completion.chunk",
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}],
            })
            for delta in deltas
        ]  # fmt: skip
        self._written(b"text/event-stream", "".join(f"data: {f}\n\n" for f in [*frames, "[DONE]"]).encode())

    def _written(self, kind: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
        self.transport.write(head + body)


@dataclass(slots=True)
class Seen:
    """What happened so far: answers, errors by kind, and resident megabytes by minutes since the start."""

    answers: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    memory: list[tuple[float, float]] = field(default_factory=list)

    def failed(self, why: str) -> None:
        """One more error of the kind."""
        self.errors[why] = self.errors.get(why, 0) + 1

    @property
    def slope(self) -> float:
        """Megabytes a minute over the last half of the samples."""
        last = self.memory[len(self.memory) // 2 :]
        return statistics.linear_regression(*zip(*last, strict=True)).slope


@dataclass(frozen=True, slots=True)
class Load:
    """What clients do: how many, how long a conversation is, and how many requests a second in all."""

    conversations: int
    turns: int
    rate: float


def resident_megabytes(pid: int) -> float:
    """The resident memory of a process (VmRSS in /proc/PID/status)."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


async def soaked(proxy: Proxy, load: Load, seconds: float) -> Seen:
    """What so many seconds of the load show."""
    seen, end = Seen(), time.monotonic() + seconds
    sampling = asyncio.create_task(_sampled(proxy, seen))
    address = f"http://127.0.0.1:{proxy.port}/v1/chat/completions"
    async with aiohttp.ClientSession(headers={"authorization": "Bearer sk-soak"}) as http:
        clients = [_talk(http, address, load, number, seen, end) for number in range(load.conversations)]
        await asyncio.gather(*clients)
    sampling.cancel()
    await asyncio.wait([sampling])
    return seen


async def _sampled(proxy: Proxy, seen: Seen) -> None:
    begun = time.monotonic()
    while True:
        minutes = (time.monotonic() - begun) / 60
        seen.memory.append((minutes, resident_megabytes(proxy.pid)))
        if len(seen.memory) % 12 == 1:
            print(f"{minutes:5.1f} min {seen.memory[-1][1]:7.1f} MB {seen.answers} answers", flush=True)
        await asyncio.sleep(_SAMPLE_SECONDS)


async def _talk(
    http: aiohttp.ClientSession, address: str, load: Load, number: int, seen: Seen, end: float
) -> None:
    """One client: conversation after conversation until the time is over, at its share of the rate."""
    source = random.Random(number)
    pause = load.conversations / load.rate
    while time.monotonic() < end:
        # The first conversations end at different lengths, so that not all begin anew at once.
        for request in _requests(source, number, load.turns):
            due = time.monotonic() + pause * source.uniform(0.5, 1.5)
            answer = await _answered(http, address, request, seen)
            if answer is None or time.monotonic() > end:
                break
            request["messages"].append({"role": "assistant", "content": answer, "refusal": None})
            await asyncio.sleep(max(0.0, due - time.monotonic()))


def _requests(source: random.Random, number: int, turns: int) -> Iterator[dict[str, Any]]:
    """The requests of one conversation; the caller puts each answer behind `messages`."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a careful agent. " * 20}]
    model = "small" if number % 4 == 0 else "large"
    for turn in range(source.randint(turns // 2, turns * 3 // 2)):
        text = f"{source.getrandbits(60)} " + " ".join(source.choices(_WORDS, k=320))
        messages.append({"role": "user", "content": text})
        yield {"model": model, "stream": turn % 2 == 1, "messages": messages}


async def _answered(
    http: aiohttp.ClientSession, address: str, request: Mapping[str, Any], seen: Seen
) -> str | None:
    """The text of the answer; None, noted, for what is none."""
    try:
        async with http.post(address, json=request) as response:
            body = await response.read()
        if response.status != 200:
            seen.failed(str(response.status))
            return None
        seen.answers += 1
        return _streamed_text(body) if request["stream"] else _text(json.loads(body), "message")
    except (aiohttp.ClientError, ValueError, LookupError) as error:
        seen.failed(type(error).__name__)
        return None


def _streamed_text(body: bytes) -> str:
    frames = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    return "".join(_text(json.loads(frame), "delta") for frame in frames)


def _text(answer: Mapping[str, Any], key: str) -> str:
    return cast(str, answer["choices"][0][key].get("content") or "")


def _table(seen: Seen, load: Load, minutes: float) -> str:
    marks: Sequence[tuple[float, float]] = seen.memory[:: max(1, len(seen.memory) // 10)]
    course = ", ".join(f"{minute:.0f}: {megabytes:.0f}" for minute, megabytes in marks)
    return "\n".join((
        f"`python -m benchmarks soak --minutes {minutes:g} --conversations {load.conversations} --rate"
        f" {load.rate:g}`, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}:",
        "",
        "| figure | value |",
        "|---|---|",
        f"| answers, errors | {seen.answers:,}, {sum(seen.errors.values())} |",
        f"| resident MB by minute | {course} |",
        f"| most MB | {max(megabytes for _, megabytes in seen.memory):.0f} |",
        f"| slope of the last half, MB a minute | {seen.slope:+.2f} |",
    ))  # fmt: skip


def main() -> int:
    """The command line."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--minutes", type=float, default=9.0)
    options.add_argument("--conversations", type=int, default=16)
    options.add_argument("--turns", type=int, default=30, help="questions of one, on average")
    options.add_argument("--rate", type=float, default=50.0, help="requests a second, of all together")
    options.add_argument("--write", action="store_true", help="put it under Soak in docs/benchmarks.md")
    given = options.parse_args()
    load = Load(given.conversations, given.turns, given.rate)
    with (
        trivial_upstream(Talker) as upstream,
        palimpsest(upstream, others={"MODELS": json.dumps(_MODELS)}) as proxy,
    ):
        seen = uvloop.run(soaked(proxy, load, given.minutes * 60))
    table = _table(seen, load, given.minutes)
    print(table)
    for why, times in seen.errors.items():
        print(f"error {why}: {times}")
    if given.write:
        write_section("Soak", table)
    return 1 if seen.errors else 0


def write_section(name: str, table: str) -> None:
    """The section of docs/benchmarks.md begins with this table, in place of what was there."""
    page = _PAGE.read_text()
    before, _, rest = page.partition(f"\n## {name}\n")
    _, between, after = rest.partition("\n## ")
    _PAGE.write_text(f"{before.rstrip()}\n\n## {name}\n\n{table}\n{between}{after}")


if __name__ == "__main__":
    raise SystemExit(main())
