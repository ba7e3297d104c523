"""Reads messages once: clients resend their whole history, so a parsed and counted message is kept.

The key is the message's own bytes (never a hash a caller could forge), so that nobody can be given
another caller's message. Counting many unseen messages is done off the event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from app.core.history.message import Message
from app.core.history.read import read_answer, read_message
from app.core.wire.json_members import is_plain

CountMessage = Callable[[Mapping[str, Any]], int]
Parse = Callable[[bytes, CountMessage], Message]

# Reading less than this takes under 5 ms and is done at once; more would hold up every other stream.
INLINE_BYTES = 32_768
# No stricter than the default for requests: what is nested deeper is not remembered.
LEVELS = 64
# A parsed message takes about this many times its bytes in memory.
OVERHEAD = 3


class MessageReader:
    """A bounded memory of parsed messages, each counted for one model."""

    def __init__(self, counter_for: Callable[[str], CountMessage], cache_bytes: int) -> None:
        self._counter_for = counter_for
        self._room = cache_bytes // OVERHEAD
        self._held = 0
        self._seen: OrderedDict[tuple[str, bytes], Message] = OrderedDict()

    def has_accepted(self, model: str, raw: bytes) -> bool:
        """True when these bytes are remembered: nothing remembered repeats a key or nests too deeply."""
        return (model, raw) in self._seen

    async def read(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """The messages, in order."""
        fresh, messages = await self._read(raws, model, read_message)
        self._keep(model, fresh)
        return messages

    async def read_stored(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """As `read`, for messages that were stored: an answer's object may have any shape."""
        fresh, messages = await self._read(raws, model, read_answer)
        self._keep(model, _plain(fresh))
        return messages

    def read_answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """What an upstream answered, in order; an object of any shape is taken."""
        count = self._counter_for(model)
        answers = tuple([read_answer(raw, count) for raw in raws])
        self._keep(model, _plain(answers))
        return answers

    def forget(self, digests: Collection[bytes]) -> None:
        """Messages whose bytes have these sha256 are not remembered any more."""
        for key in [key for key, message in self._seen.items() if message.digest in digests]:
            del self._seen[key]
            self._held -= len(key[1])

    async def _read(
        self, raws: Sequence[bytes], model: str, parse: Parse
    ) -> tuple[Sequence[Message], tuple[Message, ...]]:
        """Those that had to be parsed, and all."""
        keys = [(model, raw) for raw in raws]
        found = [self._seen.get(key) for key in keys]
        unseen = [index for index, message in enumerate(found) if message is None]
        for key, message in zip(keys, found, strict=True):
            if message is not None:
                self._seen.move_to_end(key)
        if sum(len(raws[index]) for index in unseen) > INLINE_BYTES:
            fresh = await asyncio.to_thread(self._parsed, raws, unseen, model, parse)
        else:
            fresh = self._parsed(raws, unseen, model, parse)
        rest = iter(fresh)
        return fresh, tuple([message or next(rest) for message in found])

    def _parsed(
        self, raws: Sequence[bytes], unseen: Sequence[int], model: str, parse: Parse
    ) -> Sequence[Message]:
        count = self._counter_for(model)
        return [parse(raws[index], count) for index in unseen]

    def _keep(self, model: str, messages: Sequence[Message]) -> None:
        for message in messages:
            key = (model, message.raw)
            if key in self._seen:
                continue
            self._seen[key] = message
            self._held += len(message.raw)
            while self._held > self._room and self._seen:
                (_, raw), _ = self._seen.popitem(last=False)
                self._held -= len(raw)


def _plain(answers: Sequence[Message]) -> list[Message]:
    """Those a client might send: an upstream may repeat keys, a client may not."""
    return [answer for answer in answers if is_plain(answer.raw, LEVELS)]
