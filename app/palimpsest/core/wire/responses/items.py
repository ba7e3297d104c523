"""Items of the Responses API read as chat messages, and items given by reference (an id) only.

Items are stored and sent as they came; these readings serve decisions only. One answer is several items and
one message, stored as the array of its items. References can be resolved for answers that passed through this
program, by the ids that the upstream gave their items. Source: API reference ("Responses", items), 2026-11.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from palimpsest.core.wire.compaction_items import KIND, summary_in
from palimpsest.core.wire.json_spans import is_plain, raw_elements
from palimpsest.core.wire.json_text import decoded

# The types of content parts that are text.
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
# The member with a tool's result: of a chat's tool message, and of an item.
RESULT_MEMBERS = frozenset({"content", "output"})
# Members that output items have, and that many clients leave out when they send the item back.
_OUTPUT_ONLY = frozenset({"id", "status", "type"})
_CALL = "_call"
# An approval refers to its request as a result refers to its call.
_APPROVAL = "mcp_approval_response"
_APPROVAL_REQUEST = "mcp_approval_request"
# Results of programs that the upstream ran itself.
_UPSTREAM_RESULTS = frozenset({"program_output"})


def is_result(item: Mapping[str, Any]) -> bool:
    """True for a client's result of a call: a function's output and the like."""
    kind = str(item.get("type", ""))
    if kind in _UPSTREAM_RESULTS or item.get("execution") == "server":
        return False
    names_call = isinstance(item.get("call_id"), str)
    return kind == _APPROVAL or kind.endswith("_call_output") or (kind.endswith("_output") and names_call)


def is_said_by_model(item: Mapping[str, Any]) -> bool:
    """True for items that are part of an answer: messages, reasoning, calls, and items of unknown types."""
    role = item.get("role")
    if item.get("type") == "message" or isinstance(role, str):
        return role == "assistant"
    if item.get("type") is None:
        # An id alone refers to an item that the upstream keeps.
        return isinstance(item.get("id"), str)
    return not is_result(item) and item["type"] != KIND


def runs_at_upstream(call: Mapping[str, Any]) -> bool:
    """True for a call that the upstream runs itself; its result is in the same answer."""
    where = call.get("environment")
    return isinstance(where, dict) and where.get("type") == "container_reference"


def as_chat(value: Any) -> Any:
    """A decoded stored body as a chat message; a chat message is returned unchanged.

    A list of items is an answer: its text, its calls (by `call_id`) and its reasoning.
    """
    if isinstance(value, list):
        return _answer(value) if value and all(isinstance(item, dict) for item in value) else value
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if kind is None or kind == "message":
        content = value.get("content")
        parts = content if isinstance(content, list) else ()
        is_item = kind or any(
            isinstance(part, dict) and str(part.get("type")) in _ITEM_PARTS for part in parts
        )
        return _without(value, _OUTPUT_ONLY) | {"content": _parts(content)} if is_item else value
    if "role" in value:
        # A typed object with a role is a message of an unknown type.
        return value
    if is_result(value):
        # The id of the call: of most types, of an approval, and of a local shell call in older clients.
        call = value.get("call_id") or value.get("approval_request_id") or value.get("id")
        return {"role": "tool", "tool_call_id": call, "content": _result_content(value)}
    if kind == KIND:
        summary = summary_in(value)
        if summary is not None:
            # Our own summary: sent as a user message, like our other summaries.
            return {"role": "user", "content": summary}
        # The upstream's own compaction: it must be kept, and is unreadable here.
        return {"role": "developer", "content": "", "encrypted_reasoning": _encrypted([value])}
    return _answer([value])


def _result_content(item: Mapping[str, Any]) -> Any:
    """The content of a tool's result, as text or parts."""
    output = item.get("output")
    if item.get("type") == "apply_patch_call_output":
        # Its status is the result; a failure has text as well.
        return "\n".join(str(said) for said in (item.get("status"), output) if said)
    if isinstance(output, str):
        return output
    if isinstance(output, list):
        return _parts(output)
    if isinstance(output, Mapping):
        # A computer's screenshot.
        return [_part(output)]
    rest = _without(item, _OUTPUT_ONLY | {"call_id"})
    return _json_of(rest) if rest else ""


def _without(item: Mapping[str, Any], dropped: Collection[str]) -> dict[str, Any]:
    return {key: field for key, field in item.items() if key not in dropped}


def _answer(items: Sequence[Any]) -> dict[str, Any]:
    said: list[Any] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[Any] = []
    others: list[Any] = []
    # Calls that the upstream ran itself have their results in the answer.
    closed = {str(item.get("call_id")) for item in items if str(item.get("type", "")).endswith("_output")}
    for item in items:
        kind = str(item.get("type") or "message")
        if kind == "message" and "role" in item:
            content = _parts(item.get("content"))
            said += content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        elif kind == "reasoning":
            thoughts.append(item)
        elif str(item.get("call_id")) not in closed and (
            (kind.endswith(_CALL) and isinstance(item.get("call_id"), str))
            or (kind == _APPROVAL_REQUEST and isinstance(item.get("id"), str))
        ):
            calls.append(_call(item, kind))
        else:
            # What clients drop of an item; the id is all there is to a reference, and to a generated image.
            dropped = () if kind in ("item_reference", "message") else ("id", "status")
            is_image = kind == "image_generation_call" and item.get("id")
            bare = {"type": kind, "id": item["id"]} if is_image else _without_empty(_without(item, dropped))
            others.append(bare)
    # A single text part as a string, as chat completions have it.
    is_text = len(said) == 1 and isinstance(said[0], dict) and said[0].keys() == {"type", "text"}
    fields: dict[str, Any] = {"role": "assistant", "content": said[0]["text"] if is_text else said or None}
    # The reasoning, readable and encrypted, under field names that digests leave out.
    details = [
        {key: field for key, field in thought.items() if key in ("summary", "content") and field}
        for thought in thoughts
    ]
    more = {
        "tool_calls": calls,
        "items": others,
        "reasoning_details": [detail for detail in details if detail],
        "encrypted_reasoning": _encrypted(thoughts),
    }
    return fields | {key: value for key, value in more.items() if value}


def _call(item: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if kind == "custom_tool_call":
        custom = {"name": item.get("name"), "input": item.get("input")}
        return {"id": item["call_id"], "type": "custom", "custom": custom}
    if kind in ("function_call", _APPROVAL_REQUEST):
        ident = item["id"] if kind == _APPROVAL_REQUEST else item["call_id"]
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        return {"id": ident, "type": "function", "function": function}
    # Built-in tools of the API (a shell, a computer) are named after their type.
    said = _without_empty(_without(item, _OUTPUT_ONLY | {"call_id"}))
    function = {"name": kind.removesuffix(_CALL), "arguments": _json_of(said)}
    return {"id": item["call_id"], "type": "function", "function": function}


def _json_of(value: Any) -> str:
    # `default`: numbers that were decoded exactly are not JSON types.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _without_empty(value: Any) -> Any:
    """Without the nulls and empty values that SDKs add where a server left a field out."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_empty(field) for key, field in value.items()}
    return {key: field for key, field in kept.items() if field is not None and field not in ({}, [])}


def _encrypted(items: Sequence[Mapping[str, Any]]) -> list[str]:
    texts = (item.get("encrypted_content") for item in items)
    return [text for text in texts if isinstance(text, str)]


def _parts(content: Any) -> Any:
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind is not None and not isinstance(kind, str):
        return part
    if kind in TEXT_PARTS:
        return {"type": "text", "text": part.get("text")} | _without(part, _KNOWN_IN_PARTS)
    if kind is None and "stdout" in part:
        # The output of a shell command, and its outcome.
        ended = part.get("outcome")
        outcome = _json_of(_without_empty(ended)) if isinstance(ended, dict) else ""
        pieces = (part.get("stdout"), part.get("stderr"), outcome)
        text = "\n".join(str(piece).rstrip("\n") for piece in pieces if piece) + "\n"
        return {"type": "text", "text": text}
    if kind in ("input_image", "computer_screenshot"):
        image = {"url": part.get("image_url") or part.get("file_id"), "detail": part.get("detail")}
        return {"type": "image_url", "image_url": image} | _without(part, _KNOWN_IN_PARTS)
    if kind == "input_file":
        return {"type": "file", "file": _without(part, ("type",))}
    return part


# Fields of a part that hold its content, or that only answers have.
_KNOWN_IN_PARTS = frozenset(
    {"type", "text", "image_url", "file_id", "detail", "annotations", "logprobs", "obfuscation"}
)
_ITEM_PARTS = (TEXT_PARTS - {"text"}) | {"input_image", "input_file", "computer_screenshot"}


_REFERENCE = "item_reference"
# The types of a reference: the API lets clients leave it out.
REFERENCES = (None, _REFERENCE)
# Characters. Ids have some 50; longer ones are not indexed.
LONGEST_ID = 200
# A client's item that is nested deeper, or repeats a key, would be refused.
_LEVELS = 64


def has_item_references(messages: Iterable[Mapping[str, Any]]) -> bool:
    """True when a message, as `as_chat` gives it, is or holds an unresolved item reference.

    Such a conversation is incomplete: folding it would lose the content of the referenced items.
    """
    return any(_is_reference(item) for fields in messages for item in _other_items(fields))


def item_references_in(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of the unresolved item references in messages as `as_chat` gives them."""
    found = (referenced_id(item) for fields in messages for item in _other_items(fields))
    return [ident for ident in found if ident is not None]


def referenced_id(item: Any) -> str | None:
    """The id that an item reference refers to; None for any other item.

    A reference may lack its type: then it has an id only.
    """
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return None
    if item.get("type") is None and item.keys() - {"id", "type"}:
        return None
    return item["id"] if _is_reference(item) else None


def ids_in(answer: bytes) -> tuple[str, ...]:
    """The distinct ids by which a later request may refer to items of an answer; none for a chat message."""
    if not answer.startswith(b"["):
        return ()
    return tuple(dict.fromkeys(ident for ident, _ in _items(answer) if 0 < len(ident) <= LONGEST_ID))


def unique_item(answers: Iterable[bytes], ident: str) -> bytes | None:
    """The raw item of this id in the answers; None without one, or when several differ.

    None also for an item that would be refused if a client had sent it.
    """
    found = {item for answer in answers for name, item in _items(answer) if name == ident}
    if len(found) != 1:
        return None
    (raw,) = found
    item = decoded(raw)
    content = item.get("content")
    # A reference has no content.
    is_readable = referenced_id(item) is None and (content is None or isinstance(content, str | list))
    parts = content if isinstance(content, list) else ()
    are_objects = all(isinstance(part, dict) for part in parts)
    return raw if is_readable and are_objects and is_plain(raw, _LEVELS) else None


def _items(answer: bytes) -> Iterable[tuple[str, bytes]]:
    for raw in raw_elements(answer):
        item = decoded(raw)
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            yield item["id"], raw


def _other_items(fields: Mapping[str, Any]) -> Iterable[Any]:
    items = fields.get("items")
    return items if isinstance(items, list) else ()


def _is_reference(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type", _REFERENCE) in REFERENCES
