"""What a request's body carries beside its messages, cut so that what repeats is stored once. Pure.

Long values, such as tools, are pieces of their own: of two requests that differ in a short member alone, only
the short rest is stored again.
"""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.wire.json_spans import outline
from palimpsest.core.wire.json_text import array_of
from palimpsest.core.wire.request import ChatRequest, Edit, edited

# Bytes that valid JSON contains nowhere: the place of the messages, and of a piece.
_MESSAGES, _PIECE = b"\x01", b"\x00"
# Shorter values stay in the rest: a piece of its own costs some 150 bytes.
_LONG_BYTES = 512


def envelope_of(
    request: ChatRequest, edits: Sequence[Edit] = (), *, is_spliced: bool = False
) -> tuple[bytes, ...]:
    """The rest of the body with marks for what is cut out, then the long values in their order.

    `edits` are those made in the body beside its messages. Messages that are no list stay in the rest, unless
    a list was put in their place (`is_spliced`). Empty for a body with bytes that JSON does not allow.
    """
    body, at = request.body, request.messages_at
    if _PIECE in body or _MESSAGES in body:
        return ()
    cuts = [(*at, _MESSAGES)] if is_spliced or body.startswith(b"[", at[0]) else []
    pieces, left = [], list(edits)
    for member in request.shape.members:
        start, end = member.start, member.end
        if end - start < _LONG_BYTES or (start, end) == at:
            continue
        near = [edit for edit in left if edit[0] < end and start < edit[1]]
        if all(start <= edit[0] and edit[1] <= end for edit in near):
            pieces.append(edited(body[start:end], [(a - start, b - start, value) for a, b, value in near]))
            cuts.append((start, end, _PIECE))
            left = [edit for edit in left if edit not in near]
    return (edited(body, [*cuts, *left]), *pieces)


def body_with(envelope: Sequence[bytes], messages: Sequence[bytes]) -> bytes:
    """The body with these messages, each JSON; white space between the client's own is not kept."""
    rest, *pieces = envelope
    texts = rest.split(_PIECE)
    whole = b"".join([part for pair in zip(texts, [*pieces, b""], strict=True) for part in pair])
    return whole.replace(_MESSAGES, array_of(messages), 1)


def tools_in(envelope: Sequence[bytes]) -> bytes | None:
    """The raw tools of the body; None without any."""
    if not envelope:
        return None
    body = body_with(envelope, ())
    member = outline(body).last("tools")
    return body[member.start : member.end] if member else None
