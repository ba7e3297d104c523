"""Clients that ask as fast as they are answered: raw sockets, so that the load costs little itself.

Knows nothing of who answers. A client is one connection and one conversation at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from benchmarks.servers import STAMP, WORDS

_SYSTEM = {"role": "system", "content": "You are a helpful assistant of the measuring department. " * 8}
_ANSWER = json.dumps({"role": "assistant", "content": WORDS}, separators=(",", ":")).encode()
_STAMPS = re.compile(re.escape(STAMP) + rb'(\d+)"')
_QUESTION = "What would you measure next, and why would it tell us more than the last figure? " * 6


@dataclass(frozen=True, slots=True)
class Talk:
    """What clients ask for.

    `turns` is the number of questions in a conversation, each sent with its whole past; `pace` the
    milliseconds between two frames of a streamed answer, None for an answer in one piece. `past` is
    the number of messages that are there before the first question.
    """

    turns: int = 1
    pace: int | None = None
    past: int = 0
    path: str = "/v1/chat/completions"


@dataclass(slots=True)
class Figures:
    """What was seen, in nanoseconds: whole answers, first bytes of answers, ages of frames on arrival."""

    answers: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def forget(self) -> None:
        """What was seen while warming up does not count."""
        for seen in (self.answers, self.firsts, self.ages):
            seen.clear()


class Client(asyncio.Protocol):
    """One connection; `asked` is the time of the request under way."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._left = 0
        self._head = b""
        self._tail = b""
        self._asked = 0
        self._first = False
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left waiting."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))

    async def ask(self, request: bytes) -> None:
        """The answer has arrived whole."""
        self._head, self._tail, self._first = b"", b"", True
        self._done = asyncio.get_running_loop().create_future()
        self._asked = time.perf_counter_ns()
        self._transport.write(request)
        await self._done
        self._figures.answers.append(time.perf_counter_ns() - self._asked)

    def data_received(self, data: bytes) -> None:
        """The head, a piece of the body, or both."""
        if self._head or self._left:
            self._body(data)
            return
        head, end, rest = (self._tail + data).partition(b"\r\n\r\n")
        if not end:
            self._tail = head
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode("latin-1") + rest.decode("latin-1"))
        self._head, self._tail = head, b""
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        self._left = int(length) if length else -1
        if rest:
            self._body(rest)

    def _body(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        if self._first:
            self._first = False
            self._figures.firsts.append(now - self._asked)
        if self._left > 0:
            self._left -= len(data)
            ended = not self._left
        else:
            # A stamp that two reads divide is passed over.
            self._figures.ages.extend(now - int(stamp) for stamp in _STAMPS.findall(data))
            self._tail = self._tail[-4:] + data[-5:]
            ended = self._tail.endswith(b"0\r\n\r\n")
        if ended and self._done is not None:
            self._head, self._left = b"", 0
            self._done.set_result(None)


class Conversation:
    """The requests of one conversation, byte by byte as a client would send them."""

    def __init__(self, talk: Talk, number: int) -> None:
        self._talk = talk
        self._number = number
        said = ({"role": "user", "content": f"{number} {i} " + _QUESTION * 5} for i in range(talk.past // 2))
        past = ((json.dumps(question).encode(), _ANSWER) for question in said)
        self._messages = [json.dumps(_SYSTEM).encode(), *itertools.chain.from_iterable(past)]
        self._turn = 0

    @property
    def is_over(self) -> bool:
        """No question is left."""
        return self._turn == self._talk.turns

    def request(self) -> bytes:
        """The next question with its past."""
        question = {"role": "user", "content": f"{self._number} {self._turn} {_QUESTION}"}
        if self._turn:
            self._messages.append(_ANSWER)
        self._messages.append(json.dumps(question).encode())
        self._turn += 1
        pace = self._talk.pace
        stream = b"false" if pace is None else b"true"
        body = b'{"model":"m","temperature":0.2,"stream":%b,"messages":[%b]}' % (
            stream,
            b",".join(self._messages),
        )
        return b"".join((
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n" % self._talk.path.encode(),
            b"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.0\r\n",
            b"X-Stainless-Retry-Count: 0\r\nX-Stainless-Lang: python\r\n",
            b"Authorization: Bearer sk-measured\r\n",
            b"" if pace is None else b"X-Pace: %d\r\n" % pace,
            b"Content-Length: %d\r\n\r\n" % len(body),
            body,
        ))  # fmt: skip


async def load(
    port: int,
    talk: Talk,
    clients: int,
    seconds: float,
    cpu: Callable[[], float],
    numbers: itertools.count[int],
) -> Figures:
    """What so many clients see in so many seconds, and what `cpu` rises by meanwhile.

    Each begins by asking once uncounted, and finishes the answer it waits for.
    """
    figures = Figures()
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: Client(figures), "127.0.0.1", port) for _ in range(clients)]
    talks = [Conversation(talk, next(numbers)) for _ in made]
    await asyncio.gather(*(client.ask(own.request()) for (_, client), own in zip(made, talks, strict=True)))
    figures.forget()
    begun, spent = time.perf_counter(), cpu()

    async def talking(client: Client, conversation: Conversation) -> None:
        while time.perf_counter() - begun < seconds:
            if conversation.is_over:
                conversation = Conversation(talk, next(numbers))
            await client.ask(conversation.request())

    await asyncio.gather(*(talking(client, own) for (_, client), own in zip(made, talks, strict=True)))
    figures.seconds, figures.cpu_seconds = time.perf_counter() - begun, cpu() - spent
    for transport, _ in made:
        transport.close()
    return figures
