"""The body of a request, whichever wire it speaks: its outline, and its fields as servers read them.

Knows nothing of what messages or items mean. The body is never re-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.core.wire.json_members import is_plain, members_of
from app.core.wire.json_spans import Outline, Span, outline, refuse_deeper
from app.core.wire.json_text import decoded, verify
from app.errors import InvalidJson, NotUnderstood

_YES = frozenset({"true", "1", "yes", "on", "t", "y"})
# More digits than this no limit has, and Python takes long to read them.
_DIGITS = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what is accepted: levels of nesting and messages of one request, both inclusive."""

    depth: int = 128
    messages: int = 100_000


# Says of a message, with the model it is for, that its bytes have been accepted before.
IsAccepted = Callable[[str, bytes], bool]


class RequestBody:
    """A request's body, of which the array `listed` holds what is said; `shape` is its outline.

    Making one raises InvalidJson for what is not JSON (see `json_text.verify`) or repeats a key at the top
    or inside an element (readers disagree on which one counts), NestedTooDeep for what is nested too deeply
    and NotUnderstood for what is no object.
    """

    def __init__(self, body: bytes, limits: Limits, listed: str) -> None:
        self._listed = listed
        self._limits = limits
        self._quick = members_of(body)
        self.raw = body
        self.shape = self._careful() if self._quick is None else Outline(self._quick, ())
        self.fields = Fields(body, self.shape)

    def elements(self) -> tuple[Span, ...]:
        """Where the list's elements stand. NotUnderstood: it is no list, empty, too long, not of objects."""
        member = self.shape.last(self._listed)
        elements = member.elements if member is not None else ()
        if not elements:
            raise NotUnderstood("there is no list of messages", param=self._listed)
        if len(elements) > self._limits.messages:
            raise NotUnderstood(f"there are more than {self._limits.messages} messages", param=self._listed)
        for index, (start, _) in enumerate(elements):
            if not self.raw.startswith(b"{", start):
                raise NotUnderstood("a message is no object", param=f"{self._listed}[{index}]")
        return elements

    def examine(self, unseen: Sequence[bytes]) -> None:
        """Looks at what the quick way has not: nesting, and keys repeated in the elements `unseen`."""
        if self._quick is None:
            return
        for member in self._quick:
            if member.key != self._listed:
                refuse_deeper(self.raw[member.start : member.end], self._limits.depth - 1)
        # An element stands two levels deep.
        if not all(is_plain(raw, self._limits.depth - 2) for raw in unseen):
            self._careful()

    def _careful(self) -> Outline:
        """The outline of the body; InvalidJson, saying what is wrong, when there is no one way to read it."""
        verify(self.raw)
        if not self.raw.lstrip(b" \t\r\n").startswith(b"{"):
            raise NotUnderstood("the body is no JSON object")
        shape = outline(self.raw, self._limits.depth)
        for duplicate in shape.duplicates:
            if duplicate.under is None:
                raise InvalidJson("a key is repeated", param=duplicate.key)
            if duplicate.under == self._listed:
                at = f"{self._listed}[{duplicate.element}]"
                raise InvalidJson("a key is repeated in a message", param=at)
        return shape


class Fields:
    """The members of the body outside the list, decoded on demand.

    What is absent, null or an empty array is None. Values of another type are read as lenient servers read
    them (pydantic's coercions: vLLM, SGLang, LiteLLM), so that what is expected of the answer is what such a
    server gives; what none of them takes counts as absent, and the upstream refuses it.
    """

    __slots__ = ("_body", "_members")

    def __init__(self, body: bytes, shape: Outline) -> None:
        self._body = body
        # Of a repeated key the last one counts.
        self._members = {member.key: member for member in shape.members}

    def raw(self, key: str) -> bytes | None:
        """The value as spelled."""
        member = self._members.get(key)
        if member is None:
            return None
        raw = self._body[member.start : member.end]
        is_empty = raw == b"null" or (raw.startswith(b"[") and not member.elements)
        return None if is_empty else raw

    def value(self, key: str) -> object:
        """The value, of any type."""
        raw = self.raw(key)
        return None if raw is None else decoded(raw)

    def text(self, key: str) -> str:
        """A string; "" for anything else: some servers serve one model and need no name."""
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def flag(self, key: str) -> bool:
        """A boolean, a 1 or a word that says yes."""
        value = self.value(key)
        return value.strip().lower() in _YES if isinstance(value, str) else value == 1

    def integer(self, key: str) -> int | None:
        """A whole number, or the digits of one."""
        value = self.value(key)
        if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            # JSON knows one kind of number: 100.0 is 100.
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def limit(self, key: str) -> int | None:
        """A whole number above 0; None for any other."""
        value = self.integer(key)
        # llama.cpp and LM Studio read -1 as "no limit".
        return value if value is not None and value > 0 else None
