"""A conversation of the Responses API that was compacted, whose model is offered the recall tools.

Knows nothing of what is looked up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import RECALLING
from tests.kit.responses import Asked, ResponsesChat, ResponsesServer, call_item, events_of
from tests.kit.thoughts import Thoughts
from tests.kit.words import prose

Json = dict[str, Any]
TOOLS: list[Json] = [
    {"type": "function", "name": "read_file", "parameters": {"type": "object", "properties": {}}}
]
OURS = ["context_grep", "context_describe"]


def grep(ident: str) -> Json:
    """A call of ours."""
    return call_item(ident, "context_grep", {"query": "which port did we decide to use"})


def reads(ident: str) -> Json:
    """A call of the client's."""
    return call_item(ident, "read_file", {"path": f"{ident}.py"})


@dataclass
class Recalled:
    """A compacted conversation; `asked` is what its model was asked since then."""

    proxy: Proxy
    server: ResponsesServer
    chat: ResponsesChat
    since: int
    stream: bool

    @property
    def asked(self) -> list[Asked]:
        return self.server.asked[self.since :]

    async def says(self, *items: Json | str) -> list[Json]:
        """One turn; what is heard of it is whole, and nothing of it is ours."""
        output = await self.chat.says(*items, stream=self.stream)
        self.is_clean()
        return output

    def is_clean(self) -> None:
        assert self.chat.reply is not None
        text = self.chat.reply.text
        assert "context_" not in text
        if self.stream:
            is_whole(events_of(text))

    async def transcript(self) -> list[Json]:
        """Every item that is stored, in order, without its state."""
        page = await self.read("messages?limit=1000")
        stored = [row["message"] for row in page["messages"] if row["origin"] != "instructions"]
        flat = [item for message in stored for item in (message if isinstance(message, list) else [message])]
        return [{key: value for key, value in item.items() if key != "status"} for item in flat]

    async def read(self, path: str) -> Json:
        reply = await self.proxy.http.get(
            f"/api/sessions/{self.chat.session}/{path}", headers=self.chat.headers
        )
        assert reply.status_code == 200, reply.text
        fields: Json = reply.json()
        return fields


def is_whole(events: list[Json]) -> None:
    """One answer as the API tells it: one beginning and end, one id, no gap in numbers, places or items."""
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds.count("response.created") == kinds.count("response.in_progress") == 1
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    told = [event["response"] for event in events if "response" in event]
    assert len({response["id"] for response in told}) == 1
    assert kinds[-1] in ("response.completed", "response.incomplete")
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    output = told[-1]["output"]
    assert [event["output_index"] for event in added] == list(range(len(output)))
    assert [event["output_index"] for event in done] == list(range(len(output)))
    assert [event["item"] for event in done] == output
    idents = [item["id"] for item in output]
    assert [event["item"]["id"] for event in added] == idents
    inner = [event for event in events if "item_id" in event]
    assert all(event["item_id"] == idents[event["output_index"]] for event in inner)


@asynccontextmanager
async def compacted_items(
    folder: Path, *, stream: bool = False, overrides: Json | None = None, keeps: bool = True
) -> AsyncIterator[Recalled]:
    """A conversation of an agent with one compaction."""
    server = ResponsesServer(window=8_000, keeps=keeps, thoughts=Thoughts())
    async with proxied(server, folder, RECALLING | (overrides or {})) as proxy:
        chat = ResponsesChat(proxy.http, tools=TOOLS, headers={"authorization": "Bearer key-1"})
        number = 0
        while chat.reply is None or "x-palimpsest-compaction" not in chat.reply.headers:
            note = f"Note {number}: we decided to use port {8_000 + number}. {prose(number, 1_500)}"
            await chat.says(note, stream=stream)
            number += 1
        yield Recalled(proxy, server, chat, len(server.asked), stream)
