"""Which models a pattern means, and the name under which a server is asked for them.

Knows nothing of servers, nor of what a body holds besides its model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from app.core.wire.json_spans import Outline, outline
from app.core.wire.json_text import encoded

STAR = "*"
_ANY = {STAR: "(.*)", "?": "."}


@dataclass(frozen=True, slots=True)
class ModelPattern:
    """Models by a name, or a pattern with * and ?, compared without regard to case.

    `asked` is the name that their server is asked for, None: the one that the client says. A * in it stands
    for what the first * of `match` stands for, as the client spells it.
    """

    match: str
    asked: str | None = None
    _folded: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", self.match.casefold())

    def means(self, model: str) -> bool:
        """True when `model` is one of them."""
        return fnmatchcase(model.casefold(), self._folded)

    def asked_for(self, model: str) -> str:
        """The name that the server of `model`, which is one of them, is asked for."""
        if self.asked is None or STAR not in self.asked:
            return model if self.asked is None else self.asked
        spelled = "".join(_ANY.get(letter) or re.escape(letter) for letter in self.match)
        found = re.fullmatch(spelled, model, re.IGNORECASE | re.DOTALL)
        # Case is folded a little further above ("ß" is "ss" there): such a name goes on as it is.
        return self.asked.replace(STAR, found[1], 1) if found else model

    def called(self, name: str) -> str | None:
        """What clients call the model that its server calls `name`; None where no one name can be told."""
        if self.asked is None:
            return name if self.means(name) else None
        before, star, after = self.asked.partition(STAR)
        middle = name[len(before) : len(name) - len(after)] if star else ""
        said = self.match.replace(STAR, middle, 1) if star else self.match
        is_one = not any(mark in said for mark in "*?[")
        return said if is_one and self.means(said) and self.asked_for(said) == name else None


def model_edit(shape: Outline, name: str) -> list[tuple[int, int, bytes]]:
    """What makes a body of that shape ask for another model; nothing where it names none."""
    member = shape.last("model")
    return [] if member is None else [(member.start, member.end, encoded(name))]


def with_model(body: bytes, name: str) -> bytes:
    """The body, valid JSON, asking for another model, all other bytes untouched."""
    # However deep it is nested: nothing but the outermost members is looked at.
    for start, end, value in model_edit(outline(body, len(body)), name):
        return body[:start] + value + body[end:]
    return body
