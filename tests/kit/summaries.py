"""A model that writes summaries, fails or waits as a test wants, and conversations that need one.

Knows nothing of what is asserted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.kit.chat import Chat
from tests.kit.journal import read
from tests.kit.model import Says, Seen, plain_summary
from tests.kit.proxy import Front
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
# Begins at 5,600 tokens as we count them, and asks one question an attempt.
ROLLING: Json = {
    "policy.name": "rolling",
    "policy.advanced.trigger_reserve_tokens": 0,
    "policy.advanced.breaker_failures": 100,
    "compaction.summary_backoff_seconds": 0.1,
}


class Held:
    """A summarizer that answers when it is let go. `asked` is set as soon as somebody has asked."""

    def __init__(self, tells: Callable[[Seen], Says]) -> None:
        self._tells = tells
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()

    async def __call__(self, seen: Seen) -> Says:
        self.asked.set()
        await self.let_go.wait()
        return self._tells(seen)


class Writer:
    """Writes summaries, or fails as it is told to; `held` it waits until it is let go.

    `calls` are the times at which calls began and ended, in that order.
    """

    def __init__(self, *failures: Says, held: bool = False) -> None:
        self.failures = deque(failures)
        self.asked = asyncio.Queue[Seen]()
        self.let_go = asyncio.Event()
        self.running = 0
        self.most = 0
        self.calls: list[tuple[str, float]] = []
        if not held:
            self.let_go.set()

    async def __call__(self, seen: Seen) -> Says:
        self.running += 1
        self.most = max(self.most, self.running)
        self.calls.append(("began", time.monotonic()))
        self.asked.put_nowait(seen)
        await self.let_go.wait()
        self.calls.append(("ended", time.monotonic()))
        self.running -= 1
        if self.failures:
            return self.failures.popleft()
        return Says({"role": "assistant", "content": plain_summary(seen)})

    async def is_asked(self) -> Seen:
        """The next question, as soon as there is one."""
        async with asyncio.timeout(20):
            return await self.asked.get()


def broken(status: int = 500) -> Says:
    return Says(status=status, error={"error": {"message": "broke", "type": "server_error"}})


async def grown(chat: Chat, tokens: int = 5_600) -> None:
    """The conversation stands at or above so many tokens, by its newest question."""
    while not chat.replies or int(chat.reply.headers["x-palimpsest-tokens"].split("/")[0]) < tokens:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 390)}")


async def is_compacting(proxy: Front, chat: Chat) -> bool:
    status = await read(proxy.http, chat, f"sessions/{chat.session}/status")
    return bool(status["compacting"])


async def quiet(proxy: Front, chat: Chat) -> None:
    """No summary is being written for the conversation any more."""
    async with asyncio.timeout(20):
        while await is_compacting(proxy, chat):
            pass
