"""An upstream for a made-up agent: calls the tool it is told to, ends its turn else, and extracts summaries.

Takes no time for turns: it looks at the end of a request only. Knows nothing of who measures what.
"""

from __future__ import annotations

import json

from benchmarks.servers import Upstream
from tests.kit.extract import extract
from tests.kit.model import Seen

# At the end of a user's message: the model reads this file.
READS = "Read "
# The tool's result that ends a turn.
_ROLE = b'"role":"'
_ENDED = " ".join(["It is done as you wished, and nothing else was changed."] * 4)


class AgentUpstream(Upstream):
    """One connection. A request that limits its answer asks for a summary: clients here limit nothing."""

    def answer(self) -> None:
        """Answer by the end of the request."""
        self.transport.write(_response(_message(self.body)))


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
