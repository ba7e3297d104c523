"""An upstream for a made-up agent: calls the tool it is told to, ends its turn else, and extracts summaries.

Takes no time for turns: it looks at the end of a request only. Knows nothing of who measures what.
"""

from __future__ import annotations

import asyncio
import json
from typing import cast

from tests.kit.extract import extract
from tests.kit.model import Seen

# At the end of a user's message: the model reads this file.
READS = "Read "
# The tool's result that ends a turn.
_ROLE = b'"role":"'
_ENDED = " ".join(["It is done as you wished, and nothing else was changed."] * 4)


class AgentUpstream(asyncio.Protocol):
    """One connection. A request that limits its answer asks for a summary: clients here limit nothing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with an empty request; uvloop's transports are no subclass of asyncio's."""
        self._transport, self._seen, self._needed = cast(asyncio.Transport, transport), bytearray(), 0

    def data_received(self, data: bytes) -> None:
        """Answer once head and body are there."""
        self._seen += data
        if not self._needed:
            end = self._seen.find(b"\r\n\r\n")
            if end < 0:
                return
            length = bytes(self._seen[:end]).lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self._needed = end + 4 + int(length or 0)
        if len(self._seen) < self._needed:
            return
        body = bytes(self._seen[self._seen.find(b"\r\n\r\n") + 4 : self._needed])
        self._seen.clear()
        self._needed = 0
        self._transport.write(_response(_message(body)))


def _message(body: bytes) -> dict[str, object]:
    if b'"max_tokens":' in body:
        asked = json.loads(body)
        told = extract(Seen(body, asked, {}, 0, is_summary=True)).message
        return told or {}
    newest = body[body.rfind(_ROLE) :]
    wanted = newest.rpartition(READS.encode())[2].partition(b".md")[0].decode()
    if not newest.startswith(_ROLE + b"user") or not wanted:
        return {"role": "assistant", "content": _ENDED}
    function = {"name": "read_file", "arguments": json.dumps({"path": f"{wanted}.md"})}
    # The file's name is the turn's: no two calls of a conversation have one id.
    call = {"id": f"call_{wanted.replace('/', '_')}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _response(message: dict[str, object]) -> bytes:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    body = json.dumps(answer).encode()
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
