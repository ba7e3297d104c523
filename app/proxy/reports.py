"""What an exchange tells about itself: response headers for the client, one log line for the operator.

Ids, sizes and words from fixed lists; never contents, never keys.
"""

from __future__ import annotations

from app.proxy.turn import Shown, Turn


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
