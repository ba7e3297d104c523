"""What a checkpoint on the way costs in a short conversation and in a long one.

    python -m benchmarks checkpoints [--rounds N]

Conversations of 200 and of 2,000 messages, each a full history as clients send it, in a SQLite file.
After every twelve exchanges the checkpoint that is due is made (A37) and its CPU time taken, of all
threads. Printed: mean and largest of the rounds, and what the long conversation costs of the short one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palimpsest.core.history.session_sources import SessionName, SessionSources
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.request import RequestLimits
from palimpsest.main.front import quotas_of
from palimpsest.main.parts import Parts, new_id, opened_parts
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.journal.checkpoints import Checkpoints, Writing
from palimpsest.proxy.journal.runtime import Readings, Usages
from palimpsest.proxy.sessions.delta import Deltas
from palimpsest.proxy.sessions.recorder import Outcome, Recorder
from palimpsest.proxy.sessions.resolver import Resolver
from palimpsest.proxy.sessions.side_requests import SideRequests
from palimpsest.proxy.turn import ForwardedView, Turn
from palimpsest.settings.load import load_settings
from palimpsest.storage.migrate import migrate
from palimpsest.tokenizer.counting import Tokenizer

SIZES = (200, 2_000)
EXCHANGES = 12
_NAME = SessionName("long", "x-session-id", may_append=True)
_WORDS = "the parser reads its table before the release and keeps every line that names a port or a path"


@dataclass(slots=True)
class Talk:
    """One client that resends its whole history."""

    parts: Parts
    resolver: Resolver
    recorder: Recorder
    namespace: str
    said: list[dict[str, Any]]

    async def exchange(self) -> tuple[Turn, ForwardedView, Outcome]:
        """One more question and answer, recorded as any other."""
        number = len(self.said)
        self.said.append({"role": "user", "content": f"Question {number}: {_text(number)}"})
        body = json.dumps({"model": "gpt-4o", "messages": self.said}).encode()
        incoming = Incoming("POST", "/chat/completions", [(b"x-session-id", b"long")], body, None)
        request = parse_chat_request(body, RequestLimits())
        turn = await self.resolver.turn_of(self.namespace, incoming, request, _NAME)
        await self.recorder.open(turn)
        self.said.append({"role": "assistant", "content": f"Answer {number}: {_text(number + 1)}"})
        answers = self.parts.reader.read_answers([json.dumps(self.said[-1]).encode()], "gpt-4o")
        outcome = Outcome("done", 200, answers, usage=Usage(100, 10, 0))
        shown = ForwardedView(self.parts_view(turn), turn.tokens)
        await self.recorder.close(turn, shown, outcome)
        return turn, shown, outcome

    def parts_view(self, turn: Turn) -> Any:
        """The conversation as it is: nothing is compacted here."""
        return Readings(self.parts.store, self.parts.reader, self.parts.tokens).view(
            turn.conversation, None, turn.model
        )


async def measured(folder: Path, messages: int, rounds: int) -> list[float]:
    """CPU milliseconds of each round's checkpoint."""
    url = f"sqlite:///{folder / f'{messages}.db'}"
    # Nobody is asked anything.
    where = {"upstream.base_url": "http://127.0.0.1:9/v1", "database.url": url}
    settings = load_settings(None, {**where, "database.data_folder": str(folder)}, {})
    await migrate(url)
    async with AsyncExitStack() as stack:
        parts = await opened_parts(settings, Tokenizer(), stack, asyncio.Event())
        deltas = Deltas(
            parts.store.history,
            parts.reader,
            parts.in_flight,
            default_mode="full",
            waiting_appends=8,
            transcript_bytes=0,
        )
        beside = SideRequests(parts.store.history, parts.reader)
        resolver = Resolver(
            *(parts.store, parts.reader, deltas, beside, SessionSources()),
            *(parts.calibrations, new_id, parts.in_flight),
        )
        recorder = Recorder(parts.store, parts.jobs, parts.newcomers, quotas_of(parts))
        namespace = await parts.store.accounts.namespace_of(b"benchmark", time.time())
        talk = Talk(parts, resolver, recorder, namespace, _history(messages))
        readings = Readings(parts.store, parts.reader, parts.tokens)
        writing = Writing(parts.store.journal, parts.jobs, parts.background, time.time, new_id)
        checkpoints = Checkpoints(writing, readings, Usages())
        # The first finds a long history at once; what comes after is the rule.
        await checkpoints.periodic(*await talk.exchange())
        spent = []
        for _ in range(rounds):
            for _ in range(EXCHANGES):
                last = await talk.exchange()
            before = time.process_time()
            await checkpoints.periodic(*last)
            spent.append(1_000 * (time.process_time() - before))
        made = await parts.store.journal.checkpoints(namespace, last[0].session, rounds)
        assert len(made) == rounds, "a checkpoint that was due was not made"
        return spent


def _history(messages: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": f"Message {i}: {_text(i)}"} for i in range(messages)]


def _text(number: int) -> str:
    """About 1,000 characters."""
    return " ".join(f"{_WORDS} {number * 31 + each}." for each in range(10))


async def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds: int = parser.parse_args().rounds
    means = []
    print("| messages | CPU ms, mean | largest |\n|---|---|---|")
    for messages in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            spent = await measured(Path(folder), messages, rounds)
        means.append(statistics.mean(spent))
        print(f"| {messages:,} | {means[-1]:.1f} | {max(spent):.1f} |")
    print(f"\n{SIZES[-1]:,} messages cost {means[-1] / means[0]:.2f} times what {SIZES[0]} do")


if __name__ == "__main__":
    asyncio.run(main())
