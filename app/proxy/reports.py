"""What an exchange tells its client about itself: response headers, and a comment before a stream.

Ids, sizes and words from fixed lists; never contents, never keys.
"""

from __future__ import annotations

from app.core.budget.calibration import percent
from app.core.view.compaction import Compaction
from app.proxy.turn import Shown, Turn


def compaction_comment(turn: Turn, shown: Shown) -> bytes:
    """A comment of server-sent events, which clients skip; empty where nothing is folded or masked."""
    compaction = shown.view.compaction
    if compaction is None:
        return b""
    told = (
        f"compaction={compaction.id} tokens={_sizes(turn, shown)} policy={_policy(compaction, turn, shown)}"
    )
    return f": palimpsest {told}\n\n".encode()


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
        (b"x-palimpsest-tokens", _sizes(turn, shown).encode()),
    ]
    if compaction is not None:
        headers.append((b"x-palimpsest-compaction", compaction.id.encode()))
        headers.append((b"x-palimpsest-policy", _policy(compaction, turn, shown).encode()))
    return headers


def _policy(compaction: Compaction, turn: Turn, shown: Shown) -> str:
    """By which policy the view was made, and the shares of the window without and with it (D23)."""
    sizes = (shown.for_model(turn.tokens), shown.for_model(shown.tokens))
    before, after = (percent(tokens, shown.window_tokens) for tokens in sizes)
    return f"{compaction.policy}; before={before}%; after={after}%"


def _sizes(turn: Turn, shown: Shown) -> str:
    """The whole prompt and what is shown of it, as the model counts."""
    return f"{shown.for_model(turn.tokens)}/{shown.for_model(shown.tokens)}"
