"""What went in and out of a server, as it stood on the wire, written down beside it.

An ASGI application around another one: no byte is changed. Knows nothing of clients and proxies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.request import RequestLimits

from tests.clients.responses.model import messages_of, spans_of

Json = dict[str, Any]


@dataclass
class Asked:
    """One request and its answer. `headers` and `answered` have lower-case names.

    `kept` are the items that it may only name.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    status: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""
    kept: Mapping[str, Json] = field(default_factory=dict)

    @property
    def messages(self) -> list[Json]:
        if self.path.endswith("/responses"):
            return messages_of(self.body, self.kept)
        messages: list[Json] = json.loads(self.body)["messages"]
        return messages

    @property
    def spans(self) -> tuple[bytes, ...]:
        """The messages as they were sent, byte for byte."""
        if self.path.endswith("/responses"):
            return spans_of(self.body)
        return tuple(parse_chat_request(self.body, RequestLimits(64, 100_000)).message_spans)

    @property
    def key(self) -> str:
        """The caller's key."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def is_chat(self) -> bool:
        """True for what is answered by a model."""
        return self.path.endswith(("/chat/completions", "/responses"))


@dataclass
class Recorder:
    """`app`, with every request to it kept in `asked`, in the order in which they came.

    `kept` are the items of its model server.
    """

    app: Any
    kept: Mapping[str, Json] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def chats(self, key: str) -> list[Asked]:
        """The chat completions one caller asked for."""
        return [asked for asked in self.asked if asked.is_chat and asked.key == key]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = Asked(scope["method"], scope["path"], _told(scope["headers"]), kept=self.kept)
        self.asked.append(asked)

        async def reading() -> Any:
            event = await receive()
            asked.body += event.get("body", b"")
            return event

        async def writing(event: Any) -> None:
            if event["type"] == "http.response.start":
                asked.status, asked.answered = event["status"], _told(event["headers"])
            asked.answer += event.get("body", b"")
            await send(event)

        await self.app(scope, reading, writing)


def _told(headers: Any) -> dict[str, str]:
    return {name.decode().lower(): value.decode("latin-1") for name, value in headers}
