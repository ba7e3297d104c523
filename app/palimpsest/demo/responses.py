"""The demo model on the Responses API: items in, items or events out.

Pure. Like many servers, it does not store answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# A fixed time, so that equal requests get equal answers.
CREATED = 1_700_000_000
_CALL_FIELDS = ("name", "arguments", "input", "action")


def messages_in(body: Mapping[str, Any]) -> list[Any]:
    """The input as messages, the instructions first; empty without an input."""
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        return []
    instructions = body.get("instructions")
    first = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    return [*first, *(_message(item) for item in items if isinstance(item, Mapping))]


def response_of(body: Mapping[str, Any], model: str, ident: str, text: str, usage: Mapping[str, int]) -> Any:
    """A finished answer; `usage` is in the form of chat completions."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {
        "id": f"msg-demo-{ident}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    return {
        "id": f"resp-demo-{ident}",
        "object": "response",
        "created_at": CREATED,
        "model": model,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": True,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "output": [item],
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def cut_short(response: Mapping[str, Any]) -> dict[str, Any]:
    """The same answer, ended by `max_output_tokens`."""
    return {**response, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def frames_of(response: Mapping[str, Any], pieces: Sequence[str]) -> Iterator[bytes]:
    """The answer as server-sent events, with its text in these pieces."""
    for number, event in enumerate(_events(response, pieces)):
        data = json.dumps({**event, "sequence_number": number}, ensure_ascii=False)
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def _events(response: Mapping[str, Any], pieces: Sequence[str]) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    (item,) = response["output"]
    (part,) = item["content"]
    empty = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
    at = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in pieces:
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """An item as a message of chat completions, which the demo model reads."""
    if "role" in item:
        return item
    if str(item.get("type")).endswith("_output"):
        return {"role": "tool", "content": _text(item.get("output"))}
    called = " ".join(_text(item[key]) for key in _CALL_FIELDS if key in item)
    return {"role": "assistant", "content": called}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
