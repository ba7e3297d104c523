"""A proxy in a process of its own that says which of its objects hold a text: what is held in memory.

Memory that was freed is not looked at, nor what the database library holds.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from tests.kit.proxy import Front, fronting

# Containers of atoms alone are not tracked by the collector.
_UNTRACKED = (tuple, dict, frozenset)


@dataclass
class Held(Front):
    """A running proxy whose memory can be looked into."""

    pipe: Connection

    async def holders(self, word: str) -> set[str]:
        """The types of the objects that hold a text with this word, in any case."""
        # Backwards, lest it be found itself.
        self.pipe.send(word.lower()[::-1])
        found: set[str] = await asyncio.to_thread(self.pipe.recv)
        return found


@asynccontextmanager
async def held(upstream: str, folder: Path) -> AsyncIterator[Held]:
    """The proxy before the server at this address, with its database in `folder`."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(f"{upstream}/v1", folder, there))
    process.start()
    try:
        url = await asyncio.to_thread(here.recv)
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
            yield Held(url, http, here)
    finally:
        here.send("")
        process.join()


def _serve(upstream: str, folder: Path, pipe: Connection) -> None:
    async def serve() -> None:
        async with fronting(upstream, folder) as front:
            pipe.send(front.url)
            while asked := await asyncio.to_thread(pipe.recv):
                pipe.send({type(each).__name__ for each in _holders(asked)})

    asyncio.run(serve())


def _holders(backwards: str) -> Iterator[object]:
    text = backwards[::-1]
    raw = text.encode()
    gc.collect()
    seen: set[int] = set()
    for tracked in gc.get_objects():
        looked_into = [tracked]
        while looked_into:
            holder = looked_into.pop()
            for each in gc.get_referents(holder):
                if (isinstance(each, str) and text in each.lower()) or (
                    isinstance(each, bytes | bytearray) and raw in each.lower()
                ):
                    yield holder
                elif isinstance(each, _UNTRACKED) and not gc.is_tracked(each) and id(each) not in seen:
                    seen.add(id(each))
                    looked_into.append(each)
