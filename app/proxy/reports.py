"""What an exchange tells about itself: response headers for the client, one log line for the operator.

Ids, sizes and words from fixed lists; never contents, never keys.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import structlog

from app.proxy.jobs import Jobs
from app.proxy.turn import Shown, Turn

# Lines are written so much later at most.
LOG_SECONDS = 0.05
_log = structlog.get_logger("palimpsest.exchange")


class ExchangeLog:
    """One line for each exchange, at its end, a moment later: written together they cost a third."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._ended: list[Mapping[str, object]] = []

    def note(self, turn: Turn, status: int | None) -> None:
        """The exchange has ended; `status` is None when the client was never answered."""
        if not self._ended:
            self._jobs.start(self._written())
        now = time.time()
        self._ended.append(
            {
                "session": turn.session,
                "exchange": turn.exchange,
                "mode": turn.mode,
                "found": turn.placement.found_by,
                "new_messages": len(turn.placement.new),
                "tokens": turn.tokens,
                "status": status,
                "seconds": round(now - turn.started_at, 3),
                "ended_at": round(now, 3),
            }
        )

    async def _written(self) -> None:
        await asyncio.sleep(LOG_SECONDS)
        ended, self._ended = self._ended, []
        for fields in ended:
            _log.info("exchange", **fields)


def compaction_comment(turn: Turn, shown: Shown) -> bytes:
    """A comment of server-sent events, which clients skip; empty where nothing is folded or masked."""
    compaction = shown.view.compaction
    if compaction is None:
        return b""
    return f": palimpsest compaction={compaction.id} tokens={turn.tokens}/{shown.tokens}\n\n".encode()


def exchange_headers(turn: Turn, shown: Shown, *, tells_view: bool = True) -> list[tuple[bytes, bytes]]:
    """The x-palimpsest headers of an answer; `tells_view`: what the model was shown is among them."""
    compaction = shown.view.compaction
    said = f"{turn.mode}; found={turn.placement.found_by}"
    said += f"; carrier={turn.carrier}" if turn.carrier else ""
    said += "; continues=no" if turn.is_apart else ""
    headers = [
        (b"x-palimpsest-session", turn.session.encode()),
        (b"x-palimpsest-mode", said.encode()),
    ]
    if not tells_view:
        return headers
    headers += [
        (b"x-palimpsest-view", b"original" if compaction is None else b"compacted"),
        (b"x-palimpsest-tokens", f"{turn.tokens}/{shown.tokens}".encode()),
    ]
    if compaction is not None:
        headers.append((b"x-palimpsest-compaction", compaction.id.encode()))
    return headers
