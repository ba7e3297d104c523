"""Parses and counts messages, with a cache: clients resend their whole history.

The key is the message's own bytes, not a hash that a caller could forge, so that nobody can be given another
caller's message. Many unseen messages are counted in a thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from palimpsest.core.history.message import Message
from palimpsest.core.history.read import read_answer, read_message
from palimpsest.core.wire.json_spans import is_plain
from palimpsest.proxy.jobs import offload

CountMessage = Callable[[Mapping[str, Any]], int]
Parse = Callable[[bytes, CountMessage], Message]

# Reading less than this takes under 5 ms and is done inline; more would delay every other stream.
INLINE_BYTES = 32_768
# Cache look-ups, or inserts, between two yields to the loop: about 3 ms.
_SLICE = 2_000
# The default for requests: messages nested deeper are not cached.
LEVELS = 64
# Bytes of a parsed message's objects, beside its raw bytes and its text (4.2 kB for a message of 1.4 kB,
# measured 2026-11).
_OBJECTS_BYTES = 1_200
# A message of more than this fraction (1/n) of the cache is not cached: one picture would evict everything
# else.
_LARGEST_SHARE = 8


class MessageReader:
    """A cache of parsed messages, each counted for one model, bounded by their memory."""

    def __init__(
        self,
        counter_for: Callable[[str], CountMessage],
        cache_bytes: int,
        is_ready: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_ready` is false while a model's encoding is not loaded: its counter then takes long to make."""
        self._counter_for = counter_for
        self._is_ready = is_ready
        self._room = cache_bytes
        self._held = 0
        self._seen: OrderedDict[tuple[str, bytes], Message] = OrderedDict()

    def unaccepted(self, model: str, raws: Sequence[bytes]) -> Sequence[bytes]:
        """Those that are not cached: no cached message repeats a key or nests too deeply."""
        seen = self._seen
        return [raw for raw in raws if (model, raw) not in seen]

    async def read(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """The messages, in order."""
        fresh, messages = await self._read(raws, model, read_message)
        await self._kept(model, fresh)
        return messages

    async def read_stored(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """As `read`, for stored messages: an answer's object may have any shape."""
        fresh, messages = await self._read(raws, model, read_answer)
        await self._kept(model, await offload(sum(len(m.raw) for m in fresh), _plain, fresh))
        return messages

    def read_answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """The answers of an upstream, in order; an object of any shape is accepted."""
        answers = self._answers(raws, model)
        self._keep(model, _plain(answers))
        return answers

    async def read_long_answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """As `read_answers`, in a thread if they are long: counting a byte costs eight times reading it."""
        weight = 8 * sum(map(len, raws))
        answers = await offload(weight, self._answers, raws, model)
        await self._kept(model, await offload(weight, _plain, answers))
        return answers

    def _answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        count = self._counter_for(model)
        return tuple([read_answer(raw, count) for raw in raws])

    def forget(self, digests: Collection[bytes] | None) -> None:
        """Drop messages whose bytes have these sha256 digests; None: all messages."""
        gone = [key for key, message in self._seen.items() if digests is None or message.digest in digests]
        for key in gone:
            self._held -= _weight(self._seen.pop(key))

    async def _read(
        self, raws: Sequence[bytes], model: str, parse: Parse
    ) -> tuple[Sequence[Message], tuple[Message, ...]]:
        """The messages that had to be parsed, and all messages."""
        found: list[Message | None] = []
        seen = self._seen
        for start in range(0, len(raws), _SLICE):
            if start:
                await asyncio.sleep(0)
            for raw in raws[start : start + _SLICE]:
                message = seen.get((model, raw))
                if message is not None:
                    seen.move_to_end((model, raw))
                found.append(message)
        unseen = [index for index, message in enumerate(found) if message is None]
        is_much = sum([len(raws[index]) for index in unseen]) > INLINE_BYTES
        if is_much or not self._is_ready(model):
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

    async def _kept(self, model: str, messages: Sequence[Message]) -> None:
        """As `_keep`, yielding to the loop in between: 20,000 take 40 ms."""
        for start in range(0, len(messages), _SLICE):
            if start:
                await asyncio.sleep(0)
            self._keep(model, messages[start : start + _SLICE])

    def _keep(self, model: str, messages: Sequence[Message]) -> None:
        for message in messages:
            key, weight = (model, message.raw), _weight(message)
            if key in self._seen or weight * _LARGEST_SHARE > self._room:
                continue
            self._seen[key] = message
            self._held += weight
            while self._held > self._room:
                _, oldest = self._seen.popitem(last=False)
                self._held -= _weight(oldest)


def _weight(message: Message) -> int:
    """The approximate memory of a message in bytes.

    One character beyond Latin-1 makes all characters of a text take two bytes, or four.
    """
    content = message.fields.get("content")
    text = sys.getsizeof(content) if isinstance(content, str) else 4 * len(message.raw)
    return _OBJECTS_BYTES + len(message.raw) + text


def _plain(answers: Sequence[Message]) -> list[Message]:
    """The answers that a client may send: an upstream may repeat keys, a client may not."""
    return [answer for answer in answers if is_plain(answer.raw, LEVELS)]
