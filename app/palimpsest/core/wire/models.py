"""Model names: patterns, the name to ask an upstream for, and the merged model list of several upstreams.

Entries of a list stay as their server wrote them, except for the name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from palimpsest.core.wire.json_spans import ObjectOutline, raw_elements, raw_members, replaced
from palimpsest.core.wire.json_text import array_of, decoded, encoded, verify
from palimpsest.errors import InvalidJson

STAR = "*"
_ANY = {STAR: "(.*)", "?": "."}


@dataclass(frozen=True, slots=True)
class ModelPattern:
    """A model name, or a pattern with * and ?, compared without regard to case.

    `asked` is the name sent to the upstream, None for the client's own. A * in it is replaced by what the
    first * of `match` matched, as the client spelled it.
    """

    match: str
    asked: str | None = None

    def means(self, model: str) -> bool:
        """True when `model` matches."""
        return fnmatchcase(model.casefold(), self.match.casefold())

    def asked_for(self, model: str) -> str:
        """The name to ask the upstream for when the client asks for `model`, which matches."""
        if self.asked is None or STAR not in self.asked:
            return model if self.asked is None else self.asked
        spelled = "".join(_ANY.get(letter) or re.escape(letter) for letter in self.match)
        found = re.fullmatch(spelled, model, re.IGNORECASE | re.DOTALL)
        # `means` folds case further ("ß" matches "ss"): such a name stays unchanged.
        return self.asked.replace(STAR, found[1], 1) if found else model

    def called(self, name: str) -> str | None:
        """The client's name for the model that the upstream calls `name`; None if there is no single one."""
        if self.asked is None:
            return name if self.means(name) else None
        before, star, after = self.asked.partition(STAR)
        middle = name[len(before) : len(name) - len(after)] if star else ""
        said = self.match.replace(STAR, middle, 1) if star else self.match
        is_one = not any(mark in said for mark in "*?[")
        return said if is_one and self.means(said) and self.asked_for(said) == name else None


def model_edit(shape: ObjectOutline, name: str) -> list[tuple[int, int, bytes]]:
    """The edit that puts `name` for the model in a body of that shape; none where it has no model."""
    member = shape.last("model")
    return [] if member is None else [(member.start, member.end, encoded(name))]


def with_model(body: bytes, name: str) -> bytes:
    """The body, valid JSON, with another model; all other bytes untouched."""
    return replaced(body, ("model",), encoded(name))


# A model's id, and its raw entry in a list.
Entry: TypeAlias = tuple[str, bytes]


def entries_of(body: bytes) -> list[Entry] | None:
    """The models in an answer to `GET /models`, without those that lack an id; None if it is not a list."""
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
    """The entries of an upstream that clients may ask for, under the clients' names."""
    called = [(models.called(name), raw) for name, raw in entries]
    return [(name, replaced(raw, ("id",), encoded(name))) for name, raw in called if name is not None]


def merged(body: bytes, routed: Sequence[Entry], is_taken: Callable[[str], bool]) -> bytes:
    """The model list `body` with the entries of other upstreams appended, the first of each name.

    Its own entries whose names are routed elsewhere (`is_taken`) are left out if `routed` lists them. Members
    beside `data` stay.
    """
    theirs = dict(reversed(routed))
    own = [raw for name, raw in entries_of(body) or () if not (name in theirs and is_taken(name))]
    return replaced(body, ("data",), array_of([*own, *reversed(theirs.values())]))
