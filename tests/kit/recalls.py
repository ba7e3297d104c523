"""A conversation that was compacted, whose model is offered the recall tools, and what an SDK hears of it.

Knows nothing of what is looked up.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, compacted
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied

Json = dict[str, Any]
GREP = ("g1", "context_grep", {"query": "which port did we decide to use"})
READ = ("c1", "read_file", {"path": "a.py"})
OURS = ["context_grep", "context_describe"]
RECALLING = AT_THE_END | {"recall.tools": True}


def saying(text: str | None, *calls: tuple[str, str, Json], **more: Any) -> Says:
    """An answer of words and calls, streamed in pieces."""
    made = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in calls
    ]
    message: Json = {"role": "assistant", "content": text}
    if made:
        message["tool_calls"] = made
    return Says(message, finish="tool_calls" if made else "stop", in_pieces=True, **more)


def names_in(seen: Seen) -> list[str]:
    return [tool["function"]["name"] for tool in seen.body.get("tools", [])]


@asynccontextmanager
async def compacted_chat(
    folder: Path,
    *,
    stream: bool = False,
    overrides: Json | None = None,
    url: str | None = None,
    window: int = 8_000,
) -> AsyncIterator[tuple[Proxy, Chat]]:
    """A conversation of an agent with one compaction, the model's prompts until then forgotten."""
    async with proxied(ModelServer(window=window), folder, RECALLING | (overrides or {}), url) as proxy:
        extra: Json = {"tools": TOOLS} | ({"stream_options": {"include_usage": True}} if stream else {})
        chat = proxy.chat(system="You help.", stream=stream, extra=extra)
        await compacted(chat, words=window // 8)
        proxy.model.seen.clear()
        yield proxy, chat


@asynccontextmanager
async def resumed(
    before: Proxy, chat: Chat, folder: Path, url: str | None = None
) -> AsyncIterator[tuple[Proxy, Chat]]:
    """The conversation after a restart of the proxy on the same database, before the same model."""
    async with proxied(before.model, folder, RECALLING, url) as proxy:
        again = proxy.chat(stream=chat.stream, extra=chat.extra)
        again.said = chat.said
        yield proxy, again


@dataclass
class Streamed:
    """What an SDK makes of a stream: deltas of role, calls by their index, the end and the counts."""

    roles: list[str]
    text: str
    calls: dict[int, Json]
    finish: list[str]
    usage: list[Json]

    @staticmethod
    def of(reply: httpx.Response) -> Streamed:
        made = Streamed([], "", {}, [], [])
        for event in reply.text.split("\n\n"):
            data = event.removeprefix("data: ")
            if data in (event, "[DONE]"):
                continue
            chunk = json.loads(data)
            if chunk.get("usage"):
                made.usage.append(chunk["usage"])
            for choice in chunk["choices"]:
                made.add(choice)
        return made

    def add(self, choice: Json) -> None:
        delta = choice["delta"]
        self.roles += [delta["role"]] if delta.get("role") else []
        self.text += delta.get("content") or ""
        self.finish += [choice["finish_reason"]] if choice["finish_reason"] else []
        for piece in delta.get("tool_calls") or []:
            call = self.calls.setdefault(piece["index"], {"name": "", "arguments": ""})
            call["id"] = call.get("id") or piece.get("id")
            for key in ("name", "arguments"):
                call[key] += piece["function"].get(key) or ""
