"""Calls of tools that are neither editors nor shells: whether they only looked, and what they did.

A tool's name is split into words, and its first known verb decides. Knows nothing of files or shells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from app.core.notes.acts import (
    LINE_CHARS,
    OUTCOME_CHARS,
    Action,
    Effect,
    Failure,
    Read,
    called,
    one_line,
    word_set,
)
from app.core.notes.arguments import Arguments
from app.core.notes.names import Tool, words_of
from app.core.notes.results import Result

# Characters of one argument, and of one that is prose.
_VALUE_CHARS, _PROSE_CHARS = 60, 40
# Values that an outcome shows, and how deep in the result they are looked for.
_SHOWN, _DEEP = 6, 4
# Names of fields whose place is kept.
_KEPT = 1_024
# Elements of one list that are looked at.
_LISTED = 12

_DID = re.compile(
    r"\b(?:success\w*|created|updated|deleted|removed|cancel+ed|booked|sent|saved|scheduled|changed|modified|added"
    r"|completed|confirmed|placed|submitted|transferred|refunded|processed|enabled|disabled|queued|started|stopped"
    r"|done|assigned|registered|published|applied|closed|opened)\b",
    re.IGNORECASE,
)
_STATEMENTS = ("sql", "sqlquery", "statement", "query")
_SELECTS = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*\(?(?:select|show|describe|desc|explain|pragma|values|with)\b", re.IGNORECASE
)
_IDENTIFYING = re.compile(
    r"(?:^|_)(?:ids?|uuid|number|no|code|key|name|email|sku|ref|reference|slug|username|title|to|recipient|url|path|symbol|account|phone)$",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"(?:^|_)(?:amount|balance|fee|refund|charge|paid|due|subtotal)$|^total(?:_(?:amount|price|cost))?$",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"^(?:id|number|key|url|link|code|ref|reference|(?:confirmation|tracking|order|ticket)_?\w*)$",
    re.IGNORECASE,
)
_NEW_ID = re.compile(r"_(?:id|number|no|code|reference)$", re.IGNORECASE)
_STATUS = re.compile(r"(?:^|_)(?:status|state|result|outcome|message|msg|confirmation|note)$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EMPTY = word_set("ok okay success successful successfully true done null none {} [] completed")


def effects_of_tool(name: str, tool: Tool, arguments: Arguments, result: Result | None) -> tuple[Effect, ...]:
    """What a call of any tool did, by the verb of its name, or where that is unknown by its result."""
    verb = tool.verb
    if verb == "silent":
        return ()
    if tool.queries and _SELECTS.match(arguments.text(_STATEMENTS)):
        verb = "read"
    told = key_arguments(arguments)
    whole = one_line(f"{name} {told}".strip(), LINE_CHARS)
    if result is None:
        return (Read(whole),) if verb == "read" else ()
    if result.failed(quoting=verb == "read"):
        about = (Read(whole).name,) if verb == "read" else called(name, told)
        return (Failure(whole, result.error(), about),)
    if verb == "read" or (not verb and not _did_something(result)):
        return (Read(whole),)
    return (Action(name, told, _outcome(tool, result, arguments.raw)),)


def key_arguments(arguments: Arguments) -> str:
    """The arguments on one line: what identifies first, prose last and cut."""
    if not arguments.given:
        bare = arguments.raw[: LINE_CHARS * 4].strip()
        return "" if bare in ("", "{}", "null") else one_line(bare, LINE_CHARS)
    ranked = sorted(
        [(_rank(key, value), place) for place, (key, value) in enumerate(arguments.given.items())]
    )
    items = [*arguments.given.items()]
    parts = [f"{items[place][0]}={shown}" for _, place in ranked if (shown := _shown(items[place][1]))]
    return one_line(", ".join(parts), LINE_CHARS)


def _outcome(tool: Tool, result: Result, arguments: str) -> str:
    """What a result says beyond success: status, amounts, new ids of what the tool is named after."""
    if result.said is not None and result.is_data:
        found = dict(_telling(result.said, arguments, tool.words))
        ranked = sorted(found.items(), key=lambda item: item[1][0])[:_SHOWN]
        return one_line(", ".join(f"{key}={value}" for key, (_, value) in ranked), OUTCOME_CHARS)
    line = result.first_line
    if line.strip(" .!\"'").lower() in _EMPTY or line.startswith(("diff ", "<!", "[")):
        return ""
    return one_line(line, OUTCOME_CHARS)


def _did_something(result: Result) -> bool:
    if result.said is not None and result.is_data:
        keys = result.said.keys()
        stated = any(_STATUS.search(key) and _DID.search(str(result.said[key])[:200]) for key in keys)
        return stated or any(result.said.get(key) is True for key in ("success", "ok", "created", "updated"))
    return bool(_DID.search(result.head[:200])) and "\n" not in result.head[:400].strip()


def _rank(key: str, value: Any) -> int:
    if isinstance(value, str) and (len(value) > _VALUE_CHARS or "\n" in value):
        return 3
    if isinstance(value, list | dict):
        return 2
    return 0 if _identifies(key) else 1


@lru_cache(maxsize=_KEPT)
def _identifies(key: str) -> bool:
    return bool(_IDENTIFYING.search(_CAMEL.sub("_", key)))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value, _VALUE_CHARS if len(value) <= _VALUE_CHARS else _PROSE_CHARS)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return one_line(" ".join(text for each in value.values() if (text := _shown(each))), _VALUE_CHARS)
    if isinstance(value, list):
        shown = "; ".join(text for each in value[:_LISTED] if (text := _shown(each)))
        return f"[{one_line(shown, LINE_CHARS)}]" if shown else ""
    return "" if value is None else str(value)


def _telling(
    said: Mapping[str, Any], arguments: str, named: tuple[str, ...]
) -> Iterator[tuple[str, tuple[int, str]]]:
    """(key, (rank, value)) of what is worth telling; of values of one key the last, which is the newest."""
    for depth, key, value in _leaves(said, 0):
        rank = _told_rank(depth, key, named)
        if rank is None or isinstance(value, bool):
            continue
        text = str(value)
        new = rank == 0 or (text != "0" and text not in arguments)
        if new and text.strip() and text.strip().lower() not in _EMPTY:
            yield key, (rank, one_line(text, _VALUE_CHARS))


@lru_cache(maxsize=_KEPT)
def _told_rank(depth: int, key: str, named: tuple[str, ...]) -> int | None:
    """The place of a value in an outcome, None for one that is data: status, amounts, ids of its own."""
    name = _CAMEL.sub("_", key)
    if depth < 2 and _STATUS.search(name):
        return 0
    if depth < 2 and (
        _OWN.match(name)
        or (depth == 0 and _NEW_ID.search(name))
        or (_IDENTIFYING.search(name) and any(w in named for w in words_of(name)))
    ):
        return 1 + depth
    return 1 + depth if _AMOUNT.search(name) else None


def _leaves(value: Any, depth: int, key: str = "") -> Iterator[tuple[int, str, Any]]:
    if isinstance(value, dict) and depth < _DEEP:
        for name, each in value.items():
            yield from _leaves(each, depth + (0 if key == "" else 1), str(name))
    elif isinstance(value, list) and depth < _DEEP:
        for each in value[:_LISTED]:
            yield from _leaves(each, depth + 1, key)
    elif value is not None and not isinstance(value, dict | list):
        yield depth, key, value
