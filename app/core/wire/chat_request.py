"""A chat completion request: its bytes as they came, and the few fields the program decides by.

Knows nothing of what messages mean, of sessions, windows or HTTP. Unknown fields pass: the body is
never re-encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from app.core.wire.json_members import is_plain, members_of
from app.core.wire.json_spans import Member, Outline, Span, outline, refuse_deeper
from app.core.wire.json_text import decoded, verify
from app.errors import InvalidField, InvalidJson


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what is accepted: levels of nesting and messages of one request, both inclusive."""

    depth: int = 128
    messages: int = 100_000


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request for a chat completion, as sent.

    `tools` are the raw bytes of `tools`, else of the legacy `functions`; it, `response_format` and
    `tool_choice` are None when absent, null or empty. `max_output_tokens` is None when the client
    states no limit. `message_spans` are the raw bytes of each message, in order.
    """

    body: bytes
    model: str
    stream: bool
    include_usage: bool
    n: int
    max_output_tokens: int | None
    tools: bytes | None
    response_format: bytes | None
    tool_choice: bytes | None
    message_spans: tuple[bytes, ...]
    messages_at: Span = field(repr=False)
    shape: Outline = field(repr=False)

    def spliced(self, messages: Sequence[bytes]) -> bytes:
        """The body with `messages` (each one JSON object) in place of its own, all other bytes untouched."""
        start, end = self.messages_at
        return b"".join((self.body[:start], b"[", b",".join(messages), b"]", self.body[end:]))

    def members(self, keys: Iterable[str]) -> dict[str, object]:
        """Those of the body's own fields that are there, decoded, by name."""
        fields = _Fields(self.body, self.shape)
        values = ((key, fields.value(key)) for key in keys)
        return {key: value for key, value in values if value is not None}


# Says of a message, with the model it is for, that its bytes have been accepted before.
IsAccepted = Callable[[str, bytes], bool]


def parse_chat_request(body: bytes, limits: Limits, is_accepted: IsAccepted | None = None) -> ChatRequest:
    """The request that `body` is; messages that `is_accepted` are not searched for repeated keys again.

    Raises InvalidJson for what is not JSON (see `json_text.verify`), is nested too deeply or repeats a
    key at the top or inside a message (readers disagree on which one counts), and InvalidField for a
    field of a wrong type. What stands inside a message is judged by `history.read`.
    """
    quick = members_of(body)
    shape = _careful(body, limits) if quick is None else Outline(quick, ())
    messages = _messages(body, shape.last("messages"), limits)
    spans = tuple([body[start:end] for start, end in messages.elements])
    fields = _Fields(body, shape)
    model = fields.text("model")
    if quick is not None:
        unseen = [raw for raw in spans if is_accepted is None or not is_accepted(model, raw)]
        _examine(body, quick, unseen, limits)
    options = fields.value("stream_options")
    return ChatRequest(
        body=body,
        model=model,
        stream=fields.flag("stream"),
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        n=_choices(fields.integer("n")),
        max_output_tokens=fields.limit("max_completion_tokens") or fields.limit("max_tokens"),
        tools=fields.raw("tools") or fields.raw("functions"),
        response_format=fields.raw("response_format"),
        tool_choice=fields.raw("tool_choice"),
        message_spans=spans,
        messages_at=(messages.start, messages.end),
        shape=shape,
    )


def _careful(body: bytes, limits: Limits) -> Outline:
    """The outline of the body; InvalidJson, saying what is wrong, when there is no one way to read it."""
    verify(body)
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        raise InvalidJson("the body must be a JSON object")
    shape = outline(body, limits.depth)
    _refuse_duplicates(shape)
    return shape


def _examine(body: bytes, members: Sequence[Member], unseen: Sequence[bytes], limits: Limits) -> None:
    """What the quick way has not looked at: nesting, and keys repeated in the messages `unseen`."""
    for member in members:
        if member.key != "messages":
            refuse_deeper(body[member.start : member.end], limits.depth - 1)
    # A message stands two levels deep.
    if not all(is_plain(raw, limits.depth - 2) for raw in unseen):
        _careful(body, limits)


def _refuse_duplicates(shape: Outline) -> None:
    for duplicate in shape.duplicates:
        if duplicate.under is None:
            raise InvalidJson("a key is repeated", param=duplicate.key)
        if duplicate.under == "messages":
            raise InvalidJson("a key is repeated in a message", param=f"messages[{duplicate.element}]")


def _messages(body: bytes, member: Member | None, limits: Limits) -> Member:
    if member is None:
        raise InvalidField("messages is required", param="messages")
    if not body.startswith(b"[", member.start):
        raise InvalidField("messages must be an array", param="messages")
    if not member.elements:
        raise InvalidField("messages must not be empty", param="messages")
    if len(member.elements) > limits.messages:
        raise InvalidField(f"messages must not be more than {limits.messages}", param="messages")
    for index, (start, _) in enumerate(member.elements):
        if not body.startswith(b"{", start):
            raise InvalidField("a message must be an object", param=f"messages[{index}]")
    return member


def _choices(n: int | None) -> int:
    if n is None:
        return 1
    if n < 1:
        raise InvalidField("n must be at least 1", param="n")
    return n


class _Fields:
    """The members of the body outside `messages`, decoded on demand and checked for their types."""

    __slots__ = ("_body", "_members")

    def __init__(self, body: bytes, shape: Outline) -> None:
        self._body = body
        # Of a repeated key the last one counts.
        self._members = {member.key: member for member in shape.members}

    def raw(self, key: str) -> bytes | None:
        member = self._members.get(key)
        if member is None:
            return None
        raw = self._body[member.start : member.end]
        is_empty = raw == b"null" or (raw.startswith(b"[") and not member.elements)
        return None if is_empty else raw

    def value(self, key: str) -> object:
        raw = self.raw(key)
        return None if raw is None else decoded(raw)

    def text(self, key: str) -> str:
        value = self.value(key)
        if value is None:
            # Some servers serve one model and need no name; it is theirs to refuse.
            return ""
        if not isinstance(value, str):
            raise InvalidField(f"{key} must be a string", param=key)
        return value

    def flag(self, key: str) -> bool:
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise InvalidField(f"{key} must be a boolean", param=key)
        return value is True

    def integer(self, key: str) -> int | None:
        value = self.value(key)
        if isinstance(value, float) and value.is_integer():
            # JSON knows one kind of number: 100.0 is 100.
            return int(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidField(f"{key} must be an integer", param=key)
        return value

    def limit(self, key: str) -> int | None:
        value = self.integer(key)
        # llama.cpp and LM Studio read -1 as "no limit".
        return value if value is not None and value > 0 else None
