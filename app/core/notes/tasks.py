"""Task lists that agents keep with a tool of their own, in whatever words the tool writes them.

Knows nothing of calls beyond their decoded arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from app.core.notes.acts import LINE_CHARS, TaskList, TaskState, one_line, word_set

# A list with more tasks is no list an agent keeps for itself.
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
_LISTS = (
    "todos", "plan", "tasks", "task_list", "taskList", "todoList", "todo_list", "items", "steps", "list",
    "newTodos", "checklist", "task_progress", "updates", "content", "markdown",
)  # fmt: skip
_TEXTS = ("content", "step", "title", "subject", "task", "text", "description", "name", "label", "todo", "id")
_STATED = ("status", "state", "done", "completed", "checked", "is_done")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])?\s*\[([ xX~/>*-]?)\]\s*(\S[^\n]*)", re.MULTILINE)
_NUMBER = re.compile(r"#\s?(\d+)|\"id\"\s*:\s*\"?([\w-]+)")


def tasks_of(name: str, given: Mapping[str, Any], result: str | None) -> TaskList | None:
    """The task list that a call writes, None when it writes none (it only looks, or names no tasks)."""
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
    """The check list in a text ("- [x] done"), None for none."""
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
            text = next(
                (each[key] for key in _TEXTS[:-1] if isinstance(each.get(key), str) and each[key]), ""
            )
            ident = str(each.get("id", each.get("taskId", "")))
            stated = next((each[key] for key in _STATED if key in each), "")
            if text or ident:
                yield ident, (one_line(text, LINE_CHARS), _state(stated))


def _one_task(name: str, given: Mapping[str, Any], result: str | None) -> TaskList | None:
    """One task that a tool adds or changes; its number stands in the result or the arguments."""
    text = next((given[key] for key in _TEXTS[:-1] if isinstance(given.get(key), str) and given[key]), "")
    numbered = _NUMBER.search(result[:500]) if result and name == "taskcreate" else None
    ident = str(given.get("taskId", given.get("task_id", given.get("id", ""))))
    if numbered:
        ident = numbered.group(1) or numbered.group(2)
    if name == "taskupdate" and (not ident or not any(key in given for key in _STATED)):
        return None
    if not text and not ident:
        return None
    state = _state(next((given[key] for key in _STATED if key in given), ""))
    return TaskList(((one_line(text, LINE_CHARS), state),), partial=True, ids=(ident,))


def _state(stated: Any) -> TaskState:
    if isinstance(stated, bool):
        return "done" if stated else "open"
    return _STATES.get(str(stated).strip().lower().replace(" ", "_"), "open")
