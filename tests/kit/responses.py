"""The scripted model server speaking the Responses API, too, and a client of it that resends everything.

The server keeps its answers and their items where `keeps` is true, judges every prompt strictly and fails in
the API's words.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from palimpsest.core.wire.json_spans import raw_elements, raw_members

from tests.kit.items import HEAD, as_chat_body, is_reference, items_tokens, output_of, shared
from tests.kit.items import Outputs as Outputs
from tests.kit.items import call_item as call_item
from tests.kit.items import faults_in as faults_in
from tests.kit.items import reference as reference
from tests.kit.items import result_item as result_item
from tests.kit.items import text_item as text_item
from tests.kit.items import thought_item as thought_item
from tests.kit.items import told_items as told_items
from tests.kit.model import ModelServer, Says, Seen, asks_for_a_summary, plain_summary
from tests.kit.response_events import events_in
from tests.kit.thoughts import Thoughts

Json = dict[str, Any]
Scope = Any


@dataclass
class Asked:
    """One request as it arrived; `items` are all that the model was shown, kept answers included."""

    raw: bytes
    body: Json
    headers: dict[str, str]
    items: list[Json]
    tokens: int

    @property
    def faults(self) -> list[str]:
        return faults_in(self.items)

    @property
    def text(self) -> str:
        return json.dumps(self.items, ensure_ascii=False)

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model was told of."""
        return [tool["name"] for tool in self.body.get("tools") or []]

    def extends(self, earlier: Asked) -> bool:
        """True when its input begins with all of the earlier request's, byte for byte."""
        mine, theirs = (raw_elements(raw_members(asked.raw)["input"]) for asked in (self, earlier))
        return mine[: len(theirs)] == theirs


@dataclass
class ResponsesServer(ModelServer):
    """`outputs` are the next answers' items; without any it says "Answer n.". `plays`, where it says
    something of a prompt, comes first. `fails_late`: too long a prompt is refused within the stream.
    `cuts`: the stream breaks off behind so many pieces of text. `resolves`: items may be named by their ids;
    else there is no such kind of item. `refuses`: what it says is an error, with its status. `midway` is
    awaited behind the first piece of text of each answer, with the answer's number. With `thoughts` they
    come back with what they led to, or not at all. `speaks` are the APIs that it knows; `lacks` are fields of
    this one that its model does not take. `caches`: it says how much of a prompt it has seen before.
    Questions for summaries are in `questions` as they came, and in `seen` as chat messages, not in `asked`.
    """

    keeps: bool = True
    resolves: bool = True
    fails_late: bool = False
    cuts: int | None = None
    refuses: Callable[[Asked], tuple[int, Json] | None] | None = None
    midway: Callable[[int], Awaitable[None]] | None = None
    thoughts: Thoughts | None = None
    speaks: tuple[str, ...] = ("chat", "responses")
    lacks: tuple[str, ...] = ()
    caches: bool = False
    outputs: deque[Outputs] = field(default_factory=deque)
    plays: Callable[[Asked], Outputs | None] | None = None
    asked: list[Asked] = field(default_factory=list)
    questions: list[Asked] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    kept: dict[str, list[Json]] = field(default_factory=dict)
    items: dict[str, Json] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        wire = {"responses": "responses", "completions": "chat"}.get(path.rpartition("/")[2])
        if wire is not None and wire not in self.speaks:
            await _reply(send, 404, _error("unknown_url", f"Invalid URL (POST {path})", ""))
            return
        if wire != "responses":
            await super().__call__(scope, receive, send)
            return
        raw, more = b"", True
        while more:
            part = await receive()
            raw += part.get("body", b"")
            more = part.get("more_body", False)
        body = json.loads(raw)
        before = body.get("previous_response_id")
        if before is not None and before not in self.kept:
            message = f"Previous response with id '{before}' not found."
            await _reply(send, 400, _error("previous_response_not_found", message, "previous_response_id"))
            return
        if (unknown := self._unknown(body)) is not None:
            await _reply(send, *unknown)
            return
        refused = next((name for name in self.lacks if name in body), None)
        if refused is not None:
            message = f"Unsupported parameter: '{refused}' is not supported with this model."
            await _reply(send, 400, _error("unsupported_parameter", message, refused))
            return
        if asks_for_a_summary(as_chat_body(body, body.get("input"))):
            self.questions.append(ResponsesServer._taken(self, raw, body, scope))
            await self._told(self.questions[-1], send)
            return
        asked = self._taken(raw, body, scope)
        self.asked.append(asked)
        await self._told(asked, send)

    def _unknown(self, body: Json) -> tuple[int, Json] | None:
        """The refusal of an item that is only named, as OpenAI words it, or servers that keep nothing."""
        said = body.get("input")
        for at, item in enumerate(said if isinstance(said, list) else []):
            if not is_reference(item):
                continue
            if not self.resolves:
                message = "Invalid value: 'item_reference'. Supported values are: 'message'."
                return 400, _error("invalid_value", message, f"input[{at}].type")
            if item["id"] not in self.items:
                self.missed.append(item["id"])
                return 404, _error("not_found", f"Item with id '{item['id']}' not found.", "input")
        return None

    def _taken(self, raw: bytes, body: Json, scope: Scope) -> Asked:
        said = body.get("input") or []
        said = [{"role": "user", "content": said}] if isinstance(said, str) else said
        whole = told_items(said, self.items)
        items = [*self.kept.get(body.get("previous_response_id") or "", []), *whole]
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return Asked(raw, body, headers, items, int(items_tokens(items, body) * self.counted))

    async def _told(self, asked: Asked, send: Any) -> None:
        streams = bool(asked.body.get("stream"))
        too_long = _error(
            "context_length_exceeded",
            f"Your input exceeds the context window of this model, {self.window} tokens.",
            "input",
        )
        if asked.tokens > self.window and not (streams and self.fails_late):
            await _reply(send, 400, too_long)
            return
        faults = asked.faults or (self.thoughts.faults_in(asked.items) if self.thoughts else [])
        if faults:
            await _reply(send, 400, _error("invalid_request_error", faults[0], "input"))
            return
        if self.refuses is not None and (refusal := self.refuses(asked)) is not None:
            await _reply(send, *refusal)
            return
        says = await self._summarized(asked) if asked in self.questions else None
        if says is not None and says.error is not None:
            await _reply(send, says.status, says.error)
            return
        answer = self._made(asked, says)
        if asked.tokens > self.window:
            answer |= {"status": "failed", "output": [], "error": too_long["error"]}
        elif self.keeps and asked.body.get("store") is not False:
            self.kept[answer["id"]] = [*asked.items, *answer["output"]]
            self.items |= {item["id"]: item for item in answer["output"]}
        if streams:
            await self._stream(answer, send)
        else:
            await _reply(send, 200, answer)

    async def _summarized(self, asked: Asked) -> Says:
        """What the scripted summarizer says to a question, which it is shown as chat messages."""
        body = as_chat_body(asked.body, asked.items)
        seen = Seen(asked.raw, body, asked.headers, asked.tokens, is_summary=True)
        self.seen.append(seen)
        if self.summary is None:
            return Says({"role": "assistant", "content": plain_summary(seen)})
        made = self.summary(seen)
        return made if isinstance(made, Says) else await made

    def _cached(self, asked: Asked) -> int:
        """Tokens of the longest beginning that it shares with an earlier prompt of the same head."""
        if not self.caches:
            return 0
        most: list[Json] = []
        for other in (*self.asked, *self.questions):
            if other is asked or any(other.body.get(key) != asked.body.get(key) for key in HEAD):
                continue
            most = max(most, shared(asked.items, other.items), key=len)
        return int(items_tokens(most, asked.body) * self.counted) if most else 0

    def _made(self, asked: Asked, says: Says | None = None) -> Json:
        number = len(self.asked) if says is None else len(self.questions) + 999
        output = output_of(says, number) if says is not None else None
        if output is None and self.plays is not None:
            output = self.plays(asked)
        if output is None and self.outputs:
            output = self.outputs.popleft()
        if output is None:
            output = [text_item(f"Answer {number}.", f"msg_{number}")]
        if self.thoughts is not None and asked.body.get("store") is not False:
            self.thoughts.answered(output)
        usage = {
            "input_tokens": asked.tokens,
            "input_tokens_details": {"cached_tokens": self._cached(asked)},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": asked.tokens + 9,
        }
        head = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "test-model"}
        state: Json = {
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": True,
        }
        if says is not None and says.finish == "length":
            state |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        # As OpenAI repeats what it was asked with.
        told: Json = {"tools": asked.body.get("tools") or [], "metadata": {}, "instructions": None}
        told["tool_choice"] = asked.body.get("tool_choice") or "auto"
        return {**head, **state, **told, "output": output, "usage": usage}

    async def _stream(self, answer: Json, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pieces = 0
        for number, event in enumerate(events_in(answer)):
            if event["type"] == "response.output_text.delta":
                if self.cuts is not None and pieces >= self.cuts:
                    raise ConnectionResetError("cut on purpose")
                pieces += 1
                if pieces == 2 and self.midway is not None:
                    await self.midway(len(self.asked))
            told = json.dumps({**event, "sequence_number": number}, ensure_ascii=False).encode()
            frame = b"event: " + event["type"].encode() + b"\ndata: " + told + b"\n\n"
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _error(code: str, message: str, param: str) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


async def _reply(send: Any, status: int, payload: Json) -> None:
    body = json.dumps(payload).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass
class ResponsesChat:
    """A client that resends its whole history, as Codex does: items as they came, without their states.

    `drops_thoughts`: it leaves out what the model thought. `refers`: of what was answered it sends the names.
    `replies` are the answers' headers.
    """

    http: httpx.AsyncClient
    instructions: str | None = "You are terse."
    tools: list[Json] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    drops_thoughts: bool = False
    refers: bool = False
    options: Json = field(default_factory=dict)
    said: list[Json] = field(default_factory=list)
    reply: httpx.Response | None = None

    async def says(self, *items: Json | str, stream: bool = False) -> list[Json]:
        """One request with these items behind the history; gives the answer's items."""
        self.said += [{"role": "user", "content": item} if isinstance(item, str) else item for item in items]
        body = {"model": "test-model", "input": self.said, "stream": stream, **self.options}
        body |= {"instructions": self.instructions} if self.instructions else {}
        body |= {"tools": self.tools} if self.tools else {}
        answer = await self.post(body)
        output: list[Json] = answer["output"]
        kept = [item for item in output if not (self.drops_thoughts and item["type"] == "reasoning")]
        bare = [{key: value for key, value in item.items() if key != "status"} for item in kept]
        self.said += map(reference, kept) if self.refers else bare
        return output

    async def post(self, body: Json) -> Json:
        """The answer to this body, streamed or not; fails on another status than 200."""
        reply = self.reply = await self.http.post("/v1/responses", json=body, headers=self.headers)
        assert reply.status_code == 200, reply.text
        if not body.get("stream"):
            answer: Json = reply.json()
            return answer
        ended = [event for event in events_of(reply.text) if event["type"] == "response.completed"]
        assert len(ended) == 1, reply.text
        response: Json = ended[0]["response"]
        return response

    @property
    def session(self) -> str:
        assert self.reply is not None
        return self.reply.headers["x-palimpsest-session"]


def events_of(text: str) -> list[Json]:
    """The events of a stream, decoded."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]
