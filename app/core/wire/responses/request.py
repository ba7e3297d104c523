"""A request of the Responses API, read into the same value as a chat completion request.

Each of its messages is one item of `input`, except that neighbouring items of the model's (thoughts, words,
calls) are one message, as they were one answer: its bytes are the JSON array of them, as they stand. Knows
nothing of what items mean beyond that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from app.core.wire.chat_request import ChatRequest
from app.core.wire.json_spans import Span
from app.core.wire.json_text import decoded
from app.core.wire.request_body import IsAccepted, Limits, RequestBody
from app.core.wire.responses.compacting import TRIGGER, is_ours
from app.core.wire.responses.items import is_said_by_model, runs_at_upstream
from app.core.wire.responses.references import REFERENCES, name_in
from app.errors import NotUnderstood

_INPUT = "input"


class _Head(msgspec.Struct):
    """What tells an item's kind; all else of it is passed over."""

    type: Any = None
    id: Any = None
    role: Any = None
    call_id: Any = None
    execution: Any = None
    environment: Any = None


@dataclass(frozen=True, slots=True)
class _Input:
    """What is said: the messages, the item that asks for a compaction, and items that are only named."""

    messages: tuple[bytes, ...]
    trigger: bytes | None
    references: Mapping[int, str]


_HEAD = msgspec.json.Decoder(_Head)


def parse_responses_request(
    body: bytes, limits: Limits, is_accepted: IsAccepted | None = None
) -> ChatRequest | None:
    """The request that `body` is; None for one whose conversation is kept by the upstream alone.

    That is one that names a `conversation`, runs in the `background`, or has no `input` (a stored prompt).
    Raises InvalidJson and NotUnderstood as `RequestBody` does, the latter, too, for a `previous_response_id`
    that is no string: what it goes on from nobody can tell.
    """
    read = RequestBody(body, limits, _INPUT)
    fields = read.fields
    if fields.raw("conversation") or fields.flag("background") or fields.raw(_INPUT) is None:
        return None
    model, previous = fields.text("model"), fields.value("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise NotUnderstood("previous_response_id is no string", param="previous_response_id")
    said = read.shape.last(_INPUT)
    start, end = (said.start, said.end) if said else (0, 0)
    listed = _listed(read, start, end)
    read.examine([raw for raw in listed.messages if is_accepted is None or not is_accepted(model, raw)])
    return ChatRequest(
        body=body,
        model=model,
        stream=fields.flag("stream"),
        include_usage=True,
        n=1,
        max_output_tokens=fields.limit("max_output_tokens"),
        tools=fields.raw("tools"),
        response_format=fields.raw("text"),
        tool_choice=fields.raw("tool_choice"),
        message_spans=listed.messages,
        messages_at=(start, end),
        shape=read.shape,
        wire="responses",
        instructions=fields.raw("instructions"),
        previous=previous or None,
        trigger=listed.trigger,
        references=listed.references,
    )


def runs_with(request: ChatRequest, items: Mapping[int, bytes]) -> Iterator[tuple[range, bytes]]:
    """The request's messages, were `items` in those places of its input, which only name them.

    Each with the places of its items. An item that a message names twice is in it once.
    """
    places = _places(request)
    told = [items.get(at, request.body[slice(*place)]) for at, place in enumerate(places)]
    heads = [_head(item) for item in told]
    for run, is_answer in _runs(heads):
        if items.keys().isdisjoint(run):
            said = _between(request.body, places, run)
            yield run, b"[" + said + b"]" if is_answer else said
        else:
            yield run, answer_with(request, run, items) if is_answer else told[run[0]]


def answer_with(request: ChatRequest, run: range, items: Mapping[int, bytes]) -> bytes:
    """The answer that a run of the input is, were `items` in those of its places."""
    places = _places(request)
    told = {at: items.get(at, request.body[slice(*places[at])]) for at in run}
    once: list[bytes] = []
    seen: set[Any] = set()
    for at, item in told.items():
        ident = _head(item).get("id")
        if at in items and ident in seen:
            continue
        once.append(item)
        if isinstance(ident, str):
            seen.add(ident)
    return b"[" + b",".join(once) + b"]"


def with_items(request: ChatRequest, items: Mapping[int, bytes]) -> ChatRequest:
    """The request as if it brought these `items`, by their places in its input, which only names them.

    Its messages are whole then. How they were sent is kept beside them, but for items of ours, which no
    upstream knows.
    """
    places, messages = _places(request), list(runs_with(request, items))
    # Of equal messages the first says how they are sent, so that prompts keep their beginning.
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


def _listed(read: RequestBody, start: int, end: int) -> _Input:
    body = read.raw
    if body.startswith(b'"', start):
        return _Input((b'{"role":"user","content":' + body[start:end] + b"}",), None, {})
    places, trigger = list(read.elements()), None
    heads = [_head(body[slice(*place)]) for place in places]
    if heads[-1].get("type") == TRIGGER:
        trigger = body[slice(*places.pop())]
        heads.pop()
    said = ((_between(body, places, run), is_answer) for run, is_answer in _runs(heads))
    messages = tuple(b"[" + raw + b"]" if is_answer else raw for raw, is_answer in said)
    return _Input(messages, trigger, _named(body, places, heads))


def _places(request: ChatRequest) -> Sequence[Span]:
    """Where the items of the input stand; that which asks for a compaction is none of them."""
    member = request.shape.last(_INPUT)
    places = member.elements if member else ()
    return places if request.trigger is None else places[:-1]


def _named(body: bytes, places: Sequence[Span], heads: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """The ids of items that are only named, by place."""
    found = {}
    for at, (place, head) in enumerate(zip(places, heads, strict=True)):
        if head.get("type") in REFERENCES and head.get("role") is None:
            ident = name_in(decoded(body[slice(*place)]))
            if ident is not None:
                found[at] = ident
    return found


def _runs(heads: Sequence[Mapping[str, Any]]) -> Iterator[tuple[range, bool]]:
    """The places of each message's items, and whether they are an answer: a run of the model's is one."""
    run = range(0)
    # Calls of the run whose results are the upstream's own.
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
        # An escape of a lone surrogate, or nested too deeply, which is refused here.
        fields: dict[str, Any] = decoded(item)
        return fields
