"""Adds the recall tools to a request, where that is allowed.

Every byte of the client's request stays, except its messages. The added bytes are the same in every request,
so that the upstream's prompt cache stays valid from turn to turn. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.recall.tool_calls import FUNCTIONS, NAMES
from palimpsest.core.text.message_text import tool_name
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import ChatRequest, Edit, Wire, edited
from palimpsest.core.wire.responses.request import RESPONSES

# The schemas of our tools on each API, without brackets.
_OURS = {wire: b",".join(map(wire.tool, FUNCTIONS)) for wire in (CHAT, RESPONSES)}


# Decoded on the event loop, some 5 ms. The largest agents have 200 kB.
_TOOLS_BYTES = 500_000


def may_offer(request: ChatRequest, *, without_tools: bool = False) -> bool:
    """Whether calls of our tools can be hidden from the client (rule 31).

    The request must have tools of its own (or `without_tools`), ask for one choice and leave the choice of
    tools to the model; none of its tools, grouped ones included, may have one of our names. Tools above
    500 kB get none.
    """
    if not request.wire.may_add_tools(request):
        return False
    if request.tool_choice is not None and decoded(request.tool_choice) != "auto":
        return False
    if request.tools is None:
        return without_tools
    if len(request.tools) > _TOOLS_BYTES:
        return False
    tools = decoded(request.tools)
    if not isinstance(tools, list):
        return False
    groups = [tool.get("tools") for tool in tools if isinstance(tool, dict)]
    inner = [tool for group in groups if isinstance(group, list) for tool in group]
    return not any(map(is_named_as_ours, (*tools, *inner)))


def offering(request: ChatRequest, messages: Sequence[bytes], *, may_call: bool = True) -> bytes:
    """The request's body with these messages, and our tools appended to the client's.

    Only for a request that `may_offer` allows. Without `may_call`, `tool_choice` is "none".
    """
    edits = [*request.edits_for(messages), tools_edit(request)]
    if not may_call:
        edits.append(_put(request, "tool_choice", b'"none"'))
    return edited(request.body, edits)


def tools_edit(request: ChatRequest) -> Edit:
    """The edit that appends our tools to the client's."""
    return _put(request, "tools", with_ours(request.tools, request.wire))


def schemas(wire: Wire) -> bytes:
    """The `tools` member of a request with our tools alone."""
    return b"[" + _OURS[wire] + b"]"


def with_ours(tools: bytes | None, wire: Wire) -> bytes:
    """The raw `tools` of a request with ours appended, as `offering` sends them."""
    return schemas(wire) if tools is None else tools[:-1] + b"," + _OURS[wire] + b"]"


def is_named_as_ours(tool: object) -> bool:
    """Whether a tool of a request has one of our names."""
    return tool_name(tool) in NAMES


def _put(request: ChatRequest, key: str, value: bytes) -> Edit:
    """The edit that sets a member of the body, present or not."""
    member = request.shape.last(key)
    if member is not None:
        return member.start, member.end, value
    end = request.body.rindex(b"}")
    return end, end, b',"' + key.encode() + b'":' + value
