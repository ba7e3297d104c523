"""A request for a model's answer: its bytes as received, and the few facts the program decides by.

A `Wire` holds what differs between the APIs; `chat.py` and `responses/request.py` make one each. Both parse a
body into the same `ChatRequest`. Unknown fields survive: the body is never re-encoded. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from palimpsest.core.wire.chat_answers import Sum, UnreadableAnswer, WholeAnswer
from palimpsest.core.wire.compaction_items import MANAGEMENT, is_ours, with_plain_summaries
from palimpsest.core.wire.json_spans import ObjectOutline, Span, is_plain, members_of, outline, refuse_deeper
from palimpsest.core.wire.json_text import BYTE_ORDER_MARK, array_of, decoded, verify
from palimpsest.core.wire.models import model_edit
from palimpsest.errors import InvalidJson, NestedTooDeep, NotUnderstood

# A span of a text, and what replaces it.
Edit = tuple[int, int, bytes]

_YES = frozenset({"true", "1", "yes", "on", "t", "y"})
# No limit has more digits, and Python is slow to convert very many.
_DIGITS = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The most levels of nesting, and the most messages, of a request; both inclusive."""

    depth: int = 128
    messages: int = 100_000


# Of messages for a model, those whose bytes have not been accepted before.
Unaccepted = Callable[[str, Sequence[bytes]], Sequence[bytes]]


# The APIs have fewer than 100. All of them are visited on the event loop, several times.
_MOST_MEMBERS = 1_000
# Bytes of a member that is decoded on the event loop, in less than 2 ms: 16 pairs of metadata take 9 kB.
_MEMBER_BYTES = 65_536


class RequestBody:
    """A request's body, whose array `listed` holds the messages; `shape` is its outline.

    The constructor raises InvalidJson for a body that is not JSON (see `json_text.verify`) or repeats a key
    at the top or inside an element (readers disagree on which one counts), NestedTooDeep for one nested too
    deeply and NotUnderstood for one that is not an object.
    """

    def __init__(self, body: bytes, limits: RequestLimits, listed: str) -> None:
        self._listed = listed
        self._limits = limits
        self._quick = members_of(body)
        self.raw = body
        self.shape = self._checked_outline() if self._quick is None else ObjectOutline(self._quick, ())
        if len(self.shape.members) > _MOST_MEMBERS:
            raise NotUnderstood(f"the body has more than {_MOST_MEMBERS} members")
        self.fields = Fields(body, self.shape)

    def elements(self) -> tuple[Span, ...]:
        """The spans of the messages.

        Raises NotUnderstood if the list is missing, empty or too long, or if an element is not an object.
        """
        member = self.shape.last(self._listed)
        elements = member.elements if member is not None else ()
        if not elements:
            raise NotUnderstood("the list of messages is missing or empty", param=self._listed)
        if len(elements) > self._limits.messages:
            raise NotUnderstood(f"there are more than {self._limits.messages} messages", param=self._listed)
        for index, (start, _) in enumerate(elements):
            if not self.raw.startswith(b"{", start):
                raise NotUnderstood("a message is not an object", param=f"{self._listed}[{index}]")
        return elements

    def examine(self, unseen: Sequence[bytes]) -> None:
        """Checks what the quick parser has not: nesting, and keys repeated in the elements `unseen`."""
        if self._quick is None:
            return
        for member in self._quick:
            if member.key != self._listed:
                refuse_deeper(self.raw[member.start : member.end], self._limits.depth - 1)
        # An element is two levels deep in the body.
        if not all(is_plain(raw, self._limits.depth - 2) for raw in unseen):
            self._checked_outline()

    def _checked_outline(self) -> ObjectOutline:
        """The outline of the body. Raises InvalidJson, saying why, when it is not JSON or is ambiguous."""
        verify(self.raw)
        if not self.raw.lstrip(b" \t\r\n").startswith(b"{"):
            raise NotUnderstood("the body is not a JSON object")
        shape = outline(self.raw, self._limits.depth)
        for duplicate in shape.duplicates:
            if duplicate.under is None:
                raise InvalidJson("a key is repeated", param=duplicate.key)
            if duplicate.under == self._listed:
                at = f"{self._listed}[{duplicate.element}]"
                raise InvalidJson("a key is repeated in a message", param=at)
        return shape


class Fields:
    """The members of the body outside the list of messages, decoded on demand.

    Absent, null and an empty array are None. Values of another type are coerced as lenient servers coerce
    them (pydantic: vLLM, SGLang, LiteLLM), so that the answer is read as such a server means it. A value that
    none of them accepts counts as absent; the upstream refuses it.
    """

    __slots__ = ("_body", "_members")

    def __init__(self, body: bytes, shape: ObjectOutline) -> None:
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
        """A string; "" for anything else (some servers have a single model and need no name)."""
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def flag(self, key: str) -> bool:
        """True for `true`, 1 and words such as "yes"."""
        value = self.value(key)
        return value.strip().lower() in _YES if isinstance(value, str) else value == 1

    def integer(self, key: str) -> int | None:
        """A whole number, or the digits of one."""
        value = self.value(key)
        if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            # JSON has one kind of number: 100.0 is 100.
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def limit(self, key: str) -> int | None:
        """A whole number above 0; None for any other."""
        value = self.integer(key)
        # llama.cpp and LM Studio read -1 as "no limit".
        return value if value is not None and value > 0 else None


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """A request that is relayed unrecorded: only the upstream keeps its conversation, or it is unreadable."""

    why: Literal["upstream", "not-understood"]


Members = tuple[tuple[str, bytes], ...]
# What a question of ours must not repeat: the prompt and the length and form of its answer, its tools, what
# is stored, and how it is delivered. Everything else chooses how the model runs (rule 46).
_NOT_ASKED = """
add_generation_prompt audio background best_of context_management continue_final_message conversation ebnf
echo function_call functions grammar guided_choice guided_grammar guided_json guided_regex include input
json_schema logit_bias logprobs max_completion_tokens max_new_tokens max_output_tokens max_tokens
max_tool_calls messages metadata min_tokens modalities model n n_predict plugins prediction
previous_response_id prompt_logprobs regex response_format search_parameters stop stop_token_ids store
stream stream_options structured_outputs tool_choice tools top_logprobs truncation web_search_options
"""
_OURS = frozenset(_NOT_ASKED.split())


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """An API, and everything that this program does differently for it.

    Requests: `path` is the endpoint, `listed` the member that holds the messages. `read_request` parses a
    body (None: only the upstream keeps the conversation). `has_compactions`: a client may ask for a
    compaction, and send one of ours. `may_add_tools`: tools can be added, and the answer take several rounds,
    without the client noticing. `tool` spells a tool, `tool_result` the result of the call with this id.

    Answers: `read_answer` parses a complete one; `new_assembly` makes the assembly of a streamed one with so
    many choices. `error_body` makes an error's body from a frame that reports a failure; `error_event` makes
    the data of a frame from an error object. `keeps_answers`: upstreams may keep answers, and requests refer
    to them and their items. `fails_late`: an answer of status 200 may still say that the prompt is too long.

    Stored messages: `answer_start` is the first byte of an answer. `translated` translates a message to this
    API, byte for byte if it came by this API; None when it has no exact counterpart.

    Questions of our own: `answer_limit` is the member that bounds an answer. `question_fields` hold the
    messages, which may ride on a client's prompt; `stream_fields` ask for a stream with its usage.
    """

    path: str
    listed: str
    read_request: Callable[[bytes, RequestLimits, Unaccepted | None], ChatRequest | None]
    has_compactions: bool
    may_add_tools: Callable[[ChatRequest], bool]
    tool: Callable[[Mapping[str, Any]], bytes]
    tool_result: Callable[[str, str], bytes]
    read_answer: Callable[[bytes], WholeAnswer | UnreadableAnswer]
    new_assembly: Callable[[int], Sum]
    error_body: Callable[[bytes], bytes]
    error_event: Callable[[dict[str, Any]], bytes]
    keeps_answers: bool
    fails_late: bool
    answer_start: bytes
    translated: Callable[[bytes], bytes | None]
    answer_limit: str
    question_fields: Callable[[Sequence[bytes], bool], dict[str, Any]]
    stream_fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        """`chat` or `responses`, for operators."""
        return self.path.strip("/").partition("/")[0]

    def request(
        self, body: bytes, limits: RequestLimits, unaccepted: Unaccepted
    ) -> ChatRequest | NotRecorded:
        """Parses `body`, without its byte order mark; or says why the request is not recorded.

        Raises InvalidJson for a body that is not JSON, or that two readers would read differently.
        """
        try:
            request = self.read_request(body.removeprefix(BYTE_ORDER_MARK), limits, unaccepted)
        except (NotUnderstood, NestedTooDeep):
            return NotRecorded("not-understood")
        return request or NotRecorded("upstream")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request for a model's answer on either API, as sent.

    `tools` are the raw bytes of `tools`, else of the legacy `functions`; it, `response_format` and
    `tool_choice` are None when absent, null or empty. `max_output_tokens` is None when the client states no
    limit. `message_spans` are the raw bytes of each message, in order (see `responses.request` for the
    Responses API). `dropped` are members that are not sent to the upstream; `upstream_model` is the model
    name sent to it, None for the client's.

    Of the Responses API only: `instructions`; `previous`, the id of the answer that the request continues;
    `trigger`, the item that asks for a compaction, which is not a message; `references`, the ids of items
    given by reference only, by place. Once these items are resolved, `message_spans` contain them, and
    `as_sent` maps such a message to the bytes that the client sent.
    """

    wire: Wire = field(repr=False)
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
    shape: ObjectOutline = field(repr=False)
    instructions: bytes | None = None
    previous: str | None = None
    trigger: bytes | None = None
    references: Mapping[int, str] = field(default_factory=dict)
    as_sent: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    dropped: tuple[str, ...] = ()
    upstream_model: str | None = None

    def spliced(self, messages: Sequence[bytes]) -> bytes:
        """The body with `messages` (each JSON) in place of its own, all other bytes untouched.

        Of the Responses API: without `previous_response_id`, because the messages are complete, with our own
        compaction items as plain text, and with item references as the client sent them.
        """
        return edited(self.body, self.edits_for(messages))

    def edits_for(self, messages: Sequence[bytes]) -> list[Edit]:
        """The edits that `spliced` makes in the body."""
        if self.wire.has_compactions:
            ends = (self.trigger,) if self.trigger is not None else ()
            messages = [*(self.as_sent.get(raw) or with_plain_summaries(raw) for raw in messages), *ends]
        return [(*self.messages_at, array_of(messages)), *self.edits_beside]

    @property
    def edits_beside(self) -> list[Edit]:
        """The edits that `spliced` makes beside the messages."""
        more = ("previous_response_id",) if self.previous is not None else ()
        return self._edits_without((*more, *self.dropped))

    @property
    def holds_own_compaction(self) -> bool:
        """True when a message holds a compaction item of this program's, which no upstream can read."""
        return self.wire.has_compactions and any(map(is_ours, self.message_spans))

    @property
    def management(self) -> object:
        """The client's `context_management`; None without one, or if the API has none."""
        return self.members((MANAGEMENT,)).get(MANAGEMENT) if self.wire.has_compactions else None

    @property
    def whole(self) -> ChatRequest:
        """The request with resolved items sent in full, not by reference."""
        return replace(self, as_sent={}) if self.as_sent else self

    @property
    def has_edits(self) -> bool:
        """True when the upstream is sent other members, or another model, than the client sent."""
        return bool(self.dropped) or self.upstream_model is not None

    @property
    def edited_body(self) -> bytes:
        """The body without the `dropped` members and with `upstream_model`."""
        return edited(self.body, self.own_edits)

    @property
    def own_edits(self) -> list[Edit]:
        """The edits that `edited_body` makes."""
        return self._edits_without(self.dropped)

    def members(self, keys: Iterable[str]) -> dict[str, object]:
        """The members of these names that are present, decoded; none above 64 kB."""
        fields = Fields(self.body, self.shape)
        raws = {key: fields.raw(key) or b"" for key in keys}
        return {key: decoded(raw) for key, raw in raws.items() if 0 < len(raw) <= _MEMBER_BYTES}

    @property
    def question_members(self) -> Members:
        """The raw members that a question of ours repeats, in their order; no form of answers (a schema)."""
        spelled = [(member.key, self.body[member.start : member.end]) for member in self.shape.members]
        return tuple(
            (name, raw)
            for name, raw in spelled
            if name not in _OURS and raw != b"null" and (name != "text" or not _has_format(raw))
        )

    def _edits_without(self, keys: Collection[str]) -> list[Edit]:
        """The edits that put in the upstream's model and remove members, each with one adjacent comma."""
        edits = [] if self.upstream_model is None else model_edit(self.shape, self.upstream_model)
        members = self.shape.members
        gone = [place for place, member in enumerate(members) if member.key in keys]
        # Members at the very beginning have no comma before them: the one after them is removed.
        first = next((place for place in range(len(members)) if place not in gone), len(members))
        edits += [(members[place - 1].end, members[place].end, b"") for place in gone if place > first]
        if first:
            end = members[first - 1].end
            comma = self.body.find(b",", end) if first < len(members) else end - 1
            edits.append((self.body.index(b"{") + 1, comma + 1, b""))
        return edits


def _has_format(raw: bytes) -> bool:
    text = decoded(raw)
    form = text.get("format") if isinstance(text, dict) else None
    return isinstance(form, dict) and form.get("type") != "text"


def edited(text: bytes, edits: Sequence[Edit]) -> bytes:
    """`text` with edits of (start, end, replacement), which must not overlap."""
    pieces, at = [], 0
    for start, end, value in sorted(edits):
        pieces += [text[at:start], value]
        at = end
    return b"".join([*pieces, text[at:]])
