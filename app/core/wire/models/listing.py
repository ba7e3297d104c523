"""The list of models that several servers make together, each model by the name that clients ask for it by.

Entries are kept as their server wrote them, but for that name. Knows nothing of how lists are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_spans import outline
from app.core.wire.json_text import decoded, encoded, verify
from app.core.wire.models.names import ModelPattern
from app.errors import InvalidJson

# A model's id, and its entry as it stands in a list.
Entry: TypeAlias = tuple[str, bytes]


def entries_of(body: bytes) -> list[Entry] | None:
    """The models that the answer to `GET /models` lists, none without an id; None when it is no such list."""
    try:
        verify(body)
    except InvalidJson:
        return None
    data = raw_members(body).get("data")
    if data is None or not data.lstrip().startswith(b"["):
        return None
    found = [(decoded(raw_members(raw).get("id", b"null")), raw) for raw in raw_elements(data)]
    return [(name, raw) for name, raw in found if isinstance(name, str)]


def offered(models: ModelPattern, entries: Sequence[Entry]) -> list[Entry]:
    """The models of a server that clients may ask for, by the names that they ask by."""
    called = [(models.called(name), raw) for name, raw in entries]
    return [(name, _named(raw, name)) for name, raw in called if name is not None]


def merged(body: bytes, routed: Sequence[Entry], is_taken: Callable[[str], bool]) -> bytes:
    """The list that `body` is, with those of other servers behind its own; of equal names theirs count.

    Its own that `is_taken` are left out where they are listed elsewhere. Members beside `data` stay.
    """
    theirs = dict(reversed(routed))
    own = [raw for name, raw in entries_of(body) or () if not (name in theirs and is_taken(name))]
    member = outline(body).last("data")
    if member is None:
        return body
    data = b"[" + b",".join([*own, *reversed(theirs.values())]) + b"]"
    return body[: member.start] + data + body[member.end :]


def _named(raw: bytes, name: str) -> bytes:
    member = outline(raw).last("id")
    return raw if member is None else raw[: member.start] + encoded(name) + raw[member.end :]
