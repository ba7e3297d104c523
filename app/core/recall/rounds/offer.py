"""Our tools in a request: when a model is told of them, and the body that tells it.

Pure. Every byte that the client wrote stays but its messages; ours are the same in every request, so that
the upstream's prompt cache holds from turn to turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.recall.tool_schemas import NAMES, RENDERED
from app.core.wire.chat_request import ChatRequest, edited
from app.core.wire.json_text import decoded

_OURS = b",".join(RENDERED)
SCHEMAS = b"[" + _OURS + b"]"
"""Our tools as a request of their own would have them."""


def may_offer(request: ChatRequest, *, without_tools: bool = False) -> bool:
    """Whether the client can be unaware of calls to tools of ours (rule 31).

    It must speak chat completions, have sent tools itself (or `without_tools`), want one choice and leave the
    choice of tools to the model; no tool of its own may have one of our names.
    """
    if request.wire != "chat" or request.shape.last("functions") is not None or request.n > 1:
        return False
    if request.tool_choice is not None and decoded(request.tool_choice) != "auto":
        return False
    if request.tools is None:
        return without_tools
    tools = decoded(request.tools)
    return isinstance(tools, list) and not any(_name(tool) in NAMES for tool in tools)


def offering(request: ChatRequest, messages: Sequence[bytes], *, may_call: bool = True) -> bytes:
    """The request's body with these messages and our tools behind the client's.

    Without `may_call` the model is told to call none. For a request that `may_offer` has allowed.
    """
    edits = [(*request.messages_at, b"[" + b",".join(messages) + b"]")]
    tools = request.shape.last("tools")
    if tools is not None and request.tools is not None:
        edits.append((tools.end - 1, tools.end, b"," + _OURS + b"]"))
    else:
        edits.append(_put(request, "tools", SCHEMAS))
    if not may_call:
        edits.append(_put(request, "tool_choice", b'"none"'))
    return edited(request.body, edits)


def with_ours(tools: bytes | None) -> bytes:
    """The schemas of a request, raw, with ours behind them, as `offering` sends them."""
    return SCHEMAS if tools is None else tools[:-1] + b"," + _OURS + b"]"


def _put(request: ChatRequest, key: str, value: bytes) -> tuple[int, int, bytes]:
    """The edit that gives a member of the body this value, whether it is there or not."""
    member = request.shape.last(key)
    if member is not None:
        return member.start, member.end, value
    end = request.body.rindex(b"}")
    return end, end, b',"' + key.encode() + b'":' + value


def _name(tool: object) -> object:
    function = tool.get("function") if isinstance(tool, dict) else None
    named = function if isinstance(function, dict) else tool
    return named.get("name") if isinstance(named, dict) else None
