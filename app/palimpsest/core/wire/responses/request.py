"""The Responses API as a `Wire`: requests parsed into the same value as chat requests.

Each message of a request is one item of `input`, except that successive items of the model's (reasoning,
text, calls) are one message, as they were one answer: its bytes are the JSON array of them, as sent. The
field `instructions` is not an item: it is stored beside the messages, and always sent from the request's own
field. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from palimpsest.core.wire.compaction_items import MANAGEMENT, TRIGGER, is_ours
from palimpsest.core.wire.json_spans import Span
from palimpsest.core.wire.json_text import array_of, decoded, encoded
from palimpsest.core.wire.request import ChatRequest, RequestBody, RequestLimits, Unaccepted, Wire
from palimpsest.core.wire.responses.answers import ResponseAssembly, error_body, error_event, parse_response
from palimpsest.core.wire.responses.items import REFERENCES, is_said_by_model, referenced_id, runs_at_upstream
from palimpsest.core.wire.responses.question import question_fields
from palimpsest.core.wire.responses.translation import translated_to_items
from palimpsest.errors import NotUnderstood

# No client's item begins so: the `type` is our own.
_START = b'{"type":"palimpsest.instructions","role":"system","content":'


def stored_field(instructions: bytes) -> bytes:
    """The stored body for the JSON of the `instructions` field."""
    return _START + instructions + b"}"


def field_in(bodies: Iterable[bytes]) -> bytes | None:
    """The JSON of the `instructions` field among stored bodies, as spelled; None without one."""
    found = (body[len(_START) : -1] for body in bodies if body.startswith(_START))
    return next(found, None)


def messages_in(bodies: Iterable[bytes]) -> list[bytes]:
    """The stored bodies that are messages, not the `instructions` field."""
    return [body for body in bodies if not body.startswith(_START)]


_INPUT = "input"


class _Head(msgspec.Struct):
    """The fields that tell an item's kind; decoding skips the others."""

    type: Any = None
    id: Any = None
    role: Any = None
    call_id: Any = None
    execution: Any = None
    environment: Any = None


_HEAD = msgspec.json.Decoder(_Head)


def parse_responses_request(
    body: bytes, limits: RequestLimits, unaccepted: Unaccepted | None = None
) -> ChatRequest | None:
    """Parses a request; None if only the upstream keeps its conversation.

    That is a request with a `conversation`, in the `background`, or without `input` (a stored prompt). Raises
    InvalidJson and NotUnderstood as `RequestBody` does, and NotUnderstood for a `previous_response_id` that
    is not a string.
    """
    read = RequestBody(body, limits, _INPUT)
    fields = read.fields
    if fields.raw("conversation") or fields.flag("background") or fields.raw(_INPUT) is None:
        return None
    model, previous = fields.text("model"), fields.value("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise NotUnderstood("previous_response_id is not a string", param="previous_response_id")
    said = read.shape.last(_INPUT)
    start, end = (said.start, said.end) if said else (0, 0)
    messages, trigger, references = _listed(read, start, end)
    read.examine(messages if unaccepted is None else unaccepted(model, messages))
    return ChatRequest(
        wire=RESPONSES,
        body=body,
        model=model,
        stream=fields.flag("stream"),
        include_usage=True,
        n=1,
        max_output_tokens=fields.limit("max_output_tokens"),
        tools=fields.raw("tools"),
        response_format=fields.raw("text"),
        tool_choice=fields.raw("tool_choice"),
        message_spans=messages,
        messages_at=(start, end),
        shape=read.shape,
        instructions=fields.raw("instructions"),
        previous=previous or None,
        trigger=trigger,
        references=references,
    )


def runs_with(request: ChatRequest, items: Mapping[int, bytes]) -> Iterator[tuple[range, bytes]]:
    """The request's messages with the references at these places of its input replaced by `items`.

    Each comes with the places of its items. An item that a message refers to twice is in it once.
    """
    places = _places(request)
    whole = [items.get(at, request.body[slice(*place)]) for at, place in enumerate(places)]
    heads = [_head(item) for item in whole]
    for run, is_answer in _runs(heads):
        if items.keys().isdisjoint(run):
            said = _between(request.body, places, run)
            yield run, b"[" + said + b"]" if is_answer else said
        else:
            yield run, answer_with(request, run, items) if is_answer else whole[run[0]]


def answer_with(request: ChatRequest, run: range, items: Mapping[int, bytes]) -> bytes:
    """The answer made of a run of the input, with the references at these places replaced by `items`."""
    places = _places(request)
    whole = {at: items.get(at, request.body[slice(*places[at])]) for at in run}
    once: list[bytes] = []
    seen: set[Any] = set()
    for at, item in whole.items():
        ident = _head(item).get("id")
        if at in items and ident in seen:
            continue
        once.append(item)
        if isinstance(ident, str):
            seen.add(ident)
    return array_of(once)


def with_items(request: ChatRequest, items: Mapping[int, bytes]) -> ChatRequest:
    """The request with the references at these places of its input resolved to `items`.

    `as_sent` keeps how the client sent each such message, except compaction items of ours, which no upstream
    knows.
    """
    places, messages = _places(request), list(runs_with(request, items))
    # Equal messages are all sent as the first was, so that prompts keep their prefix.
    as_sent: dict[bytes, bytes] = {}
    for run, whole in messages:
        is_named = not items.keys().isdisjoint(run) and not is_ours(whole)
        as_sent.setdefault(whole, _between(request.body, places, run) if is_named else b"")
    return replace(
        request,
        message_spans=tuple(whole for _, whole in messages),
        as_sent={whole: sent for whole, sent in as_sent.items() if sent},
        references={at: ident for at, ident in request.references.items() if at in items},
    )


def _listed(
    read: RequestBody, start: int, end: int
) -> tuple[tuple[bytes, ...], bytes | None, Mapping[int, str]]:
    """The messages, the item that asks for a compaction, and the ids of items given by reference."""
    body = read.raw
    if body.startswith(b'"', start):
        return (b'{"role":"user","content":' + body[start:end] + b"}",), None, {}
    places, trigger = list(read.elements()), None
    heads = [_head(body[slice(*place)]) for place in places]
    if heads[-1].get("type") == TRIGGER:
        trigger = body[slice(*places.pop())]
        heads.pop()
    said = ((_between(body, places, run), is_answer) for run, is_answer in _runs(heads))
    messages = tuple(b"[" + raw + b"]" if is_answer else raw for raw, is_answer in said)
    references = {}
    for at, (place, head) in enumerate(zip(places, heads, strict=True)):
        if head.get("type") in REFERENCES and head.get("role") is None:
            ident = referenced_id(decoded(body[slice(*place)]))
            if ident is not None:
                references[at] = ident
    return messages, trigger, references


def _places(request: ChatRequest) -> Sequence[Span]:
    """The spans of the items of the input, without the one that asks for a compaction."""
    member = request.shape.last(_INPUT)
    places = member.elements if member else ()
    return places if request.trigger is None else places[:-1]


def _runs(heads: Sequence[Mapping[str, Any]]) -> Iterator[tuple[range, bool]]:
    """The places of each message's items, and whether they are an answer (a run of the model's items)."""
    run = range(0)
    # Ids of the run's calls that the upstream runs itself: their results belong to the answer.
    there: set[Any] = set()
    for at, head in enumerate(heads):
        call = head.get("call_id")
        if runs_at_upstream(head) and isinstance(call, str):
            there.add(call)
        if is_said_by_model(head) or (run and isinstance(call, str) and call in there):
            run = range(run.start if run else at, at + 1)
            continue
        if run:
            yield run, True
            run, there = range(0), set()
        yield range(at, at + 1), False
    if run:
        yield run, True


def _between(body: bytes, places: Sequence[Span], run: range) -> bytes:
    return body[places[run[0]][0] : places[run[-1]][1]]


def _head(item: bytes) -> dict[str, Any]:
    try:
        return msgspec.structs.asdict(_HEAD.decode(item))
    except (msgspec.DecodeError, RecursionError):
        # An escaped lone surrogate, or nested too deeply: `decoded` raises on the latter.
        fields: dict[str, Any] = decoded(item)
        return fields


def _may_add_tools(request: ChatRequest) -> bool:
    """False with a stored prompt, whose tools are unknown here, and for a request for a compaction.

    False also if the upstream compacts while answering: the compaction could fall into a hidden round.
    """
    manages = MANAGEMENT not in request.dropped and request.management is not None
    return request.trigger is None and not manages and not request.members(("prompt",))


RESPONSES = Wire(
    path="/responses",
    listed=_INPUT,
    read_request=parse_responses_request,
    has_compactions=True,
    may_add_tools=_may_add_tools,
    # On this API schemas are strict by default.
    tool=lambda function: encoded({"type": "function", **function, "strict": False}),
    tool_result=lambda call, result: encoded(
        {"type": "function_call_output", "call_id": call, "output": result}
    ),
    read_answer=parse_response,
    # An answer has one choice.
    new_assembly=lambda _: ResponseAssembly(),
    error_body=error_body,
    error_event=error_event,
    keeps_answers=True,
    fails_late=True,
    # An answer is stored as the array of its items.
    answer_start=b"[",
    translated=translated_to_items,
    answer_limit="max_output_tokens",
    question_fields=question_fields,
    stream_fields={"stream": True},
)
