"""A request for a model's answer: its bytes as they came, and the few fields the program decides by.

Read here from a chat completion request; `responses/request.py` reads the other wire into the same.
Knows nothing of what messages mean, of sessions, windows or HTTP. Unknown fields pass: the body is never
re-encoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from app.core.wire.json_spans import Outline, Span
from app.core.wire.models.names import model_edit
from app.core.wire.request_body import Fields, IsAccepted, Limits, RequestBody
from app.core.wire.responses.compacting import in_plain, is_ours

# Which API a request speaks: /v1/chat/completions or /v1/responses.
Wire = Literal["chat", "responses"]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request for a model's answer, as sent.

    `tools` are the raw bytes of `tools`, else of the legacy `functions`; it, `response_format` and
    `tool_choice` are None when absent, null or empty. `max_output_tokens` is None when the client
    states no limit. `message_spans` are the raw bytes of each message, in order; of the Responses API
    see `responses.request`, whose `instructions`, `previous` (the answer that it goes on from) and `trigger`
    (the item that asks for a compaction, which is no message) are None here. `references` are the ids of
    items that the request only names, by place; where they are known `message_spans` are whole, and `as_sent`
    says how those were sent. `dropped` are members that the upstream is not sent; `asked_model` is the name
    that it is asked for, None: the client's.
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
    wire: Wire = "chat"
    instructions: bytes | None = None
    previous: str | None = None
    trigger: bytes | None = None
    references: Mapping[int, str] = field(default_factory=dict)
    as_sent: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    dropped: tuple[str, ...] = ()
    asked_model: str | None = None

    def spliced(self, messages: Sequence[bytes]) -> bytes:
        """The body with `messages` (each JSON) in place of its own, all other bytes untouched.

        Of the Responses API: without the answer that it goes on from, because all is said, with what this
        program folded as plain text, and with items that the client only named as it named them.
        """
        return edited(self.body, self.edits_for(messages))

    def edits_for(self, messages: Sequence[bytes]) -> list[tuple[int, int, bytes]]:
        """What `spliced` changes in the body."""
        if self.wire == "responses":
            ends = (self.trigger,) if self.trigger is not None else ()
            messages = [*(self.as_sent.get(raw) or in_plain(raw) for raw in messages), *ends]
        edits = [(*self.messages_at, b"[" + b",".join(messages) + b"]")]
        gone = ("previous_response_id", *self.dropped) if self.previous is not None else self.dropped
        return [*edits, *self._renamed(), *self._without(gone)]

    @property
    def holds_ours(self) -> bool:
        """True where a message is a compaction of this program's, which no upstream can read."""
        return self.wire == "responses" and any(map(is_ours, self.message_spans))

    @property
    def whole(self) -> ChatRequest:
        """The request with nothing left to name: items that are known are told."""
        return replace(self, as_sent={}) if self.as_sent else self

    @property
    def is_bared(self) -> bool:
        """True where the upstream is sent other members than the client sent."""
        return bool(self.dropped) or self.asked_model is not None

    @property
    def bared(self) -> bytes:
        """The body without what is dropped, for the model that is asked for."""
        return edited(self.body, [*self._renamed(), *self._without(self.dropped)])

    def members(self, keys: Iterable[str]) -> dict[str, object]:
        """Those of the body's own fields that are there, decoded, by name."""
        fields = Fields(self.body, self.shape)
        values = ((key, fields.value(key)) for key in keys)
        return {key: value for key, value in values if value is not None}

    def _renamed(self) -> list[tuple[int, int, bytes]]:
        return [] if self.asked_model is None else model_edit(self.shape, self.asked_model)

    def _without(self, keys: Collection[str]) -> list[tuple[int, int, bytes]]:
        """Edits that take members out, each with one comma beside it."""
        members = self.shape.members
        gone = [place for place, member in enumerate(members) if member.key in keys]
        # Those at the very beginning leave the comma before them to nobody.
        first = next((place for place in range(len(members)) if place not in gone), len(members))
        edits = [(members[place - 1].end, members[place].end, b"") for place in gone if place > first]
        if first:
            end = members[first - 1].end
            comma = self.body.find(b",", end) if first < len(members) else end - 1
            edits.append((self.body.index(b"{") + 1, comma + 1, b""))
        return edits


def parse_chat_request(body: bytes, limits: Limits, is_accepted: IsAccepted | None = None) -> ChatRequest:
    """The request that `body` is; messages that `is_accepted` are not searched for repeated keys again.

    Raises InvalidJson and NotUnderstood as `RequestBody` does. A field of a wrong type is the upstream's to
    refuse; what stands inside a message is read by `history.read`.
    """
    read = RequestBody(body, limits, "messages")
    places = read.elements()
    spans = tuple([body[start:end] for start, end in places])
    fields = read.fields
    model = fields.text("model")
    read.examine([raw for raw in spans if is_accepted is None or not is_accepted(model, raw)])
    options = fields.value("stream_options")
    messages = read.shape.last("messages")
    return ChatRequest(
        body=body,
        model=model,
        stream=fields.flag("stream"),
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        n=max(1, fields.integer("n") or 1),
        max_output_tokens=fields.limit("max_completion_tokens") or fields.limit("max_tokens"),
        tools=fields.raw("tools") or fields.raw("functions"),
        response_format=fields.raw("response_format"),
        tool_choice=fields.raw("tool_choice"),
        message_spans=spans,
        messages_at=(messages.start, messages.end) if messages else (0, 0),
        shape=read.shape,
    )


def edited(text: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """`text` with other bytes in some places, none of which overlap."""
    pieces, at = [], 0
    for start, end, value in sorted(edits):
        pieces += [text[at:start], value]
        at = end
    return b"".join([*pieces, text[at:]])
