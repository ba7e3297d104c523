"""kill -9 at random moments under load: what a client saw the end of is stored, whole and as finished.

`python -m benchmarks.kill_loop --kills 200` starts the real server on one database again and again,
streams through it from several clients, kills it after a random number of pieces, and asks the next
one what is left. It stops by itself. `--broken` counts an answer as ended at its first piece, which
is a lie the check must notice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.kit.migrated import make_file
from tests.kit.processes import Process
from tests.upstream.scripted import Scripted, Wire, chunk, head

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = 8
PIECES = 12
# A kill comes after at most so many pieces, seen by all clients together.
MOST_PIECES = 2_000
START_SECONDS = 60
# Seconds between two looks whether a server listens.
_LOOK_SECONDS = 0.01
_CHUNKED = [(b"Content-Type", b"text/event-stream"), (b"Transfer-Encoding", b"chunked")]


@dataclass
class Said:
    """One exchange of a client. `forwarded`: the upstream saw it; `ended`: the client saw its end."""

    session: str
    text: str
    forwarded: bool = False
    began: bool = False
    ended: bool = False

    @property
    def answer(self) -> str:
        """What the upstream says to it, in all."""
        return "".join(self.pieces)

    @property
    def pieces(self) -> list[str]:
        """The answer as it is streamed."""
        return [f"piece {i} for {self.text}; " for i in range(PIECES)]


@dataclass
class Aftermath:
    """What was found after kills. Everything but the first three must be zero."""

    kills: int = 0
    forwarded: int = 0
    ended: int = 0
    cut: int = 0
    unrecorded: int = 0
    lost: int = 0
    falsely_finished: int = 0
    strange: int = 0

    def add(self, other: Aftermath) -> None:
        """The sum of both."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def failures(self) -> int:
        """Promises broken."""
        return self.unrecorded + self.lost + self.falsely_finished + self.strange


@dataclass
class Load:
    """Clients that talk until they are cut off; `pieces` counts what all of them have seen."""

    rng: random.Random
    run: int
    kill_after: int
    said: list[Said] = field(default_factory=list)
    pieces: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    def saw_a_piece(self) -> None:
        """Called with every line that any client reads."""
        self.pieces += 1
        if self.pieces >= self.kill_after:
            self.enough.set()

    async def talks(self, http: httpx.AsyncClient, client: int) -> None:
        """Conversations of three turns each, streamed or not."""
        for number in range(1_000_000):
            session = f"run-{self.run}-client-{client}-{number}"
            messages: list[dict[str, str]] = []
            for turn in range(3):
                said = Said(session, f"{session} turn {turn}")
                self.said.append(said)
                messages.append({"role": "user", "content": said.text})
                await self._asks(http, said, messages, stream=self.rng.random() < 0.7)
                messages.append({"role": "assistant", "content": said.answer})

    async def _asks(
        self, http: httpx.AsyncClient, said: Said, messages: list[dict[str, str]], *, stream: bool
    ) -> None:
        body = {"model": "m", "messages": messages, "stream": stream}
        headers = {"x-session-id": said.session}
        async with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
            seen = ""
            async for line in reply.aiter_lines():
                said.began = True
                seen += line
                self.saw_a_piece()
                said.ended = said.ended or '"finish_reason": "stop"' in line
        if not said.ended:
            raise RuntimeError(f"an answer ended without an end: {seen[-200:]}")


class Speaker:
    """The upstream: answers every request with its pieces and notes that it came."""

    def __init__(self) -> None:
        self.load: Load | None = None

    async def __call__(self, wire: Wire) -> None:
        """One answer."""
        request = json.loads(wire.request.body)
        text = request["messages"][-1]["content"]
        said = next(s for s in reversed(self.load.said if self.load else []) if s.text == text)
        said.forwarded = True
        if not request["stream"]:
            message = {"role": "assistant", "content": said.answer}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = json.dumps({"choices": [choice]}).encode()
            await wire.send(head(200, [(b"Content-Length", b"%d" % len(whole))]) + whole)
            return
        await wire.send(head(200, _CHUNKED))
        for piece in said.pieces:
            await wire.send(chunk(_event({"content": piece}, None)))
            await asyncio.sleep(0)
        await wire.send(chunk(_event({}, "stop")) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@dataclass
class Server:
    """A running `palimpsest serve`."""

    url: str
    process: Process

    def kill(self) -> None:
        """As `kill -9`."""
        self.process.send_signal(signal.SIGKILL)


@asynccontextmanager
async def server(
    folder: Path, upstream: str | None, window_tokens: int | None = 1_000_000, **environment: str
) -> AsyncIterator[Server]:
    """The server on the database in `folder`, its log beside it; killed at the end, if it still lives.

    `environment` are its settings; a database that they name is used instead. Without `window_tokens` models'
    windows are found out. Without `upstream` the settings name one, or the demo answers.
    """
    named = () if upstream is None else ("--upstream", f"{upstream}/v1")
    given = () if window_tokens is None else ("--window-tokens", str(window_tokens))
    file = folder / "palimpsest.db"
    settings = {
        "PALIMPSEST_DATABASE__URL": f"sqlite:///{file}",
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(folder),
        **environment,
    }
    if "PALIMPSEST_DATABASE__URL" not in environment and not file.exists():
        await make_file(file)
    with tempfile.TemporaryDirectory() as said:
        out = Path(said, "out")
        words = ("serve", "--port", "0", *named, *given)
        process = Process(folder, *words, settings=settings, out=out, err=folder / "log")
        running = Server("", process)
        try:
            async with asyncio.timeout(START_SECONDS):
                running.url = await _address(process, out)
            yield running
        finally:
            running.kill()
            await process.wait()


async def _address(process: Process, out: Path) -> str:
    while process.returncode is None:
        if "/v1\n" in (said := _text(out)):
            return "http://" + said.split("http://")[1].split("/v1")[0]
        await asyncio.sleep(_LOOK_SECONDS)
    raise RuntimeError("the server did not start")


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def killed_under_load(running: Server, load: Load) -> None:
    """Clients talk to the server until enough was seen; then it is killed and all of them are cut off."""
    async with httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http:

        async def client(number: int) -> None:
            with suppress(httpx.TransportError):
                await load.talks(http, number)

        clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
        watch = asyncio.create_task(load.enough.wait())
        await asyncio.wait([watch, *clients], return_when=asyncio.FIRST_COMPLETED)
        running.kill()
        watch.cancel()
        await asyncio.gather(*clients)


async def examined(running: Server, load: Load, *, broken: bool) -> Aftermath:
    """What the next server tells of what was said to the last one."""
    found = Aftermath(kills=1)
    async with httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http:
        for said in load.said:
            reply = await http.get(f"/api/sessions/{said.session}/messages")
            rows = reply.json()["messages"] if reply.status_code == 200 else []
            _compare(found, said, rows, claims_end=said.began if broken else said.ended)
    return found


def _compare(found: Aftermath, said: Said, rows: list[dict[str, Any]], *, claims_end: bool) -> None:
    at = next((i for i, row in enumerate(rows) if row["message"]["content"] == said.text), None)
    found.forwarded += said.forwarded
    found.ended += claims_end
    found.cut += said.began and not said.ended
    if at is None:
        found.unrecorded += said.forwarded
        found.lost += claims_end
        return
    answer = rows[at + 1] if at + 1 < len(rows) else None
    is_whole = answer is not None and answer["message"]["content"] == said.answer
    is_finished = answer is not None and answer["state"] == "live"
    found.lost += claims_end and not (is_whole and is_finished)
    found.falsely_finished += is_finished and not is_whole
    found.strange += answer is not None and not said.answer.startswith(answer["message"]["content"])


async def kill_loop(
    kills: int,
    folder: Path,
    rng: random.Random,
    told: Callable[[Aftermath], Awaitable[None]] | None = None,
    *,
    broken: bool = False,
    most_pieces: int = MOST_PIECES,
) -> Aftermath:
    """So many kills of servers that all work on the database in `folder`; stops at the first failure."""
    total = Aftermath()
    last: Load | None = None
    speaker = Speaker()
    async with Scripted() as upstream:
        upstream.always(speaker)
        for run in range(kills + 1):
            async with server(folder, upstream.url) as running:
                if last is not None:
                    total.add(await examined(running, last, broken=broken))
                    if told is not None:
                        await told(total)
                if run == kills or total.failures:
                    break
                last = speaker.load = Load(rng, run, rng.randrange(1, most_pieces))
                await killed_under_load(running, last)
    return total


async def _main(kills: int, seed: int, *, broken: bool) -> int:
    async def told(total: Aftermath) -> None:
        sys.stdout.write(f"\r{total}")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as folder:
        total = await kill_loop(kills, Path(folder), random.Random(seed), told, broken=broken)
    sys.stdout.write(f"\n{total.failures} promises broken\n")
    return 1 if total.failures else 0


def main() -> None:
    """Reads the command line; exits with 1 when anything acknowledged was lost."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--broken", action="store_true")
    given = options.parse_args()
    sys.exit(asyncio.run(_main(given.kills, given.seed, broken=given.broken)))


if __name__ == "__main__":
    main()
