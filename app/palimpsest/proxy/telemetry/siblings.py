"""How the workers of one `serve` ask each other for their numbers, so that one scrape reads them all.

Each worker has an inbox, a pair of datagram sockets made before the fork. Whoever asks sends one end of a
new connection into it and reads the answer from the other end. No file or port is needed, and no other
process can ask. A worker started in the place of a dead one inherits its inbox.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog

from palimpsest.proxy.jobs import Jobs

# How long a scrape waits for a worker, in seconds. Its event loop answers in milliseconds unless it is stuck;
# Prometheus gives up after 10 s.
_PATIENCE_SECONDS = 2.0
_PIECE_BYTES = 65_536
_ASKING = b"?"
_log = structlog.get_logger("palimpsest.workers")


class Inboxes:
    """The inboxes of `count` workers. Made in the process that forks them."""

    def __init__(self, count: int) -> None:
        self._pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        for pair in self._pairs:
            for end in pair:
                end.setblocking(False)

    def at(self, place: int) -> Siblings:
        """The worker at this place, from 0."""
        outboxes = {str(other): pair[1] for other, pair in enumerate(self._pairs) if other != place}
        return Siblings(str(place), self._pairs[place][0], outboxes)


@dataclass(frozen=True, slots=True)
class Siblings:
    """One worker's inbox, and the way into the others' by name. `name`: its own."""

    name: str
    inbox: socket.socket
    outboxes: Mapping[str, socket.socket]

    def answer_with(self, numbers: Callable[[], Awaitable[bytes]], jobs: Jobs) -> Callable[[], None]:
        """Answer the others with `numbers` until the returned function is called."""
        loop = asyncio.get_running_loop()

        async def answered(asker: socket.socket) -> None:
            # OSError: the asker did not wait.
            with asker, suppress(OSError):
                asker.setblocking(False)
                await loop.sock_sendall(asker, await numbers())

        def asked() -> None:
            with suppress(BlockingIOError):
                for descriptor in socket.recv_fds(self.inbox, len(_ASKING), 1)[1]:
                    jobs.start(answered(socket.socket(fileno=descriptor)))

        def stop() -> None:
            loop.remove_reader(self.inbox.fileno())

        loop.add_reader(self.inbox.fileno(), asked)
        return stop

    async def asked(self) -> dict[str, bytes]:
        """The others' numbers by their names; those that do not answer in time are left out, and logged."""
        answers = await asyncio.gather(*map(_asked, self.outboxes.values()))
        found = {name: answer for name, answer in zip(self.outboxes, answers, strict=True) if answer}
        if silent := self.outboxes.keys() - found.keys():
            _log.warning("worker_not_scraped", workers=sorted(silent))
        return found


async def _asked(outbox: socket.socket) -> bytes:
    """The answer; empty when none comes in time, or the inbox is full."""
    mine, theirs = socket.socketpair()
    answer = bytearray()
    with mine, suppress(TimeoutError, OSError):
        mine.setblocking(False)
        with theirs:
            socket.send_fds(outbox, [_ASKING], [theirs.fileno()])
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while piece := await asyncio.get_running_loop().sock_recv(mine, _PIECE_BYTES):
                answer += piece
            return bytes(answer)
    return b""
