"""The matrix's model server speaking the Responses API, too: the same conversation, the same strictness.

What the scenario answers as a chat message is told as items; what it asks of tools that a client has not is
asked of those it has. Knows nothing of clients and proxies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.core.wire.responses.request import parse_responses_request

from tests.kit.model import Says, Seen
from tests.kit.responses import (
    Asked,
    Outputs,
    ResponsesServer,
    call_item,
    text_item,
    thought_item,
    told_items,
)

Json = dict[str, Any]


def spans_of(raw: bytes) -> tuple[bytes, ...]:
    """The messages of a request as they were sent, byte for byte; an answer's items are one."""
    request = parse_responses_request(raw, RequestLimits(64, 100_000))
    assert request is not None
    return tuple(request.message_spans)


def messages_of(raw: bytes, kept: Mapping[str, Json]) -> list[Json]:
    """The messages of a request as chat messages, with the items that it only names."""
    body = json.loads(raw)
    if isinstance(body["input"], list):
        raw = json.dumps({"input": told_items(body["input"], kept)}).encode()
    return [as_chat(json.loads(span)) for span in spans_of(raw)]


@dataclass
class Prompt(Seen):
    """A prompt that arrived as items, in the words of chat completions but for its faults.

    `kept` are the items that the server knows by their ids.
    """

    kept: Mapping[str, Json] = field(default_factory=dict)

    @property
    def messages(self) -> list[Json]:
        return messages_of(self.raw, self.kept)

    @property
    def spans(self) -> tuple[bytes, ...]:
        return spans_of(self.raw)

    @property
    def faults(self) -> tuple[Any, ...]:
        return tuple(self.asked.faults)

    @property
    def asked(self) -> Asked:
        """The request as the strict server of this API saw it."""
        items = told_items(self.body["input"], self.kept)
        return Asked(self.raw, self.body, self.headers, items, self.tokens)


@dataclass
class BothWires(ResponsesServer):
    """A model server of both APIs, with one script for both."""

    def _taken(self, raw: bytes, body: Json, scope: Any) -> Asked:
        asked = super()._taken(raw, body, scope)
        self.seen.append(Prompt(raw, body, asked.headers, asked.tokens, is_summary=False, kept=self.items))
        return asked

    def __post_init__(self) -> None:
        self.plays = self._played

    def _played(self, asked: Asked) -> Outputs | None:
        tools = _as_chat_tools(asked.body)
        body = asked.body | {"tools": tools}
        seen = Prompt(asked.raw, body, asked.headers, asked.tokens, is_summary=False, kept=self.items)
        said = self.script(seen) if self.script is not None else None
        return None if said is None else _items(said, len(self.asked), tools)


def _as_chat_tools(body: Json) -> list[Json]:
    return [{"type": "function", "function": tool} for tool in body.get("tools") or () if "name" in tool]


def _items(said: Says, number: int, tools: list[Json]) -> Outputs:
    """A thought, then what is said and called."""
    message = said.message or {}
    words = [text_item(message["content"], f"msg_{number}")] if message.get("content") else []
    offered = {tool["function"]["name"] for tool in tools}
    calls = [_call(call, offered) for call in message.get("tool_calls", ())]
    return [thought_item(f"rs_{number}"), *words, *calls]


def _call(call: Json, offered: set[str]) -> Json:
    """A client that has a shell is asked for commands instead."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    item = call_item(call["id"], name, {}) | {"arguments": arguments}
    if "exec_command" not in offered:
        return item
    told = json.loads(arguments)
    command = f"sed -n '1,400p' records/{told['name']}.txt" if name == "lookup" else "echo 1e2"
    return item | {"name": "exec_command", "arguments": json.dumps({"cmd": command})}
