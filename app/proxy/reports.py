"""What an exchange tells about itself: response headers for the client, one log line for the operator.

Ids, sizes and words from fixed lists; never contents, never keys.
"""

from __future__ import annotations

import time

import structlog

from app.proxy.turn import Shown, Turn

_log = structlog.get_logger("palimpsest.exchange")


def log_exchange(turn: Turn, status: int | None) -> None:
    """The one line of an exchange, at its end; `status` is None when the client was never answered."""
    _log.info(
        "exchange",
        session=turn.session,
        exchange=turn.exchange,
        mode=turn.mode,
        found=turn.placement.found_by,
        new_messages=len(turn.placement.new),
        tokens=turn.tokens,
        status=status,
        seconds=round(time.time() - turn.started_at, 3),
    )


def compaction_comment(turn: Turn, shown: Shown) -> bytes:
    """A comment of server-sent events, which clients skip; empty where nothing is folded or masked."""
    compaction = shown.view.compaction
    if compaction is None:
        return b""
    return f": palimpsest compaction={compaction.id} tokens={turn.tokens}/{shown.tokens}\n\n".encode()


def exchange_headers(turn: Turn, shown: Shown, *, tells_view: bool = True) -> list[tuple[bytes, bytes]]:
    """The x-palimpsest headers of an answer; `tells_view`: what the model was shown is among them."""
    compaction = shown.view.compaction
    headers = [
        (b"x-palimpsest-session", turn.session.encode()),
        (b"x-palimpsest-mode", f"{turn.mode}; found={turn.placement.found_by}".encode()),
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
