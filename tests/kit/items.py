"""Items of the Responses API as a scripted server says and judges them, and questions asked in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.responses.items import as_chat, is_said_by_model
from palimpsest.core.wire.responses.request import parse_responses_request

from tests.kit.model import Says, counter

Json = dict[str, Any]
Outputs = list[Json]


def text_item(text: str, ident: str = "msg_1") -> Json:
    """What a model says, as one item."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": ident, "type": "message", "status": "completed", "role": "assistant", "content": content}


def call_item(call_id: str, name: str, arguments: Json) -> Json:
    """A call of a function, as one item."""
    told = {"name": name, "arguments": json.dumps(arguments), "call_id": call_id}
    return {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", **told}


def thought_item(ident: str, sealed: str = "gAAAAB" * 40, short: str = "") -> Json:
    """What a model thought, sealed and in short."""
    summary = [{"type": "summary_text", "text": short}] if short else []
    return {"id": ident, "type": "reasoning", "summary": summary, "encrypted_content": sealed}


def result_item(call_id: str, output: str) -> Json:
    """What a call gave."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def reference(item: Json | str) -> Json:
    """The item's mere name."""
    return {"type": "item_reference", "id": item if isinstance(item, str) else item["id"]}


def is_reference(item: Json) -> bool:
    """True for an item's mere name."""
    return item.get("type") == "item_reference" or item.keys() == {"id"}


def told_items(items: list[Json], kept: Mapping[str, Json]) -> list[Json]:
    """The items, those that are kept in the places where they are named; what is named twice once."""
    named = {item["id"]: kept[item["id"]] for item in items if is_reference(item) and item["id"] in kept}
    whole = [named.pop(item["id"], None) if is_reference(item) else item for item in items]
    return [item for item in whole if item is not None]


def faults_in(items: list[Json]) -> list[str]:
    """What OpenAI would refuse in an input: results without calls, calls without results, lone thoughts."""
    faults: list[str] = []
    open_calls: list[str] = []
    for item, follows in zip(items, [*items[1:], {}], strict=False):
        kind = item.get("type") or "message"
        if kind == "function_call":
            open_calls.append(item["call_id"])
        elif kind == "function_call_output":
            faults += [] if item["call_id"] in open_calls else [f"No tool call found for {item['call_id']}."]
            open_calls = [call for call in open_calls if call != item["call_id"]]
        elif kind == "reasoning":
            is_alone = not is_said_by_model(follows)
            faults += [f"Item '{item['id']}' was provided without its following item."] if is_alone else []
        elif kind in ("web_search_call", "compaction"):
            continue
        elif item.get("role") not in ("user", "assistant", "system", "developer"):
            faults.append(f"Invalid item: {item}")
        elif item["role"] == "user" and open_calls:
            faults.append(f"No tool output found for function call {open_calls[0]}.")
    return faults + [f"No tool output found for function call {call}." for call in open_calls]


# What stands before the items of a prompt, or is part of what they are cached by.
HEAD = ("instructions", "tools", "reasoning", "text", "prompt_cache_key")


def as_chat_body(body: Json, said: Any) -> Json:
    """A request as the chat completion that asks the same."""
    raw = json.dumps({"model": body.get("model"), "input": said or "-"}).encode()
    request = parse_responses_request(raw, RequestLimits(64, 100_000))
    told = [as_chat(json.loads(span)) for span in request.message_spans] if request else []
    first = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    # An input may be nothing but a wish.
    return {"model": body.get("model"), "messages": [*first, *told] or [{"role": "user", "content": ""}]}


def output_of(says: Says, number: int) -> Outputs:
    """What a scripted summarizer says, as items."""
    message = says.message or {}
    words = [text_item(message["content"], f"msg_{number}")] if message.get("content") else []
    calls = [call["function"] for call in message.get("tool_calls", ())]
    made = [call_item(f"c_{number}", call["name"], json.loads(call["arguments"])) for call in calls]
    return [thought_item(f"rs_{number}"), *words, *made]


def shared(one: list[Json], other: list[Json]) -> list[Json]:
    """The longest beginning that two inputs have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))]


def items_tokens(items: list[Json], body: Json) -> int:
    """What a prompt of these items takes, instructions and tools included."""
    count = counter().count_message
    tokens = 3 + sum(count(as_chat([item] if is_said_by_model(item) else item)) for item in items)
    if body.get("instructions"):
        tokens += count({"role": "system", "content": body["instructions"]})
    if body.get("tools"):
        tokens += counter().count_tools(json.dumps(body["tools"]).encode())
    return tokens
