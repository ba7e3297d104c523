"""The body of a request, whichever wire it speaks: its outline, and its fields checked for their types.

Knows nothing of what messages or items mean. The body is never re-encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.core.wire.json_members import is_plain, members_of
from app.core.wire.json_spans import Outline, Span, outline, refuse_deeper
from app.core.wire.json_text import decoded, verify
from app.errors import InvalidField, InvalidJson


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what is accepted: levels of nesting and messages of one request, both inclusive."""

    depth: int = 128
    messages: int = 100_000


# Says of a message, with the model it is for, that its bytes have been accepted before.
IsAccepted = Callable[[str, bytes], bool]


class RequestBody:
    """A request's body, of which the array `listed` holds what is said; `shape` is its outline.

    Making one raises InvalidJson for what is not JSON (see `json_text.verify`), is nested too deeply or
    repeats a key at the top or inside an element (readers disagree on which one counts).
    """

    def __init__(self, body: bytes, limits: Limits, listed: str) -> None:
        self._listed = listed
        self._limits = limits
        self._quick = members_of(body)
        self.raw = body
        self.shape = self._careful() if self._quick is None else Outline(self._quick, ())
        self.fields = Fields(body, self.shape)

    def elements(self) -> tuple[Span, ...]:
        """Where the list's elements stand. InvalidField: it is no list, empty, too long, not of objects."""
        name = self._listed
        member = self.shape.last(name)
        if member is None:
            raise InvalidField(f"{name} is required", param=name)
        if not self.raw.startswith(b"[", member.start):
            raise InvalidField(f"{name} must be an array", param=name)
        if not member.elements:
            raise InvalidField(f"{name} must not be empty", param=name)
        if len(member.elements) > self._limits.messages:
            raise InvalidField(f"{name} must not be more than {self._limits.messages}", param=name)
        for index, (start, _) in enumerate(member.elements):
            if not self.raw.startswith(b"{", start):
                raise InvalidField("a message must be an object", param=f"{name}[{index}]")
        return member.elements

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
            raise InvalidJson("the body must be a JSON object")
        shape = outline(self.raw, self._limits.depth)
        for duplicate in shape.duplicates:
            if duplicate.under is None:
                raise InvalidJson("a key is repeated", param=duplicate.key)
            if duplicate.under == self._listed:
                at = f"{self._listed}[{duplicate.element}]"
                raise InvalidJson("a key is repeated in a message", param=at)
        return shape


class Fields:
    """The members of the body outside the list, decoded on demand and checked for their types.

    What is absent, null or an empty array is None; InvalidField for another type than the one asked for.
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
        """A string; "" for none."""
        value = self.value(key)
        if value is None:
            # Some servers serve one model and need no name; it is theirs to refuse.
            return ""
        if not isinstance(value, str):
            raise InvalidField(f"{key} must be a string", param=key)
        return value

    def flag(self, key: str) -> bool:
        """A boolean; False for none."""
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise InvalidField(f"{key} must be a boolean", param=key)
        return value is True

    def integer(self, key: str) -> int | None:
        """A whole number."""
        value = self.value(key)
        if isinstance(value, float) and value.is_integer():
            # JSON knows one kind of number: 100.0 is 100.
            return int(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidField(f"{key} must be an integer", param=key)
        return value

    def limit(self, key: str) -> int | None:
        """A whole number above 0; None for any other."""
        value = self.integer(key)
        # llama.cpp and LM Studio read -1 as "no limit".
        return value if value is not None and value > 0 else None
