"""Reads messages once: clients resend their whole history, so a parsed and counted message is kept.

The key is the message's own bytes (never a hash a caller could forge), so that nobody can be given
another caller's message. Counting many unseen messages is done off the event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.core.history.message import Message
from app.core.history.read import read_answer, read_message

CountMessage = Callable[[Mapping[str, Any]], int]
Parse = Callable[[bytes, CountMessage, str], Message]

# Reading less than this takes under 5 ms and is done at once; more would hold up every other stream.
INLINE_BYTES = 32_768
# A parsed message takes about this many times its bytes in memory.
OVERHEAD = 3


class MessageReader:
    """A bounded memory of parsed messages, each counted for one model."""

    def __init__(self, counter_for: Callable[[str], CountMessage], cache_bytes: int) -> None:
        self._counter_for = counter_for
        self._room = cache_bytes // OVERHEAD
        self._held = 0
        self._seen: OrderedDict[tuple[str, bytes], Message] = OrderedDict()

    async def read(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """The messages, in order. InvalidField, naming the message, when one is not a chat message."""
        return await self._read(raws, model, read_message)

    async def read_stored(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """As `read`, for messages that were stored: an answer's object may have any shape."""
        return await self._read(raws, model, lambda raw, count, _: read_answer(raw, count))

    def read_answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """What an upstream answered, in order; an object of any shape is taken."""
        count = self._counter_for(model)
        answers = tuple(read_answer(raw, count) for raw in raws)
        for answer in answers:
            self._keep(model, answer)
        return answers

    async def _read(self, raws: Sequence[bytes], model: str, parse: Parse) -> tuple[Message, ...]:
        unseen = [raw for raw in raws if (model, raw) not in self._seen]
        if sum(map(len, unseen)) > INLINE_BYTES:
            fresh = await asyncio.to_thread(self._parsed, raws, model, parse)
        else:
            fresh = self._parsed(raws, model, parse)
        for message in fresh:
            self._keep(model, message)
        return fresh

    def _parsed(self, raws: Sequence[bytes], model: str, parse: Parse) -> tuple[Message, ...]:
        count = self._counter_for(model)
        seen = self._seen
        return tuple(
            seen.get((model, raw)) or parse(raw, count, f"messages[{index}]")
            for index, raw in enumerate(raws)
        )

    def _keep(self, model: str, message: Message) -> None:
        key = (model, message.raw)
        if key in self._seen:
            self._seen.move_to_end(key)
            return
        self._seen[key] = message
        self._held += len(message.raw)
        while self._held > self._room and self._seen:
            (_, raw), _ = self._seen.popitem(last=False)
            self._held -= len(raw)
