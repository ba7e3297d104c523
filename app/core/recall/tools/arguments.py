"""A call of a recall tool, read as its writer meant it: bounds are kept, what cannot be read is said.

Models write numbers as text and forget what is optional; neither is an error. Knows nothing of sessions but
their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core.recall.filters import ANY, KINDS, ROLES, Filters
from app.core.recall.tool_schemas import DESCRIBE, GREP
from app.core.text.fence import sendable
from app.core.wire.json_text import decoded
from app.errors import InvalidJson

# C04, C05.
GREP_LIMIT = 10
MOST_HITS = 50
SOURCE_LIMIT = 8
MOST_SOURCES = 25
# Characters of one page: about a thousand tokens unless more is asked for.
PAGE_CHARS = 4_000
MOST_PAGE_CHARS = 16_000
# Characters of a query that are read; more is a text, not a question.
QUERY_CHARS = 2_000
_ID_CHARS = 200


@dataclass(frozen=True, slots=True)
class Scoped:
    """`task`: another session's id or name, None for this one; `explicit`: the user is said to want it."""

    task: str | None = None
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class Grep:
    """Look for `query` in what `only` lets through; `limit` is within 1 and 50."""

    query: str
    limit: int = GREP_LIMIT
    scope: Scoped = Scoped()
    only: Filters = ANY


@dataclass(frozen=True, slots=True)
class Describe:
    """Read `ident`; `source_limit` is within 1 and 25.

    `page`: from which character, and how many; None when no page was asked for.
    """

    ident: str
    source_limit: int = SOURCE_LIMIT
    page: tuple[int, int] | None = None
    scope: Scoped = Scoped()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why nothing can be done: a stable word, and a sentence for the model."""

    code: str
    message: str


def read_call(name: str, arguments: str) -> Grep | Describe | Unreadable:
    """The call of the tool `name`, whose arguments are JSON text."""
    if name not in (GREP, DESCRIBE):
        return Unreadable("unknown_tool", f"There is no tool of this name; there are {GREP} and {DESCRIBE}.")
    try:
        fields = decoded(arguments.encode("utf-8", "surrogatepass")) if arguments.strip() else {}
    except InvalidJson:
        return Unreadable("invalid_json", "The arguments are not valid JSON.")
    if not isinstance(fields, Mapping):
        return Unreadable("invalid_arguments", "The arguments must be a JSON object.")
    return grep_of(fields) if name == GREP else describe_of(fields)


def grep_of(fields: Mapping[str, Any]) -> Grep | Unreadable:
    """The search that the arguments ask for."""
    query = _text(fields, "query")
    if not query:
        return Unreadable("missing_field", "query is required: what to look for, in words.")
    role, kind = _text(fields, "role").lower() or None, _text(fields, "kind").lower() or None
    if role is not None and role not in ROLES:
        return Unreadable("invalid_value", f"role is one of {', '.join(ROLES)}, or left out.")
    if kind is not None and kind not in KINDS:
        return Unreadable("invalid_value", f"kind is one of {', '.join(KINDS)}, or left out.")
    limit = _bounded(fields, "limit", GREP_LIMIT, MOST_HITS)
    return Grep(query[:QUERY_CHARS], limit, _scope(fields), Filters(role, kind))


def describe_of(fields: Mapping[str, Any]) -> Describe | Unreadable:
    """The entry that the arguments ask for."""
    ident = _text(fields, "id")
    if not ident:
        return Unreadable("missing_field", "id is required: one that context_grep or a summary shows.")
    offset, limit = _number(fields, "offset"), _number(fields, "limit")
    page = None
    if offset is not None or limit is not None:
        page = max(0, offset or 0), _bounded(fields, "limit", PAGE_CHARS, MOST_PAGE_CHARS)
    sources = _bounded(fields, "sourceLimit", SOURCE_LIMIT, MOST_SOURCES)
    return Describe(ident[:_ID_CHARS], sources, page, _scope(fields))


def names_session(text: str, session: str, name: str | None) -> bool:
    """True when a text names a session by our id or the client's name, as a word of its own (rule 28)."""
    low = text.casefold()
    return any(
        re.search(rf"(?<![\w-]){re.escape(known.casefold())}(?![\w-])", low) is not None
        for known in (session, name)
        if known
    )


def _scope(fields: Mapping[str, Any]) -> Scoped:
    return Scoped(
        _text(fields, "taskId") or None, fields.get("explicitUserRequest") in (True, "true", "True")
    )


def _text(fields: Mapping[str, Any], name: str) -> str:
    """The text of a field, as a database can take it."""
    value = fields.get(name)
    return sendable(value).strip() if isinstance(value, str) else ""


def _bounded(fields: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = _number(fields, name)
    return default if value is None else max(1, min(value, most))


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    """A whole number, also one that was written as text or with a point; None for anything else."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
