"""What a body carries beside its messages: cut apart, and put together again byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.recall.rounds.offer import offering, tools_edit
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.request import ChatRequest, RequestLimits, body_with, envelope_of, tools_in
from palimpsest.core.wire.responses.request import parse_responses_request

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
TOOLS = [{"type": "function", "function": {"name": "run", "description": "long " * 200}}]


def parsed(**fields: Any) -> ChatRequest:
    body = json.dumps({"model": "m", "messages": MESSAGES, **fields}, separators=(",", ":")).encode()
    return parse_chat_request(body, RequestLimits())


@pytest.mark.parametrize(
    "fields",
    [{}, {"tools": TOOLS}, {"tools": TOOLS, "seed": 1, "metadata": {"a": "x" * 900}}, {"stream": True}],
)
def test_the_pieces_make_the_body_again(fields: dict[str, Any]) -> None:
    request = parsed(**fields)
    envelope = envelope_of(request)
    assert body_with(envelope, request.message_spans) == request.body
    other = [b'{"role":"user","content":"another"}']
    assert body_with(envelope, other) == request.spliced(other)
    assert tools_in(envelope) == request.tools


@pytest.mark.parametrize("fields", [{"tools": TOOLS}, {"tools": [TOOLS[0], {"type": "x"}], "seed": 3}, {}])
def test_with_our_tools_it_is_the_body_that_offers_them(fields: dict[str, Any]) -> None:
    request = parsed(**fields)
    envelope = envelope_of(request, [*request.edits_beside, tools_edit(request)])
    assert body_with(envelope, request.message_spans) == offering(request, request.message_spans)


def test_an_input_that_is_no_list_stays_in_the_rest() -> None:
    body = b'{"model":"m","input":"Hello."}'
    request = parse_responses_request(body, RequestLimits())
    assert request is not None
    envelope = envelope_of(request)
    assert body_with(envelope, [b"ignored"]) == body
