"""Reads messages once: clients resend their whole history, so a parsed and counted message is kept.

The key is the message's own bytes (never a hash a caller could forge), so that nobody can be given
another caller's message. Counting many unseen messages is done off the event loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from app.core.history.message import Message
from app.core.history.read import read_answer, read_message
from app.core.wire.json_members import is_plain
from app.proxy.offload import offload

CountMessage = Callable[[Mapping[str, Any]], int]
Parse = Callable[[bytes, CountMessage], Message]

# Reading less than this takes under 5 ms and is done at once; more would hold up every other stream.
INLINE_BYTES = 32_768
# Messages looked for, or remembered, at a time: about 3 ms.
_SLICE = 2_000
# No stricter than the default for requests: what is nested deeper is not remembered.
LEVELS = 64
# Bytes that a parsed message takes beside its own and its text's: the objects that it is made of (4.2 kB a
# message of 1.4 kB measured, 2026-11).
_OBJECTS_BYTES = 1_200
# What takes more than this part of the memory is not remembered: one picture would drive out everything else.
_LARGEST_SHARE = 8


class MessageReader:
    """A memory of parsed messages, each counted for one model, bounded by what they take of it."""

    def __init__(
        self,
        counter_for: Callable[[str], CountMessage],
        cache_bytes: int,
        is_ready: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_ready` is false of a model whose counter takes long to make, as its encoding is not loaded."""
        self._counter_for = counter_for
        self._is_ready = is_ready
        self._room = cache_bytes
        self._held = 0
        self._seen: OrderedDict[tuple[str, bytes], Message] = OrderedDict()

    def has_accepted(self, model: str, raw: bytes) -> bool:
        """True when these bytes are remembered: nothing remembered repeats a key or nests too deeply."""
        return (model, raw) in self._seen

    async def read(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """The messages, in order."""
        fresh, messages = await self._read(raws, model, read_message)
        await self._kept(model, fresh)
        return messages

    async def read_stored(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """As `read`, for messages that were stored: an answer's object may have any shape."""
        fresh, messages = await self._read(raws, model, read_answer)
        await self._kept(model, await offload(sum(len(m.raw) for m in fresh), _plain, fresh))
        return messages

    def read_answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """What an upstream answered, in order; an object of any shape is taken."""
        answers = self._answers(raws, model)
        self._keep(model, _plain(answers))
        return answers

    async def read_long_answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        """As `read_answers`; counting a byte costs some eight times what reading it does."""
        weight = 8 * sum(map(len, raws))
        answers = await offload(weight, self._answers, raws, model)
        await self._kept(model, await offload(weight, _plain, answers))
        return answers

    def _answers(self, raws: Sequence[bytes], model: str) -> tuple[Message, ...]:
        count = self._counter_for(model)
        return tuple([read_answer(raw, count) for raw in raws])

    def forget(self, digests: Collection[bytes]) -> None:
        """Messages whose bytes have these sha256 are not remembered any more."""
        for key in [key for key, message in self._seen.items() if message.digest in digests]:
            self._held -= _weight(self._seen.pop(key))

    async def _read(
        self, raws: Sequence[bytes], model: str, parse: Parse
    ) -> tuple[Sequence[Message], tuple[Message, ...]]:
        """Those that had to be parsed, and all."""
        found: list[Message | None] = []
        for start in range(0, len(raws), _SLICE):
            if start:
                await asyncio.sleep(0)
            found += [self._remembered((model, raw)) for raw in raws[start : start + _SLICE]]
        unseen = [index for index, message in enumerate(found) if message is None]
        is_much = sum(len(raws[index]) for index in unseen) > INLINE_BYTES
        if is_much or (unseen and not self._is_ready(model)):
            fresh = await asyncio.to_thread(self._parsed, raws, unseen, model, parse)
        else:
            fresh = self._parsed(raws, unseen, model, parse)
        rest = iter(fresh)
        return fresh, tuple([message or next(rest) for message in found])

    def _remembered(self, key: tuple[str, bytes]) -> Message | None:
        message = self._seen.get(key)
        if message is not None:
            self._seen.move_to_end(key)
        return message

    def _parsed(
        self, raws: Sequence[bytes], unseen: Sequence[int], model: str, parse: Parse
    ) -> Sequence[Message]:
        count = self._counter_for(model)
        return [parse(raws[index], count) for index in unseen]

    async def _kept(self, model: str, messages: Sequence[Message]) -> None:
        """As `_keep`, with a pause after so many: 20,000 take 40 ms."""
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
    """About the bytes of memory that a message takes.

    One character beyond Latin-1 makes every one of its text take two bytes, or four.
    """
    content = message.fields.get("content")
    text = sys.getsizeof(content) if isinstance(content, str) else 4 * len(message.raw)
    return _OBJECTS_BYTES + len(message.raw) + text


def _plain(answers: Sequence[Message]) -> list[Message]:
    """Those a client might send: an upstream may repeat keys, a client may not."""
    return [answer for answer in answers if is_plain(answer.raw, LEVELS)]
