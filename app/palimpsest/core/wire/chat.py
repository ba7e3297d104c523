"""The chat completions API as a `Wire`: its requests, its answers and questions of our own. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from palimpsest.core.wire.chat_answers import Assembly, parse_answer
from palimpsest.core.wire.json_text import encoded
from palimpsest.core.wire.request import ChatRequest, RequestBody, RequestLimits, Unaccepted, Wire
from palimpsest.core.wire.responses.translation import translated_to_chat


def parse_chat_request(
    body: bytes, limits: RequestLimits, unaccepted: Unaccepted | None = None
) -> ChatRequest:
    """Parses a request; only its `unaccepted` messages are checked for repeated keys.

    Raises InvalidJson and NotUnderstood as `RequestBody` does. Fields of a wrong type are left for the
    upstream to refuse; `history.read` reads the inside of messages.
    """
    read = RequestBody(body, limits, "messages")
    places = read.elements()
    spans = tuple([body[start:end] for start, end in places])
    fields = read.fields
    model = fields.text("model")
    read.examine(spans if unaccepted is None else unaccepted(model, spans))
    options = fields.value("stream_options")
    messages = read.shape.last("messages")
    return ChatRequest(
        wire=CHAT,
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


def _may_add_tools(request: ChatRequest) -> bool:
    """False with the legacy `functions`, or with several choices, each of which would be an answer."""
    return request.shape.last("functions") is None and request.n == 1


CHAT = Wire(
    path="/chat/completions",
    listed="messages",
    read_request=parse_chat_request,
    has_compactions=False,
    may_add_tools=_may_add_tools,
    tool=lambda function: encoded({"type": "function", "function": function}),
    tool_result=lambda call, result: encoded({"role": "tool", "tool_call_id": call, "content": result}),
    read_answer=parse_answer,
    new_assembly=Assembly,
    error_body=lambda data: data,
    error_event=lambda error: encoded({"error": error}),
    keeps_answers=False,
    fails_late=False,
    answer_start=b"{",
    translated=translated_to_chat,
    answer_limit="max_tokens",
    question_fields=lambda messages, _: {"messages": [msgspec.Raw(message) for message in messages]},
    stream_fields={"stream": True, "stream_options": {"include_usage": True}},
)
