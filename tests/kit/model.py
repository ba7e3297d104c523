"""A scripted model server that speaks the real protocol over a real socket.

It counts tokens, refuses what exceeds its window in OpenAI's words, judges every prompt strictly and
keeps everything it was sent. Requests that ask for a summary are told apart by our own instructions.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from palimpsest.core.summary import memory_block
from palimpsest.core.summary.asking import APPENDED, GAPS, INSTRUCTIONS, SETTLING
from palimpsest.core.summary.forms import DEFAULT_TEMPLATE
from palimpsest.core.view.validity import Fault, faults_of
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.request import RequestLimits
from palimpsest.tokenizer.counting import Counter

from tests.kit.serving import shared_tokenizer

Json = dict[str, Any]
Scope = Any
PIECE = 24
# A model that is asked for nothing but summaries.
SUMMARY_MODEL = "summary-model"


@dataclass
class Seen:
    """One request as it arrived."""

    raw: bytes
    body: Json
    headers: dict[str, str]
    tokens: int
    is_summary: bool

    @property
    def messages(self) -> list[Json]:
        messages: list[Json] = self.body["messages"]
        return messages

    @property
    def faults(self) -> tuple[Fault, ...]:
        return faults_of([json.dumps(message).encode() for message in self.messages])

    @property
    def spans(self) -> tuple[bytes, ...]:
        """The messages as they were sent, byte for byte."""
        return tuple(parse_chat_request(self.raw, RequestLimits(64, 100_000)).message_spans)

    def extends(self, earlier: Seen) -> bool:
        """True when its messages begin with all of the earlier request's, byte for byte."""
        return self.spans[: len(earlier.spans)] == earlier.spans

    @property
    def text(self) -> str:
        """All that the model was shown, as one text."""
        return "\n".join(json.dumps(message, ensure_ascii=False) for message in self.messages)


@dataclass
class Says:
    """An answer: a message, or an error with its status; `after` is awaited first.

    `others` are further choices of an answer that is not streamed.
    `midway` is awaited in a stream behind the first piece of text. `in_pieces`: calls are streamed in pieces.
    `never`: it is waited until the caller leaves.
    """

    message: Json | None = None
    status: int = 200
    error: Json | None = None
    finish: str = "stop"
    after: Callable[[], Awaitable[None]] | None = None
    cut: bool = False
    midway: Callable[[], Awaitable[None]] | None = None
    in_pieces: bool = False
    never: bool = False
    others: tuple[Json, ...] = ()


@dataclass
class ModelServer:
    """A server of models with `window` tokens, stated for those in `names` unless `models` is false.

    `counted` scales its own counts (a tokenizer that differs from ours), `tools_counted` those of tools
    (another way to render them). `script`, where it says something of
    a conversation's prompt, answers before `answers` do. `usage` is stated beside the counts. `left` is set
    when a caller has left an answer of `never`.
    """

    window: int = 100_000
    counted: float = 1.0
    tools_counted: float = 1.0
    counts_output: bool = False
    answers: deque[Says] = field(default_factory=deque)
    summary: Callable[[Seen], Says | Awaitable[Says]] | None = None
    seen: list[Seen] = field(default_factory=list)
    models: bool = True
    names: tuple[str, ...] = ("test-model",)
    script: Callable[[Seen], Says | None] | None = None
    left: asyncio.Event = field(default_factory=asyncio.Event)
    usage: Json = field(default_factory=dict)

    @property
    def prompts(self) -> list[Seen]:
        """The conversations' own requests, in order of arrival."""
        return [seen for seen in self.seen if not seen.is_summary]

    @property
    def summaries(self) -> list[Seen]:
        """Requests for summaries."""
        return [seen for seen in self.seen if seen.is_summary]

    def says(self, *texts: str) -> None:
        """The next answers, in order; without any it answers by itself."""
        self.answers.extend(Says({"role": "assistant", "content": text}) for text in texts)

    def calls(self, *calls: tuple[str, str, Json]) -> None:
        """The next answer calls tools: (id, name, arguments) each."""
        made = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id_, name, arguments in calls
        ]
        message = {"role": "assistant", "content": None, "tool_calls": made}
        self.answers.append(Says(message, finish="tool_calls"))

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            part = await receive()
            body += part.get("body", b"")
            more = part.get("more_body", False)
        if scope["path"].endswith("/models"):
            await _json(send, 200, self._models())
            return
        if not scope["path"].endswith("/chat/completions"):
            await _json(send, 404, {"error": {"message": "no such path", "type": "invalid_request_error"}})
            return
        seen = self._read(scope, body)
        self.seen.append(seen)
        await self._answer(seen, receive, send)

    def _models(self) -> Json:
        said: Json = {"context_length": self.window} if self.models else {}
        return {"object": "list", "data": [{"id": name, "object": "model", **said} for name in self.names]}

    def _read(self, scope: Scope, raw: bytes) -> Seen:
        body = json.loads(raw)
        tokens = tokens_of(body["messages"])
        if body.get("tools"):
            tools = counter().count_tools(json.dumps(body["tools"]).encode())
            tokens += int(self.tools_counted * tools)
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return Seen(raw, body, headers, int(tokens * self.counted), asks_for_a_summary(body))

    async def _answer(self, seen: Seen, receive: Any, send: Any) -> None:
        asked = int(seen.body.get("max_tokens") or 0) if self.counts_output else 0
        if seen.tokens + asked > self.window:
            await _json(send, 400, _too_long(self.window, seen.tokens))
            return
        says = await self._said(seen)
        if says.after is not None:
            await says.after()
        if says.never:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()
            return
        if says.error is not None:
            await _json(send, says.status, says.error)
            return
        assert says.message is not None
        counts = {"prompt_tokens": seen.tokens, "completion_tokens": 9, "total_tokens": seen.tokens + 9}
        counts |= self.usage
        if seen.body.get("stream"):
            await _stream(send, says, counts, seen.body)
            return
        choices = [
            {"index": at, "message": message, "finish_reason": says.finish}
            for at, message in enumerate((says.message, *says.others))
        ]
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "test-model"}
        await _json(send, 200, {**head, "choices": choices, "usage": counts})

    async def _said(self, seen: Seen) -> Says:
        if seen.is_summary:
            if self.summary is None:
                return Says({"role": "assistant", "content": plain_summary(seen)})
            made = self.summary(seen)
            return made if isinstance(made, Says) else await made
        if self.script is not None and (said := self.script(seen)) is not None:
            return said
        if self.answers:
            return self.answers.popleft()
        return Says({"role": "assistant", "content": f"Answer {len(self.prompts)}."})


_ASKING = (INSTRUCTIONS, GAPS, memory_block.INSTRUCTIONS)
_WORKER = DEFAULT_TEMPLATE.partition("{{")[0]


def asks_for_a_summary(body: Json) -> bool:
    """True for every way of asking: on its own, by each style, and behind the conversation's own prompt."""
    if body["model"] == SUMMARY_MODEL:
        return True
    first, last = body["messages"][0].get("content"), body["messages"][-1].get("content")
    is_worker = isinstance(first, str) and first.startswith(_WORKER)
    is_told = isinstance(last, str) and last.startswith((APPENDED, SETTLING))
    return first in _ASKING or is_worker or is_told


@cache
def counter() -> Counter:
    return shared_tokenizer().counter_for("test-model")


def tokens_of(messages: list[Json]) -> int:
    """What a prompt of these messages takes, without tools."""
    return 3 + sum(counter().count_message(message) for message in messages)


def plain_summary(seen: Seen) -> str:
    """A short record in the form asked for, which was really made from the request."""
    question = str(seen.messages[-1].get("content"))
    told = seen.messages[:-1] if question.startswith(APPENDED) else seen.messages[-1:]
    words = " ".join(str(message.get("content")) for message in told).split()
    step = max(1, len(words) // 9)
    lines = ["- " + " ".join(words[at * step : at * step + 12][::-1]) for at in range(9)]
    if question.startswith(SETTLING):
        return "\n".join(("## Record", "### 1. Everything so far", *lines))
    state, entry = "\n".join(lines[7:]), "\n".join(lines[:7])
    return f"## State\n{state}\n## Rules\nnone\n## Entry\n### What was said\n{entry}\n## Corrections\nnone"


def _too_long(window: int, tokens: int) -> Json:
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{tokens} tokens. Please reduce the length of the messages."
    )
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


async def _json(send: Any, status: int, payload: Json) -> None:
    body = json.dumps(payload).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Any, says: Says, counts: Json, request: Json) -> None:
    assert says.message is not None
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for event in _events(says, counts, request):
        await send({"type": "http.response.body", "body": event, "more_body": True})
    if says.cut:
        raise ConnectionResetError("cut on purpose")
    await send({"type": "http.response.body", "body": b""})


async def _events(says: Says, counts: Json, request: Json) -> AsyncIterator[bytes]:
    message = says.message or {}
    yield _event({"role": "assistant", "content": "" if message.get("content") is not None else None})
    text = message.get("content") or ""
    for start in range(0, len(text), PIECE):
        yield _event({"content": text[start : start + PIECE]})
        await asyncio.sleep(0)
        if says.midway is not None and start == 0:
            await says.midway()
    for index, call in enumerate(message.get("tool_calls") or []):
        for piece in _pieces(call) if says.in_pieces else [call]:
            yield _event({"tool_calls": [{"index": index, **piece}]})
    if says.cut:
        return
    yield _event({}, says.finish)
    if (request.get("stream_options") or {}).get("include_usage"):
        yield b"data: " + json.dumps({"id": "c", "choices": [], "usage": counts}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _pieces(call: Json) -> list[Json]:
    """As OpenAI streams a call: its id and name first, then the arguments bit by bit."""
    written = call["function"]["arguments"]
    opening = {**call, "function": {**call["function"], "arguments": ""}}
    return [opening, *({"function": {"arguments": written[at : at + 5]}} for at in range(0, len(written), 5))]


def _event(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
