"""A full-history client as a test writes it: what it says, what it was answered, what the proxy keeps.

Speaks plain HTTP; keeps its own list of messages, which is the truth the archive is held against.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

Json = dict[str, Any]


class Chat:
    """One conversation. `said` is everything sent and answered, in order, instructions included.

    `sent` are the lists of messages of its requests. `stream` may change between turns.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        system: str | None = None,
        key: str = "key-1",
        session: str | None = None,
        stream: bool = False,
        extra: Json | None = None,
    ) -> None:
        self._http = http
        self.stream = stream
        self.extra = extra or {}
        self.headers = {"authorization": f"Bearer {key}"}
        if session is not None:
            self.headers["x-session-id"] = session
        self.said: list[Json] = [{"role": "system", "content": system}] if system else []
        self.sent: list[list[Json]] = []
        self.replies: list[httpx.Response] = []

    @property
    def reply(self) -> httpx.Response:
        """The newest answer."""
        return self.replies[-1]

    @property
    def session(self) -> str:
        """Our id of the conversation, as the newest answer states it."""
        return self.reply.headers["x-palimpsest-session"]

    async def says(self, text: str) -> Json:
        """A user message; the answer's message."""
        return await self.sends({"role": "user", "content": text})

    async def sends(self, *messages: Json) -> Json:
        """New messages behind everything said so far; both are kept when the answer is a 200."""
        reply = await self.posts([*self.said, *messages])
        assert reply.status_code == 200, reply.text
        answer = message_of(reply)
        self.said += [*messages, answer]
        return answer

    async def posts(self, messages: list[Json], headers: dict[str, str] | None = None) -> httpx.Response:
        """A request with exactly these messages; nothing is asserted or kept."""
        body: Json = {"model": "test-model", "messages": messages, **self.extra}
        if self.stream:
            body["stream"] = True
        self.sent.append(messages)
        reply = await self._http.post(
            "/v1/chat/completions", json=body, headers=self.headers | (headers or {})
        )
        self.replies.append(reply)
        return reply

    async def transcript(self, branch: str | None = None) -> list[Json]:
        """The messages the archive has of the conversation, on its default branch if none is named."""
        return [row["message"] for row in await self.rows(branch)]

    async def rows(self, branch: str | None = None) -> list[Json]:
        """As `transcript`, each message with what the archive knows of it."""
        wanted = f"?branch={branch}" if branch else ""
        rows: list[Json] = (await self._read(f"sessions/{self.session}/messages{wanted}"))["messages"]
        return rows

    async def compactions(self) -> list[Json]:
        """The records of the session's compactions, oldest first."""
        compactions: list[Json] = (await self._read(f"sessions/{self.session}/compactions"))["compactions"]
        return compactions

    async def session_fields(self) -> Json:
        """The session and its branches."""
        return await self._read(f"sessions/{self.session}")

    async def view(self) -> Json:
        """What the model would be shown now, part by part."""
        return await self._read(f"sessions/{self.session}/view")

    async def asks(
        self, method: str, path: str, body: Any = None, *, status: int | None = None, **params: Any
    ) -> Any:
        """What one of our endpoints answers; of a refusal, whose `status` is given, its error.

        A path that begins with a slash, or "", is the conversation's own.
        """
        place = f"sessions/{self.session}{path}" if path[:1] in ("", "/") else path
        reply = await self._http.request(
            method, f"/api/{place}", headers=self.headers, json=body, params=params
        )
        assert reply.status_code == status if status else reply.is_success, (reply.status_code, reply.text)
        told: Any = reply.json() if reply.content else None
        return told if reply.is_success else told["error"]

    async def compacts(self) -> Json:
        """The record of a compaction by hand."""
        done = await self.asks("POST", "/compact")
        assert done["compacted"], done
        record: Json = done["compaction"]
        return record

    async def talks(self, turns: range = range(8)) -> None:
        """Turns that are long enough to be folded."""
        for turn in turns:
            await self.says(f"Question {turn}: " + f"detail {turn} of the matter. " * 60)

    async def recalls(self, ident: str) -> str:
        """The whole text of the message that a view or a mask names so."""
        pages = []
        offset: int | None = 0
        while offset is not None:
            page = await self._read(f"context/{ident}?limit=1000000&offset={offset}")
            pages.append(page["text"])
            offset = page["next_offset"]
        return "".join(pages)

    async def _read(self, path: str) -> Json:
        reply = await self._http.get(f"/api/{path}", headers=self.headers)
        assert reply.status_code == 200, reply.text
        fields: Json = reply.json()
        return fields


def message_of(reply: httpx.Response) -> Json:
    """The message of an answer, streamed or not, as an SDK would put it together."""
    if not reply.headers["content-type"].startswith("text/event-stream"):
        message: Json = reply.json()["choices"][0]["message"]
        return message
    content: str | None = None
    calls: dict[int, Json] = {}
    for event in reply.text.split("\n\n"):
        data = event.removeprefix("data: ")
        # Comments stand between events: llama.cpp sends some while it reads a long prompt.
        if data == event or data == "[DONE]":
            continue
        for choice in json.loads(data).get("choices", []):
            delta = choice["delta"]
            if delta.get("content") is not None:
                content = (content or "") + delta["content"]
            for piece in delta.get("tool_calls") or []:
                whole = {key: value for key, value in piece.items() if key != "index"}
                if piece["index"] in calls:
                    calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
                else:
                    calls[piece["index"]] = whole
    message = {"role": "assistant", "content": content}
    return message | {"tool_calls": list(calls.values())} if calls else message
