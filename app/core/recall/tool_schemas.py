"""The two tools with which a model reads what was folded: their names and their schemas.

The bytes are the same on every turn, so that an upstream's cache keeps the prompt they stand in. Knows
nothing of how a call is read (`tools/arguments.py`) or answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.recall.filters import KINDS, ROLES
from app.core.wire.json_text import encoded

GREP = "context_grep"
DESCRIBE = "context_describe"
NAMES = frozenset({GREP, DESCRIBE})

_SCOPE: Mapping[str, Any] = {
    "taskId": {
        "type": "string",
        "description": "Another session to look in; ignored unless the user's newest message names it.",
    },
    "explicitUserRequest": {
        "type": "boolean",
        "description": "True only with such a taskId.",
    },
}
_SESSION: Mapping[str, Any] = {
    "session": {
        "type": "string",
        "description": "The session's id or name; without it the newest one is meant.",
    }
}
_GREP: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "A question or a few words; names, numbers, rare words find most. "
            'Exact wording in "quotation marks".',
        },
        "limit": {"type": "integer", "description": "Results, 1 to 50; 10 unless told."},
        "role": {"type": "string", "enum": list(ROLES), "description": "Only what this one said."},
        "kind": {
            "type": "string",
            "enum": list(KINDS),
            "description": "Only commands run, paths touched, tool results with an error, or summaries.",
        },
        **_SCOPE,
    },
    "required": ["query"],
}
_DESCRIBE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "From context_grep, a summary or a shortened result."},
        "sourceLimit": {
            "type": "integer",
            "description": "A summary's source messages, 1 to 25; 8 unless told.",
        },
        "offset": {
            "type": "integer",
            "description": "The page's first character; a result says where the next begins.",
        },
        "limit": {
            "type": "integer",
            "description": "The page's characters, up to 16,000; 4,000 unless told.",
        },
        **_SCOPE,
    },
    "required": ["id"],
}

GREP_DESCRIPTION = (
    "Search this conversation's full history, also what is summarised and no longer shown. Returns exact "
    "quotes with ids, best first. Use it before saying that something is not known, or asking again for it."
)
DESCRIBE_DESCRIPTION = (
    "Read one entry of this conversation's history in full by its id: a message, a tool result, or a summary "
    "with its sources. Long texts come in pages. Null for an id of no entry here."
)


def _function(name: str, description: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    said = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": said}


SCHEMAS: tuple[Mapping[str, Any], ...] = (
    _function(GREP, GREP_DESCRIPTION, _GREP),
    _function(DESCRIBE, DESCRIBE_DESCRIPTION, _DESCRIBE),
)
# Each as the bytes that are put into a request: of chat completions, and of the Responses API, where a
# schema is taken for a strict one unless it says otherwise.
RENDERED: tuple[bytes, ...] = tuple(encoded(schema) for schema in SCHEMAS)
RENDERED_FLAT: tuple[bytes, ...] = tuple(
    encoded({"type": "function", **schema["function"], "strict": False}) for schema in SCHEMAS
)


def for_clients() -> list[Mapping[str, Any]]:
    """The tools as MCP clients see them: they name the session themselves, within what their key sees."""
    return [_with_session(schema["function"]) for schema in SCHEMAS]


def _with_session(function: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = function["parameters"]
    own = {name: said for name, said in parameters["properties"].items() if name not in _SCOPE}
    return {**function, "parameters": {**parameters, "properties": {**own, **_SESSION}}}
