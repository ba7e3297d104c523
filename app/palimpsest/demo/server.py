"""The demo upstream: a small, deterministic, offline server for OpenAI's two APIs.

It shows what the proxy does, without a key or a network.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from palimpsest.core.recall.tool_calls import GREP
from palimpsest.demo import responses
from palimpsest.demo.model import (
    MODEL,
    ShownMessage,
    answer_to,
    lookup_of,
    prompt_tokens,
    shown,
    tokens_of,
)
from palimpsest.demo.summaries import asks_for_summary, summary_of

# Small enough that a dozen turns fill it.
DEFAULT_WINDOW_TOKENS = 2_000


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


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """One finished answer, before it is sent whole or streamed."""

    id: str
    text: str
    finish_reason: str
    prompt_tokens: int

    @property
    def usage(self) -> dict[str, int]:
        """The `usage` object of chat completions."""
        written = tokens_of(self.text)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": self.prompt_tokens + written,
        }


def create_demo(window_tokens: int = DEFAULT_WINDOW_TOKENS) -> Starlette:
    """An ASGI application with one model whose window is `window_tokens`."""

    async def models(_: Request) -> Response:
        about = {"created": responses.CREATED, "owned_by": "demo", "context_length": window_tokens}
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", **about}]})

    async def complete(request: Request) -> Response:
        return _completion(body_of(await request.body(), CHAT_BODY), window_tokens)

    async def respond(request: Request) -> Response:
        return _response(body_of(await request.body(), RESPONSES_BODY), window_tokens)

    return Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/responses", respond, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _not_found, BadRequest: _refused},
    )


async def _not_found(_: Request, error: Exception) -> Response:
    """The answer for an unknown path, in FastAPI's form, as most servers of this kind give it."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


async def _refused(_: Request, error: Exception) -> Response:
    return _refusal(str(error), "invalid_request_error")


def _response(body: Mapping[str, Any], window: int) -> Response:
    before = body.get("previous_response_id")
    if before is not None:
        message = f"Previous response with id '{before}' not found."
        return _refusal(message, "previous_response_not_found", param="previous_response_id")
    said = responses.messages_in(body)
    if not said:
        return _refusal("'input' must be a text or a list of items.", "invalid_request_error", param="input")
    messages = shown(said)
    tokens = prompt_tokens(body, messages)
    if tokens >= window:
        message = f"Your input exceeds the context window of this model: {tokens} of {window} tokens."
        return _refusal(message, "context_length_exceeded", param="input")
    answer = _answer({**body, "max_tokens": body.get("max_output_tokens")}, messages, tokens, window)
    ident = answer.id.removeprefix("chatcmpl-demo-")
    made = responses.response_of(body, str(body.get("model") or MODEL), ident, answer.text, answer.usage)
    if answer.finish_reason == "length":
        made = responses.cut_short(made)
    if body.get("stream") is True:
        frames = responses.frames_of(made, _pieces(answer.text))
        return StreamingResponse(frames, media_type="text/event-stream")
    return JSONResponse(made)


def _completion(body: Mapping[str, Any], window: int) -> Response:
    messages = shown(body["messages"])
    tokens = prompt_tokens(body, messages)
    if tokens >= window:
        return _refusal(
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages.",
            "context_length_exceeded",
            param="messages",
        )
    answer = _answer(body, messages, tokens, window)
    envelope = {
        "id": answer.id,
        "object": "chat.completion",
        "created": responses.CREATED,
        "model": str(body.get("model") or MODEL),
    }
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in _pieces(answer.text))]
    finish_reason = answer.finish_reason
    question = None if asks_for_summary(messages) else lookup_of(body, messages)
    if question is not None:
        # A call of the tool that searches the conversation, in place of the answer.
        function = {"name": GREP, "arguments": json.dumps({"query": question}, ensure_ascii=False)}
        call = {"id": answer.id.replace("chatcmpl", "call"), "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        deltas = [message | {"tool_calls": [{"index": 0, **call}]}]
        finish_reason = "tool_calls"
    if body.get("stream") is not True:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return JSONResponse({**envelope, "choices": [choice], "usage": answer.usage})
    wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    frames = _frames(envelope, deltas, finish_reason, answer.usage if wants_usage else None)
    return StreamingResponse(frames, media_type="text/event-stream")


def _answer(body: Mapping[str, Any], messages: list[ShownMessage], tokens: int, window: int) -> DemoAnswer:
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    room = min(int(limit), window - tokens) if isinstance(limit, int) else window - tokens
    text = summary_of(messages, room) if asks_for_summary(messages) else answer_to(messages, tokens, window)
    pieces = _pieces(text)
    while len(pieces) > 1 and tokens_of("".join(pieces)) > room:
        pieces.pop()
    kept = "".join(pieces)
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return DemoAnswer(f"chatcmpl-demo-{digest[:24]}", kept, "stop" if kept == text else "length", tokens)


def _frames(
    envelope: Mapping[str, Any],
    deltas: Sequence[Mapping[str, Any]],
    finish_reason: str,
    usage: Mapping[str, int] | None,
) -> Iterator[bytes]:
    """Server-sent events in OpenAI's order: role, text word by word, finish reason, usage if asked for."""
    blank = {} if usage is None else {"usage": None}
    envelope = {**envelope, "object": "chat.completion.chunk"}
    for delta, finished in [*((delta, None) for delta in deltas), ({}, finish_reason)]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finished}
        yield _frame({**envelope, "choices": [choice], **blank})
    if usage is not None:
        yield _frame({**envelope, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _frame(payload: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def _pieces(text: str) -> list[str]:
    """Words with the white space after them; joined they are the text."""
    return re.findall(r"\S+\s*|\s+", text)


def _refusal(message: str, code: str, param: str | None = None) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return JSONResponse({"error": error}, status_code=400)
