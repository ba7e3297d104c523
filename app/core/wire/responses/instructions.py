"""The field `instructions` of a request as it is stored: beside the instructions that are messages.

It is no item: it goes out in the request's own field, and never from the store.
"""

from __future__ import annotations

from collections.abc import Iterable

# No client's item begins so: `type` is a word of ours.
_START = b'{"type":"palimpsest.instructions","role":"system","content":'


def stored_field(instructions: bytes) -> bytes:
    """The field's JSON, as the body under which it is stored."""
    return _START + instructions + b"}"


def field_in(bodies: Iterable[bytes]) -> bytes | None:
    """The field's JSON among stored instructions, as it was spelled; None where there was none."""
    found = (body[len(_START) : -1] for body in bodies if body.startswith(_START))
    return next(found, None)


def messages_in(bodies: Iterable[bytes]) -> list[bytes]:
    """Those of the stored instructions that are messages."""
    return [body for body in bodies if not body.startswith(_START)]
