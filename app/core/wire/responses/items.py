"""The items of the Responses API as the chat messages that the rest of the program knows.

Bytes are stored and sent as they came; only what is decided by is read through here. What a model says in one
answer is several items and one message: it is stored as the array of them. Knows nothing of requests, answers
or streams. Read of the API reference ("Responses", items), 2026-11.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.core.wire.responses.compacting import KIND, summary_in

# Parts of a message's content that are text, under the names of this wire.
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
# What is added to an item when it is answered, and left out by many when it is sent back.
_OF_THE_ANSWER = frozenset({"id", "status", "type"})
_CALL = "_call"
# A person's answer to a question of the model's: it names the question as a result names its call.
_CONSENT = "mcp_approval_response"
_QUESTION = "mcp_approval_request"
# What a program of the model's own gave: it ran at the upstream.
_OF_THE_UPSTREAM = frozenset({"program_output"})
# What the upstream, or this program, made of older items.
_FOLDED = KIND


def is_result(item: Mapping[str, Any]) -> bool:
    """True for what a client found out for a call of the model's: a function's output and its like."""
    kind = str(item.get("type", ""))
    if kind in _OF_THE_UPSTREAM or item.get("execution") == "server":
        return False
    names_call = isinstance(item.get("call_id"), str)
    return kind == _CONSENT or kind.endswith("_call_output") or (kind.endswith("_output") and names_call)


def is_said_by_model(item: Mapping[str, Any]) -> bool:
    """True for what is part of an answer: its messages, thoughts and calls, and kinds that we do not know."""
    role = item.get("role")
    if item.get("type") == "message" or isinstance(role, str):
        return role == "assistant"
    if item.get("type") is None:
        # Nothing but an id names an item that the upstream keeps.
        return isinstance(item.get("id"), str)
    return not is_result(item) and item["type"] != _FOLDED


def runs_at_upstream(call: Mapping[str, Any]) -> bool:
    """True for a call whose result the upstream finds out by itself and says in the same answer."""
    where = call.get("environment")
    return isinstance(where, dict) and where.get("type") == "container_reference"


def as_chat(value: Any) -> Any:
    """The chat message that a decoded body stands for; what is one already is given back as it is.

    A list of items is an answer: its text, its calls by the id that their results name, its thoughts.
    """
    if isinstance(value, list):
        return _answer(value) if value and all(isinstance(item, dict) for item in value) else value
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if kind is None or kind == "message":
        return _message(value) if kind or _has_own_parts(value.get("content")) else value
    if "role" in value:
        # A typed object with a role is a message of a kind that we do not know.
        return value
    if is_result(value):
        return _result(value)
    if kind == _FOLDED:
        summary = summary_in(value)
        if summary is not None:
            # What this program folded: it goes out as a message of a user's, as its other summaries do.
            return {"role": "user", "content": summary}
        # What the upstream folded by itself: it must stay, and nobody here can read it.
        return {"role": "developer", "content": "", "encrypted_reasoning": _sealed([value])}
    return _answer([value])


def _message(item: dict[str, Any]) -> dict[str, Any]:
    kept = {key: field for key, field in item.items() if key not in _OF_THE_ANSWER}
    return kept | {"content": _parts(item.get("content"))}


def _result(item: dict[str, Any]) -> dict[str, Any]:
    # Names of calls: of most kinds, of a consent, and of a local shell's in older clients.
    call = item.get("call_id") or item.get("approval_request_id") or item.get("id")
    return {"role": "tool", "tool_call_id": call, "content": _found(item)}


def _found(item: Mapping[str, Any]) -> Any:
    """What was found out, as text or parts."""
    output = item.get("output")
    if item.get("type") == "apply_patch_call_output":
        # Its state is what it says; words are added to a failure.
        return "\n".join(str(said) for said in (item.get("status"), output) if said)
    if isinstance(output, str):
        return output
    if isinstance(output, list):
        return _parts(output)
    if isinstance(output, Mapping):
        # A computer's screenshot.
        return [_part(output)]
    rest = {key: field for key, field in item.items() if key not in _OF_THE_ANSWER | {"call_id"}}
    return _written(rest) if rest else ""


def _answer(items: Sequence[Any]) -> dict[str, Any]:
    said: list[Any] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[Any] = []
    others: list[Any] = []
    # What the upstream ran by itself is answered already.
    closed = {str(item.get("call_id")) for item in items if str(item.get("type", "")).endswith("_output")}
    for item in items:
        kind = str(item.get("type") or "message")
        if kind == "message" and "role" in item:
            content = _parts(item.get("content"))
            said += content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        elif kind == "reasoning":
            thoughts.append(item)
        elif _is_open_call(item, kind) and str(item.get("call_id")) not in closed:
            calls.append(_call(item, kind))
        else:
            others.append(_bare(item, kind))
    fields: dict[str, Any] = {"role": "assistant", "content": _joined(said)}
    if calls:
        fields["tool_calls"] = calls
    if others:
        fields["items"] = others
    return fields | _thoughts(thoughts)


def _is_open_call(item: Mapping[str, Any], kind: str) -> bool:
    names_itself = kind.endswith(_CALL) and isinstance(item.get("call_id"), str)
    return names_itself or (kind == _QUESTION and isinstance(item.get("id"), str))


def _joined(said: Sequence[Any]) -> Any:
    """One text as a string, as chat has it; several parts as they are, none as nothing."""
    if len(said) == 1 and isinstance(said[0], dict) and said[0].keys() == {"type", "text"}:
        return said[0]["text"]
    return list(said) or None


def _call(item: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if kind == "custom_tool_call":
        custom = {"name": item.get("name"), "input": item.get("input")}
        return {"id": item["call_id"], "type": "custom", "custom": custom}
    if kind in ("function_call", _QUESTION):
        ident = item["id"] if kind == _QUESTION else item["call_id"]
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        return {"id": ident, "type": "function", "function": function}
    # Tools that the API knows by itself (a shell, a computer): named after their kind.
    said = {key: field for key, field in item.items() if key not in _OF_THE_ANSWER | {"call_id"}}
    function = {"name": kind.removesuffix(_CALL), "arguments": _written(_without_nothings(said))}
    return {"id": item["call_id"], "type": "function", "function": function}


def _written(value: Any) -> str:
    # Numbers that are kept exact are no plain values.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _without_nothings(value: Any) -> Any:
    """Without the nulls and empty values that SDKs add where a server left a field out."""
    if isinstance(value, list):
        return [_without_nothings(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_nothings(field) for key, field in value.items()}
    return {key: field for key, field in kept.items() if field is not None and field not in ({}, [])}


def _thoughts(items: Sequence[Any]) -> dict[str, Any]:
    """What a model thought: what can be read of it, and what is sealed, under names that no digest counts."""
    told: dict[str, Any] = {}
    readable = [
        {key: field for key, field in item.items() if key in ("summary", "content") and field}
        for item in items
    ]
    if any(readable):
        told["reasoning_details"] = [fields for fields in readable if fields]
    if sealed := _sealed(items):
        told["encrypted_reasoning"] = sealed
    return told


def _sealed(items: Sequence[Mapping[str, Any]]) -> list[str]:
    texts = (item.get("encrypted_content") for item in items)
    return [text for text in texts if isinstance(text, str)]


def _bare(item: Mapping[str, Any], kind: str) -> Any:
    """An item without what one side adds and the other drops."""
    if kind == "image_generation_call" and item.get("id"):
        # Clients refer to a picture of the model's by its id, as to its voice.
        return {"type": kind, "id": item["id"]}
    # A reference is nothing but an id.
    dropped = () if kind in ("item_reference", "message") else ("id", "status")
    return _without_nothings({key: field for key, field in item.items() if key not in dropped})


def _has_own_parts(content: Any) -> bool:
    parts = content if isinstance(content, list) else ()
    return any(isinstance(part, dict) and str(part.get("type")) in _OWN_PARTS for part in parts)


def _parts(content: Any) -> Any:
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind is not None and not isinstance(kind, str):
        return part
    if kind in TEXT_PARTS:
        return {"type": "text", "text": part.get("text")} | _hints(part)
    if kind is None and "stdout" in part:
        return {"type": "text", "text": _printed(part)}
    if kind in ("input_image", "computer_screenshot"):
        image = {"url": part.get("image_url") or part.get("file_id"), "detail": part.get("detail")}
        return {"type": "image_url", "image_url": image} | _hints(part)
    if kind == "input_file":
        file = {key: field for key, field in part.items() if key != "type"}
        return {"type": "file", "file": file}
    return part


def _printed(command: Mapping[str, Any]) -> str:
    """What a command of a shell printed, and how it ended."""
    ended = command.get("outcome")
    told = _written(_without_nothings(ended)) if isinstance(ended, dict) else ""
    pieces = (command.get("stdout"), command.get("stderr"), told)
    return "\n".join(str(piece).rstrip("\n") for piece in pieces if piece) + "\n"


def _hints(part: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a part beside its content, but for those that only answers have."""
    return {key: field for key, field in part.items() if key not in _KNOWN_IN_PARTS}


_KNOWN_IN_PARTS = frozenset(
    {"type", "text", "image_url", "file_id", "detail", "annotations", "logprobs", "obfuscation"}
)
_OWN_PARTS = (TEXT_PARTS - {"text"}) | {"input_image", "input_file", "computer_screenshot"}
