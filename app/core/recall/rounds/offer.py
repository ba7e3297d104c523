"""Our tools in a request: when a model is told of them, and the body that tells it.

Pure. Every byte that the client wrote stays but its messages; ours are the same in every request, so that
the upstream's prompt cache holds from turn to turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.recall.tool_schemas import NAMES, RENDERED
from app.core.wire.chat_request import ChatRequest
from app.core.wire.json_text import decoded

_OURS = b",".join(RENDERED)


def may_offer(request: ChatRequest) -> bool:
    """Whether the client can be unaware of calls to tools of ours (rule 31).

    It must have sent tools itself, want one choice and leave the choice of tools to the model; no tool of
    its own may have one of our names.
    """
    if request.tools is None or request.shape.last("functions") is not None or request.n > 1:
        return False
    if request.tool_choice is not None and decoded(request.tool_choice) != "auto":
        return False
    tools = decoded(request.tools)
    return isinstance(tools, list) and not any(_name(tool) in NAMES for tool in tools)


def offering(request: ChatRequest, messages: Sequence[bytes], *, may_call: bool = True) -> bytes:
    """The request's body with these messages and our tools behind the client's.

    Without `may_call` the model is told to call none. For a request that `may_offer` has allowed.
    """
    tools = request.shape.last("tools")
    if tools is None:
        return request.spliced(messages)
    edits = [
        (*request.messages_at, b"[" + b",".join(messages) + b"]"),
        (tools.end - 1, tools.end, b"," + _OURS + b"]"),
    ]
    if not may_call:
        chosen = request.shape.last("tool_choice")
        end = request.body.rindex(b"}")
        edits.append(
            (chosen.start, chosen.end, b'"none"') if chosen else (end, end, b',"tool_choice":"none"')
        )
    return _edited(request.body, edits)


def _name(tool: object) -> object:
    function = tool.get("function") if isinstance(tool, dict) else None
    named = function if isinstance(function, dict) else tool
    return named.get("name") if isinstance(named, dict) else None


def _edited(body: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    pieces, at = [], 0
    for start, end, value in sorted(edits):
        pieces += [body[at:start], value]
        at = end
    return b"".join([*pieces, body[at:]])
