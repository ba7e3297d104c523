"""The recall tools: their names and schemas, and the parsing of their calls.

The schemas are the same bytes on every turn, so that upstreams can cache the prompt. Parsing is lenient:
models write numbers as text and omit what is optional. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.core.recall.filters import ANY, KINDS, ROLES, Filters
from palimpsest.core.text.fence import sendable
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson

GREP = "context_grep"
DESCRIBE = "context_describe"
NAMES = frozenset({GREP, DESCRIBE})


def _field(kind: str, description: str, *values: str) -> Mapping[str, Any]:
    return {"type": kind, **({"enum": list(values)} if values else {}), "description": description}


_SCOPE = {
    "taskId": _field(
        "string", "Another session to look in; ignored unless the user's newest message names it."
    ),
    "explicitUserRequest": _field("boolean", "True only with such a taskId."),
}
_SESSION = {"session": _field("string", "The session's id or name; without it the newest one is meant.")}
# The description of each tool, its required field, and its fields.
_TOOLS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    GREP: (
        "Search this conversation's full history. What is summarised or no longer shown can be read word for "
        'word, by search or by the message numbers in a summary\'s headings ("messages 12 to 58"). Returns '
        "exact quotes, named by their numbers, best first. Use it before saying that something is not known, "
        "or asking again for it.",
        "query",
        {
            "query": _field(
                "string",
                "A question or a few words; names, numbers, rare words find most. "
                'Exact wording in "quotation marks".',
            ),
            "limit": _field("integer", "Results, 1 to 50; 10 unless told."),
            "role": _field("string", "Only what this one said.", *ROLES),
            "kind": _field(
                "string",
                "Only commands run, paths touched, tool results with an error, or summaries.",
                *KINDS,
            ),
        },
    ),
    DESCRIBE: (
        "Read this conversation's messages and tool results in full, by their numbers or by an id; of a "
        "summary also its sources. Long ones come in pages. Null where there is nothing.",
        "id",
        {
            "id": _field(
                "string",
                'Message numbers ("12", "12-58", "next 58", "previous 12"), or an id from context_grep, a '
                "summary or a shortened result.",
            ),
            "sourceLimit": _field("integer", "A summary's source messages, 1 to 25; 8 unless told."),
            "offset": _field("integer", "The page's first character; a result says where the next begins."),
            "limit": _field("integer", "The page's characters, up to 16,000; 4,000 unless told."),
        },
    ),
}


def _functions(scope: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The tools, each with the fields that say where it looks."""
    return tuple(
        {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {**fields, **scope}, "required": [required]},
        }
        for name, (description, required, fields) in _TOOLS.items()
    )


FUNCTIONS = _functions(_SCOPE)


def for_clients() -> Sequence[Mapping[str, Any]]:
    """The tools for MCP clients, which name the session themselves, among those their key may read."""
    return _functions(_SESSION)


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
ID_CHARS = 200


@dataclass(frozen=True, slots=True)
class Grep:
    """Search for `query` among entries that pass `only`; `limit` is from 1 to 50.

    `task`: another session's id or name, None for this one; `explicit`: the model says the user asked.
    """

    query: str
    limit: int = GREP_LIMIT
    only: Filters = ANY
    task: str | None = None
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class Describe:
    """Read the entry or the messages `ident` (`numbers_in`); `source_limit` is from 1 to 25.

    `page`: the first character, and how many; None when no page was asked for. The others as in `Grep`.
    """

    ident: str
    source_limit: int = SOURCE_LIMIT
    page: tuple[int, int] | None = None
    task: str | None = None
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class UnreadableCall:
    """Why a call cannot be carried out: a stable code, and a sentence for the model."""

    code: str
    message: str


def read_call(name: str, arguments: str) -> Grep | Describe | UnreadableCall:
    """Parses a call of the tool `name`; `arguments` is JSON text."""
    if name not in NAMES:
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
    only: dict[str, Any] = {}
    for name, values in (("role", ROLES), ("kind", KINDS)):
        only[name] = _text(fields, name).lower() or None
        if only[name] not in (None, *values):
            return UnreadableCall("invalid_value", f"{name} is one of {', '.join(values)}, or left out.")
    limit = _bounded(fields, "limit", GREP_LIMIT, MOST_HITS)
    return Grep(query[:QUERY_CHARS], limit, Filters(**only), *_scope(fields))


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
    return Describe(ident[:ID_CHARS], sources, page, *_scope(fields))


_ASKED = re.compile(r"(?i)(?:(next|previous)\s+(?:(?:of|to|after|before)\s+)?)?(?:messages?\s+)?(\S.*)")
_NUMBERS = re.compile(r"(\d{1,9})(?:\s*(?:-|\u2013|to)\s*(\d{1,9}))?")


def numbers_in(ident: str, number_of: Callable[[str], int]) -> tuple[int, int]:
    """The first and last number of the messages asked for: "12", "12-58", "next 58", "previous dcm_...".

    The next and previous ones are as many as those named. Both are 0 where `number_of` an id is.
    """
    asked = _ASKED.fullmatch(ident)
    step, name = (asked[1] or "", asked[2]) if asked else ("", ident)
    if found := _NUMBERS.fullmatch(name):
        first, last = sorted((int(found[1]), int(found[2] or found[1])))
    else:
        first = last = number_of(name)
    forward = (last - first + 1) * {"": 0, "next": 1, "previous": -1}[step.lower()]
    return (first + forward, last + forward) if last else (0, 0)


def names_session(text: str, session: str, name: str | None) -> bool:
    """True when a text contains a session's id or the client's name for it, as a separate word (rule 28)."""
    low = text.casefold()
    return any(
        re.search(rf"(?<![\w-]){re.escape(known.casefold())}(?![\w-])", low) is not None
        for known in (session, name)
        if known
    )


def _scope(fields: Mapping[str, Any]) -> tuple[str | None, bool]:
    return _text(fields, "taskId") or None, fields.get("explicitUserRequest") in (True, "true", "True")


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
