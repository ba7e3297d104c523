"""The recall tools: their names and schemas, and the parsing of their calls.

The schemas are the same bytes on every turn, so that upstreams can cache the prompt. Parsing is lenient:
models write numbers as text and omit what is optional. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.recall.filters import ANY, KINDS, ROLES, Filters
from palimpsest.core.text.fence import sendable
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson

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
        "id": {
            "type": "string",
            "description": 'Message numbers ("12", "12-58", "next 58", "previous 12"), or an id from '
            "context_grep, a summary or a shortened result.",
        },
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

_FUNCTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    GREP: (
        "Search this conversation's full history. What is summarised or no longer shown can be read word for "
        'word, by search or by the message numbers in a summary\'s headings ("messages 12 to 58"). Returns '
        "exact quotes, named by their numbers, best first. Use it before saying that something is not known, "
        "or asking again for it.",
        _GREP,
    ),
    DESCRIBE: (
        "Read this conversation's messages and tool results in full, by their numbers or by an id; of a "
        "summary also its sources. Long ones come in pages. Null where there is nothing.",
        _DESCRIBE,
    ),
}
FUNCTIONS: tuple[Mapping[str, Any], ...] = tuple(
    {"name": name, "description": description, "parameters": parameters}
    for name, (description, parameters) in _FUNCTIONS.items()
)


def for_clients() -> list[Mapping[str, Any]]:
    """The tools for MCP clients, which name the session themselves, among those their key may read."""
    return [
        {
            **function,
            "parameters": {
                **(parameters := function["parameters"]),
                "properties": {
                    **{name: said for name, said in parameters["properties"].items() if name not in _SCOPE},
                    **_SESSION,
                },
            },
        }
        for function in FUNCTIONS
    ]


# C04, C05.
GREP_LIMIT = 10
MOST_HITS = 50
SOURCE_LIMIT = 8
MOST_SOURCES = 25
# Characters of one page by default (about a thousand tokens), and at most.
PAGE_CHARS = 4_000
MOST_PAGE_CHARS = 16_000
# Characters of a query that are read.
QUERY_CHARS = 2_000
_ID_CHARS = 200


@dataclass(frozen=True, slots=True)
class CallScope:
    """`task`: another session's id or name, None for this one; `explicit`: the model says the user asked."""

    task: str | None = None
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class Grep:
    """Search for `query` among entries that pass `only`; `limit` is from 1 to 50."""

    query: str
    limit: int = GREP_LIMIT
    scope: CallScope = CallScope()
    only: Filters = ANY


@dataclass(frozen=True, slots=True)
class Describe:
    """Read the entry or the messages `ident` (`numbers_in`); `source_limit` is from 1 to 25.

    `page`: the first character, and how many; None when no page was asked for.
    """

    ident: str
    source_limit: int = SOURCE_LIMIT
    page: tuple[int, int] | None = None
    scope: CallScope = CallScope()


@dataclass(frozen=True, slots=True)
class UnreadableCall:
    """Why a call cannot be carried out: a stable code, and a sentence for the model."""

    code: str
    message: str


def read_call(name: str, arguments: str) -> Grep | Describe | UnreadableCall:
    """Parses a call of the tool `name`; `arguments` is JSON text."""
    if name not in (GREP, DESCRIBE):
        return UnreadableCall(
            "unknown_tool", f"There is no tool of this name; there are {GREP} and {DESCRIBE}."
        )
    try:
        fields = decoded(arguments.encode("utf-8", "surrogatepass")) if arguments.strip() else {}
    except InvalidJson:
        return UnreadableCall("invalid_json", "The arguments are not valid JSON.")
    if not isinstance(fields, Mapping):
        return UnreadableCall("invalid_arguments", "The arguments must be a JSON object.")
    return grep_of(fields) if name == GREP else describe_of(fields)


def grep_of(fields: Mapping[str, Any]) -> Grep | UnreadableCall:
    """The search that the arguments ask for."""
    query = _text(fields, "query")
    if not query:
        return UnreadableCall("missing_field", "query is required: what to look for, in words.")
    role, kind = _text(fields, "role").lower() or None, _text(fields, "kind").lower() or None
    if role is not None and role not in ROLES:
        return UnreadableCall("invalid_value", f"role is one of {', '.join(ROLES)}, or left out.")
    if kind is not None and kind not in KINDS:
        return UnreadableCall("invalid_value", f"kind is one of {', '.join(KINDS)}, or left out.")
    limit = _bounded(fields, "limit", GREP_LIMIT, MOST_HITS)
    return Grep(query[:QUERY_CHARS], limit, _scope(fields), Filters(role, kind))


def describe_of(fields: Mapping[str, Any]) -> Describe | UnreadableCall:
    """The entry that the arguments ask for."""
    number = fields.get("id")
    ident = str(number) if type(number) is int else _text(fields, "id")
    if not ident:
        return UnreadableCall("missing_field", "id is required: message numbers, or an id that is shown.")
    offset, limit = _number(fields, "offset"), _number(fields, "limit")
    page = None
    if offset is not None or limit is not None:
        page = max(0, offset or 0), _bounded(fields, "limit", PAGE_CHARS, MOST_PAGE_CHARS)
    sources = _bounded(fields, "sourceLimit", SOURCE_LIMIT, MOST_SOURCES)
    return Describe(ident[:_ID_CHARS], sources, page, _scope(fields))


_ASKED = re.compile(r"(?i)(?:(next|previous)\s+(?:(?:of|to|after|before)\s+)?)?(?:messages?\s+)?(\S.*)")
_NUMBERS = re.compile(r"(\d{1,9})(?:\s*(?:-|\u2013|to)\s*(\d{1,9}))?")


def numbers_in(ident: str, number_of: Callable[[str], int | None]) -> tuple[int, int] | None:
    """The first and last number of the messages asked for: "12", "12-58", "next 58", "previous 12-58".

    The next and previous ones are as many as those named. `number_of` an id is asked for where a word
    precedes it; None for an id alone, or one without a number.
    """
    asked = _ASKED.fullmatch(ident.strip())
    found = _NUMBERS.fullmatch(asked[2]) if asked else None
    step = asked[1].lower() if asked and asked[1] else ""
    if found:
        first, last = sorted((int(found[1]), int(found[2] or found[1])))
    elif asked and step and (number := number_of(asked[2])):
        first = last = number
    else:
        return None
    size = last - first + 1
    return {
        "": (first, last),
        "next": (last + 1, last + size),
        "previous": (max(1, first - size), first - 1),
    }[step]


def names_session(text: str, session: str, name: str | None) -> bool:
    """True when a text contains a session's id or the client's name for it, as a separate word (rule 28)."""
    low = text.casefold()
    return any(
        re.search(rf"(?<![\w-]){re.escape(known.casefold())}(?![\w-])", low) is not None
        for known in (session, name)
        if known
    )


def _scope(fields: Mapping[str, Any]) -> CallScope:
    return CallScope(
        _text(fields, "taskId") or None, fields.get("explicitUserRequest") in (True, "true", "True")
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    """The text of a field, in a form that a database accepts; "" without one."""
    value = fields.get(name)
    return sendable(value).strip() if isinstance(value, str) else ""


def _bounded(fields: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = _number(fields, name)
    return default if value is None else max(1, min(value, most))


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    """A number as an integer, also one written as text or with a decimal point; None for anything else."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
