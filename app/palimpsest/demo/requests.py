"""The bodies that the demo upstream reads: what it looks at has the types of OpenAI's APIs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class BadRequest(Exception):
    """The body is not what the API takes."""


class _Function(msgspec.Struct):
    name: str = ""


class _Tool(msgspec.Struct):
    function: _Function | None = None


class _Call(msgspec.Struct):
    function: dict[str, Any] | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    content: str | list[Any] | None = None
    tool_calls: list[_Call] | None = None


class ChatBody(msgspec.Struct):
    """What is looked at in a body of chat completions."""

    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    model: str | None = None
    tools: list[_Tool] | None = None
    stream_options: dict[str, bool | None] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class ResponsesBody(msgspec.Struct):
    """What is looked at in a body of the Responses API."""

    input: str | list[_Message] | None = None
    model: str | None = None
    max_output_tokens: int | None = None


CHAT_BODY, RESPONSES_BODY = msgspec.json.Decoder(ChatBody), msgspec.json.Decoder(ResponsesBody)


def body_of(content: bytes, decoder: msgspec.json.Decoder[Any]) -> dict[str, Any]:
    """The body, whole. BadRequest unless it is one JSON object in UTF-8 that `decoder` reads."""
    try:
        decoder.decode(content)
        body: dict[str, Any] = msgspec.json.decode(content)
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None
    except ValueError as refused:
        raise BadRequest(f"The body cannot be read: {refused}.") from None
    return body
