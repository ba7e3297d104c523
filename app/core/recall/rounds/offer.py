"""Our tools in a request: when a model is told of them, and the body that tells it.

Pure. Every byte that the client wrote stays but its messages; ours are the same in every request, so that
the upstream's prompt cache holds from turn to turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.recall.tool_schemas import NAMES, RENDERED, RENDERED_FLAT
from app.core.wire.chat_request import ChatRequest, Wire, edited
from app.core.wire.json_text import decoded
from app.core.wire.responses.compacting import MANAGEMENT

_OURS = {"chat": b",".join(RENDERED), "responses": b",".join(RENDERED_FLAT)}


def may_offer(request: ChatRequest, *, without_tools: bool = False) -> bool:
    """Whether the client can be unaware of calls to tools of ours (rule 31).

    It must have sent tools itself (or `without_tools`), want one choice and leave the choice of tools to the
    model; no tool of its own may have one of our names.
    """
    if not (_may_offer_items(request) if request.wire == "responses" else _may_offer_chat(request)):
        return False
    if request.tool_choice is not None and decoded(request.tool_choice) != "auto":
        return False
    if request.tools is None:
        return without_tools
    tools = decoded(request.tools)
    return isinstance(tools, list) and not any(_has_our_name(tool) for tool in tools)


def _may_offer_chat(request: ChatRequest) -> bool:
    return request.shape.last("functions") is None and request.n == 1


def _may_offer_items(request: ChatRequest) -> bool:
    """A stored prompt has tools that nobody here knows; who asks for a compaction has nothing to look up.

    An upstream that compacts as it answers would say so in a round that the client does not see.
    """
    manages = MANAGEMENT not in request.dropped and bool(request.members((MANAGEMENT,)))
    return request.trigger is None and not manages and not request.members(("prompt",))


def offering(request: ChatRequest, messages: Sequence[bytes], *, may_call: bool = True) -> bytes:
    """The request's body with these messages and our tools behind the client's.

    Without `may_call` the model is told to call none. For a request that `may_offer` has allowed.
    """
    edits = request.edits_for(messages)
    tools = request.shape.last("tools")
    if tools is not None and request.tools is not None:
        edits.append((tools.end - 1, tools.end, b"," + _OURS[request.wire] + b"]"))
    else:
        edits.append(_put(request, "tools", schemas(request.wire)))
    if not may_call:
        edits.append(_put(request, "tool_choice", b'"none"'))
    return edited(request.body, edits)


def schemas(wire: Wire) -> bytes:
    """Our tools as a request of their own would have them."""
    return b"[" + _OURS[wire] + b"]"


def with_ours(tools: bytes | None, wire: Wire) -> bytes:
    """The schemas of a request, raw, with ours behind them, as `offering` sends them."""
    return schemas(wire) if tools is None else tools[:-1] + b"," + _OURS[wire] + b"]"


def is_named_as_ours(tool: object) -> bool:
    """Whether a tool of a request has one of our names."""
    function = tool.get("function") if isinstance(tool, dict) else None
    named = function if isinstance(function, dict) else tool
    name = named.get("name") if isinstance(named, dict) else None
    return isinstance(name, str) and name in NAMES


def _has_our_name(tool: object) -> bool:
    """The same of a tool and of those that are sent as a group under one name."""
    group = tool.get("tools") if isinstance(tool, dict) else None
    inner = group if isinstance(group, list) else []
    return is_named_as_ours(tool) or any(is_named_as_ours(each) for each in inner)


def _put(request: ChatRequest, key: str, value: bytes) -> tuple[int, int, bytes]:
    """The edit that gives a member of the body this value, whether it is there or not."""
    member = request.shape.last(key)
    if member is not None:
        return member.start, member.end, value
    end = request.body.rindex(b"}")
    return end, end, b',"' + key.encode() + b'":' + value
