"""What counting and tracing cost: microseconds of the processor for one exchange, and the size of a scrape.

    python -m benchmarks telemetry

A real exchange is answered once; what is called at its end is then called again many times with its entry.
The scrape is of a proxy that has answered for 100 models on both APIs.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.proxy.reports import RequestEntry
from palimpsest.proxy.telemetry.counts import MOST_MODELS, Counts
from palimpsest.proxy.telemetry.tracing import Tracer

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.scrapes import scraped, scraped_once

CALLS, ROUNDS, SCRAPES = 2_000, 9, 20
# Nothing listens there: spans are dropped when the queue is full.
_NOWHERE = "http://127.0.0.1:9"


def _microseconds(work: Callable[[RequestEntry], None], entry: RequestEntry) -> float:
    """The median over rounds, of one call."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(CALLS):
            work(entry)
        rounds.append((time.process_time() - began) / CALLS * 1e6)
    return statistics.median(rounds)


async def _measured() -> None:
    applications: list[Any] = []
    entries: list[RequestEntry] = []
    overrides = {"models": [{"match": "house-*"}]}

    def around(app: Any) -> Any:
        applications.append(app)
        return app

    with tempfile.TemporaryDirectory() as folder:
        async with proxied(ModelServer(), Path(folder), overrides, around=around) as proxy:
            log = applications[0].requests
            log.observers.append(entries.append)
            await proxy.chat().says("one")
            await scraped_once(proxy.http, lambda _: bool(entries))
            (entry,) = entries
            for number in range(MOST_MODELS):
                named = replace(entry, model=f"house-{number}")
                for each in (named, replace(named, api=RESPONSES.name)):
                    log.observers[0](each)
            await scraped(proxy.http)
            began = time.perf_counter()
            for _ in range(SCRAPES):
                reply = await proxy.http.get("/metrics")
            seconds = (time.perf_counter() - began) / SCRAPES
    print(f"counting an exchange: {_microseconds(Counts().ended, entry):.1f} us")
    for content in (False, True):
        tracer = Tracer(_NOWHERE, content=content)
        told = "with" if content else "without"
        print(f"a span {told} content: {_microseconds(tracer.ended, entry):.0f} us")
    print(
        f"a scrape, {MOST_MODELS} models on both APIs: {seconds * 1e3:.0f} ms, {len(reply.text) / 1e3:.0f} kB"
    )


if __name__ == "__main__":
    asyncio.run(_measured())
