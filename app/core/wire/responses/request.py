"""A request of the Responses API, read into the same value as a chat completion request.

Each of its messages is one item of `input`, except that neighbouring items of the model's (thoughts, words,
calls) are one message, as they were one answer: its bytes are the JSON array of them, as they stand. Knows
nothing of what items mean beyond that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from app.core.wire.chat_request import ChatRequest
from app.core.wire.json_spans import Span
from app.core.wire.json_text import decoded
from app.core.wire.request_body import IsAccepted, Limits, RequestBody
from app.core.wire.responses.compacting import TRIGGER
from app.core.wire.responses.items import is_said_by_model, runs_at_upstream

_LISTED = "input"


class _Head(msgspec.Struct):
    """What tells an item's kind; all else of it is passed over."""

    type: Any = None
    id: Any = None
    role: Any = None
    call_id: Any = None
    execution: Any = None
    environment: Any = None


_HEAD = msgspec.json.Decoder(_Head)


def parse_responses_request(
    body: bytes, limits: Limits, is_accepted: IsAccepted | None = None
) -> ChatRequest | None:
    """The request that `body` is; None for one whose conversation is kept by the upstream alone.

    That is one that names a `conversation`, runs in the `background`, or has no `input` (a stored prompt).
    Raises InvalidJson as `RequestBody` does, and InvalidField for a field of a wrong type.
    """
    read = RequestBody(body, limits, _LISTED)
    fields = read.fields
    if fields.raw("conversation") or fields.flag("background") or fields.raw(_LISTED) is None:
        return None
    model = fields.text("model")
    said = read.shape.last(_LISTED)
    start, end = (said.start, said.end) if said else (0, 0)
    trigger: bytes | None = None
    if body.startswith(b'"', start):
        messages = [b'{"role":"user","content":' + body[start:end] + b"}"]
    else:
        places = list(read.elements())
        if places and _head(body[slice(*places[-1])]).get("type") == TRIGGER:
            trigger = body[slice(*places.pop())]
        messages = list(_messages(body, places))
    read.examine([raw for raw in messages if is_accepted is None or not is_accepted(model, raw)])
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
        message_spans=tuple(messages),
        messages_at=(start, end),
        shape=read.shape,
        wire="responses",
        instructions=fields.raw("instructions"),
        previous=fields.text("previous_response_id") or None,
        trigger=trigger,
    )


def _messages(body: bytes, places: Sequence[Span]) -> Iterator[bytes]:
    """The bytes of each message: a run of the model's items as one."""
    run: Span | None = None
    # Calls of the run whose results are the upstream's own.
    there: set[Any] = set()
    for start, end in places:
        head = _head(body[start:end])
        call = head.get("call_id")
        if runs_at_upstream(head) and isinstance(call, str):
            there.add(call)
        if is_said_by_model(head) or (run and isinstance(call, str) and call in there):
            run = (run[0] if run else start, end)
            continue
        if run:
            yield b"[" + body[run[0] : run[1]] + b"]"
            run, there = None, set()
        yield body[start:end]
    if run:
        yield b"[" + body[run[0] : run[1]] + b"]"


def _head(item: bytes) -> dict[str, Any]:
    try:
        return msgspec.structs.asdict(_HEAD.decode(item))
    except (msgspec.DecodeError, RecursionError):
        # An escape of a lone surrogate, or nested too deeply, which is refused here.
        fields: dict[str, Any] = decoded(item)
        return fields
