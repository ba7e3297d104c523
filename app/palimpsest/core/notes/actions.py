"""Calls of tools that are neither editors nor shells: their actions, reads and task lists.

A tool's name is split into words, and its first known verb decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from palimpsest.core.notes.note import (
    LINE_CHARS,
    OUTCOME_CHARS,
    Action,
    Effect,
    FileRead,
    TaskList,
    TaskState,
    called,
    one_line,
    ranked_words,
    word_set,
)
from palimpsest.core.notes.results import Result
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.notes.tool_words import Arguments, Tool, words_of

# Limit on the items of a task list; agents' own lists are shorter.
_MOST = 200

_STATES: Mapping[str, TaskState] = {
    **dict.fromkeys(word_set("completed complete done finished closed resolved x yes true checked"), "done"),
    **dict.fromkeys(
        word_set("in_progress inprogress in-progress doing active started running current working - ~ / > *"),
        "doing",
    ),
    **dict.fromkeys(
        word_set("cancelled canceled dropped skipped abandoned deleted removed wontfix obsolete"), "dropped"
    ),
}
_LISTS = ranked_words(
    "todos plan tasks task_list taskList todoList todo_list items steps list newTodos checklist"
    " task_progress updates content markdown"
)
_TEXTS = ranked_words("content step title subject task text description name label todo")
_STATED = ranked_words("status state done completed checked is_done")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])?\s*\[([ xX~/>*-]?)\]\s*(\S[^\n]*)", re.MULTILINE)
_NUMBER = re.compile(r"#\s?(\d+)|\"id\"\s*:\s*\"?([\w-]+)")


def tasks_of(name: str, given: Mapping[str, Any], result: str | None) -> TaskList | None:
    """The task list that a call writes; None when it only reads one or names no tasks."""
    if name in ("taskcreate", "taskupdate"):
        return _one_task(name, given, result)
    if given.get("todos") == []:
        return TaskList(())
    listed = next((given[key] for key in _LISTS if key in given and _is_list(given[key])), None)
    if isinstance(listed, str):
        return _in_text(listed)
    if not isinstance(listed, list):
        return None
    found = [*_items(listed[:_MOST])]
    if not found:
        return None
    ids = tuple(ident for ident, _ in found)
    partial = given.get("merge") is True or "updates" in given
    return TaskList(tuple(item for _, item in found), partial, ids if any(ids) else ())


def tasks_in(text: str) -> TaskList | None:
    """The check list in a text ("- [x] done"); None for none."""
    return _in_text(text) if "[" in text else None


def _is_list(value: Any) -> bool:
    return (isinstance(value, list) and bool(value)) or (isinstance(value, str) and "[" in value)


def _in_text(text: str) -> TaskList | None:
    if text.lstrip().startswith("[{"):
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            decoded = []
        found = [item for _, item in _items(decoded)] if isinstance(decoded, list) else []
    else:
        marked = _ITEM.findall(text[:40_000])[:_MOST]
        found = [(one_line(words, LINE_CHARS), _state(mark.strip())) for mark, words in marked]
    return TaskList(tuple(found)) if found else None


def _items(listed: Sequence[Any]) -> Iterator[tuple[str, tuple[str, TaskState]]]:
    for each in listed:
        if isinstance(each, str) and each.strip():
            marked = _ITEM.match(each)
            words, mark = (marked.group(2), marked.group(1).strip()) if marked else (each, "")
            yield "", (one_line(words, LINE_CHARS), _state(mark))
        elif isinstance(each, dict):
            text, state = _stated(each)
            ident = str(each.get("id", each.get("taskId", "")))
            if text or ident:
                yield ident, (one_line(text, LINE_CHARS), state)


def _one_task(name: str, given: Mapping[str, Any], result: str | None) -> TaskList | None:
    """One task that a tool adds or changes; its id is in the result or in the arguments."""
    text, state = _stated(given)
    numbered = _NUMBER.search(result[:500]) if result and name == "taskcreate" else None
    ident = str(given.get("taskId", given.get("task_id", given.get("id", ""))))
    if numbered:
        ident = numbered.group(1) or numbered.group(2)
    if name == "taskupdate" and (not ident or not any(key in given for key in _STATED)):
        return None
    if not text and not ident:
        return None
    return TaskList(((one_line(text, LINE_CHARS), state),), partial=True, ids=(ident,))


def _stated(given: Mapping[str, Any]) -> tuple[str, TaskState]:
    """The text and the state of a task in an object."""
    text = next((given[key] for key in _TEXTS if isinstance(given.get(key), str) and given[key]), "")
    return text, _state(next((given[key] for key in _STATED if key in given), ""))


def _state(stated: Any) -> TaskState:
    if isinstance(stated, bool):
        return "done" if stated else "open"
    return _STATES.get(str(stated).strip().lower().replace(" ", "_"), "open")


# Characters of one argument, and of one that is prose.
_VALUE_CHARS, _PROSE_CHARS = 60, 40
# Characters of all arguments: a booking with its flights and payments.
_ARGUMENTS_CHARS = 220
# Values that an outcome shows, and the depth to which a result is searched for them.
_SHOWN, _DEEP = 6, 4
# Entries of the caches below: names of fields.
_KEPT = 1_024
# Elements of one list that are read.
_LISTED = 12
# The rank of an argument that is prose.
_PROSE = 3
# Pieces of one result, and characters of one.
_PIECES, _PIECE_CHARS = 40, 240

_DID = re.compile(
    r"\b(?:success\w*|created|updated|deleted|removed|cancel+ed|booked|sent|saved|scheduled|changed|modified|added"
    r"|completed|confirmed|placed|submitted|transferred|refunded|processed|enabled|disabled|queued|started|stopped"
    r"|done|assigned|registered|published|applied|closed|opened)\b",
    re.IGNORECASE,
)
_STATEMENTS = ranked_words("sql sqlquery statement query")
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
    """The effects of a call, by the verb in the tool's name or, where that is unknown, by the result."""
    verb = tool.verb
    if verb == "silent":
        return ()
    if tool.queries and _SELECTS.match(arguments.text(_STATEMENTS)):
        verb = "read"
    shown = key_arguments(arguments)
    whole = one_line(f"{name} {shown}".strip(), LINE_CHARS)
    if result is None:
        return (FileRead(whole),) if verb == "read" else ()
    if result.failed(quoting=verb == "read"):
        about = (FileRead(whole).name,) if verb == "read" else called(name, shown)
        return (result.failure(whole, *about),)
    if verb == "read" or (not verb and not _did_something(result)):
        return (FileRead(whole, tuple(islice(pieces_of(result, arguments.raw), _PIECES))),)
    return (Action(name, shown, _outcome(tool, result, arguments.raw)),)


def pieces_of(result: Result, arguments: str) -> Iterator[str]:
    """What a result holds, in pieces of one line: a field, a record of a list, a sentence, a short output.

    Numbers have their names with them. What the arguments say is left out.
    """
    if result.said is None or not result.is_data:
        yield from result.short() or sentences_of(result.text)
        return
    plain = {key: value for key, value in result.said.items() if not isinstance(value, dict | list)}
    said = (
        f"{key} {text}"
        for key, value in plain.items()
        if _rank(key, value) < _PROSE and (text := _shown(value)) and text not in arguments
    )
    yield one_line(", ".join(said), _PIECE_CHARS)
    for key, value in result.said.items():
        if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            yield from (one_line(f"{key} {_flat(item)}".strip(), _PIECE_CHARS) for item in value)
        elif isinstance(value, dict | list) and value:
            yield one_line(f"{key} {_flat(value)}".strip(), _PIECE_CHARS)


def _flat(value: Any) -> str:
    """A value on one line: texts alone, numbers and truths with their names."""
    if isinstance(value, dict):
        bare = ((key, each, _flat(each)) for key, each in value.items())
        said = (
            f"{key} {text}" if isinstance(each, int | float) else text for key, each, text in bare if text
        )
        return " ".join(said)
    if isinstance(value, list):
        return ", ".join(filter(None, map(_flat, value)))
    return _shown(value) if _rank("", value) < _PROSE else ""


def key_arguments(arguments: Arguments) -> str:
    """The arguments on one line: identifying ones first and without their names, prose last and cut."""
    if not arguments.given:
        bare = arguments.raw[: LINE_CHARS * 4].strip()
        return "" if bare in ("", "{}", "null") else one_line(bare, LINE_CHARS)
    items = sorted(arguments.given.items(), key=lambda item: _rank(*item))
    parts = [
        shown if _rank(key, value) == 0 else f"{key}={shown}"
        for key, value in items
        if (shown := _shown(value))
    ]
    return one_line(", ".join(parts), _ARGUMENTS_CHARS)


def _outcome(tool: Tool, result: Result, arguments: str) -> str:
    """What a result says beyond success: status, amounts, and ids that the arguments do not have."""
    if result.said is not None and result.is_data:
        found = dict(_outcome_values(result.said, arguments, tool.words))
        ranked = sorted(found.items(), key=lambda item: item[1][0])[:_SHOWN]
        # A status speaks for itself.
        shown = (value if rank == 0 else f"{key} {value}" for key, (rank, value) in ranked)
        return one_line(", ".join(shown), OUTCOME_CHARS)
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
        return _PROSE
    if isinstance(value, list | dict):
        return 2
    return 0 if _identifies(key) else 1


def forget_keys() -> None:
    """Clears the caches of what keys of arguments and results mean."""
    _identifies.cache_clear()
    _outcome_rank.cache_clear()


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


def _outcome_values(
    said: Mapping[str, Any], arguments: str, named: tuple[str, ...]
) -> Iterator[tuple[str, tuple[int, str]]]:
    """(key, (rank, value)) of each value that an outcome may show; a later value of a key replaces it."""
    for depth, key, value in _leaves(said, 0):
        rank = _outcome_rank(depth, key, named)
        if rank is None or isinstance(value, bool):
            continue
        text = str(value)
        new = rank == 0 or (text != "0" and text not in arguments)
        if new and text.strip() and text.strip().lower() not in _EMPTY:
            yield key, (rank, one_line(text, _VALUE_CHARS))


@lru_cache(maxsize=_KEPT)
def _outcome_rank(depth: int, key: str, named: tuple[str, ...]) -> int | None:
    """The rank of a value in an outcome: a status, an amount or an id of the object; None for other data."""
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
