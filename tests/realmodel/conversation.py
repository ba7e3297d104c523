"""A conversation with the real model through the proxy, and what it came to in figures.

Asserts nothing but that every turn is answered; knows nothing of how a view is made.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.kit.chat import Chat
from tests.kit.proxy import Front
from tests.realmodel.talk import FACTS, SYSTEM, letter

Json = dict[str, Any]
MODEL = "smollm2"
ANSWER_TOKENS = 16
# A busy machine reads 30 tokens a second: a whole window takes two minutes.
PATIENCE_SECONDS = 600.0


def client_of(front: Front, session: str, **extra: Any) -> Chat:
    """A client that wants short answers, always the same ones, and the usage in a stream."""
    asked = {"model": MODEL, "max_tokens": ANSWER_TOKENS, "temperature": 0}
    usage = {"stream_options": {"include_usage": True}}
    return front.chat(system=SYSTEM, session=session, extra=asked | usage | extra)


def usage_of(reply: httpx.Response) -> Json:
    """The usage of an answer, streamed or not; empty when it states none."""
    if not reply.headers["content-type"].startswith("text/event-stream"):
        return reply.json().get("usage") or {}
    events = [event.removeprefix("data: ") for event in reply.text.split("\n\n")]
    chunks = [json.loads(event) for event in events if event.startswith("{")]
    return next((chunk["usage"] for chunk in chunks if chunk.get("usage")), {})


@dataclass
class Turns:
    """The turns of one conversation as they went."""

    chat: Chat
    usages: list[Json] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    async def go_on(self, turns: int) -> None:
        """So many more letters, every second one answered in a stream."""
        for _ in range(turns):
            number = len(self.usages)
            self.chat.stream = number % 2 == 1
            started = time.monotonic()
            await self.chat.says(letter(number))
            self.seconds.append(time.monotonic() - started)
            self.usages.append(usage_of(self.chat.reply))

    @property
    def full_tokens(self) -> int:
        """What the newest request was before anything was folded, in the proxy's count."""
        return int(self.chat.reply.headers["x-palimpsest-tokens"].split("/")[0])

    @property
    def largest_prompt(self) -> int:
        """The largest prompt the model read, in its own count."""
        return max(int(usage["prompt_tokens"]) for usage in self.usages)

    async def figures(self) -> Json:
        """One line of a report."""
        compactions = await self.chat.compactions()
        shown = json.dumps((await self.chat.view())["parts"])
        planted = FACTS[: len(self.usages)]
        cached = sum(usage.get("prompt_tokens_details", {}).get("cached_tokens", 0) for usage in self.usages)
        return {
            "turns": len(self.usages),
            "full_tokens": self.full_tokens,
            "largest_prompt_tokens": self.largest_prompt,
            "prompt_tokens": sum(usage["prompt_tokens"] for usage in self.usages),
            "cached_tokens": cached,
            "compactions": dict(Counter(compaction["author"] for compaction in compactions)),
            "facts_shown": f"{sum(fact in shown for fact in planted)} of {len(planted)}",
            "seconds": round(sum(self.seconds), 1),
            "slowest_turn_seconds": round(max(self.seconds), 1),
        }
