"""Effects of an agent's tool calls: files changed, actions, commands, failures, tasks, reads.

A call is classified by the words of its name and by its arguments, in the forms that agents use. An effect
is reported only where the result does not contradict it. Of a tool that is neither an editor nor a shell the
verb decides and, where that is unknown, the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from palimpsest.core.notes.edits import (
    edit_state,
    edits_in_text,
    effects_of_edit,
    effects_of_patch,
    patch_of,
    shown_file,
)
from palimpsest.core.notes.note import (
    COMMAND_CHARS,
    LINE_CHARS,
    OUTCOME_CHARS,
    TASKS,
    Action,
    Command,
    Effect,
    FileRead,
    TaskList,
    TaskState,
    called,
    one_line,
    ranked_words,
    word_set,
)
from palimpsest.core.notes.results import Result, result_of
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.notes.shell import effects_of_script, line_of
from palimpsest.core.notes.tool_words import Arguments, Tool, arguments_of, tool_named, words_of
from palimpsest.core.text.message_text import ToolCall

# Characters of an assistant's text in which edits are searched, and limit on its tags.
_TEXT_CHARS, _TAGS = 400_000, 100
# Characters of a tool's name that are shown.
_NAME_CHARS = 80

_CODE = word_set("python ipython jupyter code javascript")
_STARTING = word_set("run exec execute start launch send")
_CHECKING = word_set("test tests pytest unittest build lint linter typecheck formatter check checks suite")
_SOUGHT = ranked_words("pattern query regex searchterm q search term objective filename glob globpattern")
_FETCHING = word_set("fetch webfetch browse navigate visit get read open goto url page web")
# Stateful editors work on the file they have open.
_STATEFUL = ranked_words("open create edit insert goto scroll_up scroll_down")
_OPEN_FILE = re.compile(r"\(Open file: ([^\n]{1,400}?)\)\s*$", re.MULTILINE)
# A line of a file as tools show it: "12: text", "12|text", "12<tab>text".
_NUMBERED = re.compile(r"^\s*(\d{1,6})[:|\t→]\s*(\S.{6,150})$", re.MULTILINE)
# Calls that a model writes as tags of XML, each argument in a tag.
_XML = re.compile(
    r"<(write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|edit_file|execute_command"
    r"|read_file|delete_file|update_todo_list|new_file|write_file|create_file|use_mcp_tool|task_progress)>"
)
_CHILD = re.compile(r"<(\w+)>")


def effects_of(call: ToolCall, result: str | None, opened: str = "") -> tuple[Effect, ...]:
    """The effects of the call, in order.

    `result` is None while there is none; then nothing is known to be done, and only a TaskList or FileRead
    is returned. `opened` is the file that a stateful editor has open, "" when unknown. Never raises,
    whatever the name, arguments and result are.
    """
    arguments = arguments_of(call.arguments)
    seen = None if result is None else result_of(result)
    found = _effects(call.name[:_NAME_CHARS], arguments, seen, opened)
    progress = arguments.given.get("task_progress")
    tasks = _tasks_in(progress) if isinstance(progress, str) else None
    return (*found, tasks) if tasks is not None else found


def open_file_after(call: ToolCall, result: str) -> str:
    """The file that a stateful editor has open after the call; "" when the call does not say."""
    if found := _OPEN_FILE.search(result[-600:]):
        return found[1] if found[1] != "n/a" else ""
    if call.name not in _STATEFUL:
        return ""
    seen = result_of(result)
    opens = call.name in ("open", "create") and not seen.failed(quoting=True)
    return shown_file(seen) or (arguments_of(call.arguments).path if opens else "")


def effects_in_text(text: str) -> tuple[Effect, ...]:
    """Edits and commands that an assistant wrote as text: aider's formats, and tool calls as XML tags.

    Whether they succeeded is unknown, so commands have `ok` None.
    """
    text = text[:_TEXT_CHARS]
    found = tuple(_tagged(text)) if "</" in text else ()
    return found or edits_in_text(text)


def _effects(name: str, arguments: Arguments, seen: Result | None, opened: str) -> tuple[Effect, ...]:
    tool = tool_named(name)
    if tool.keeps_tasks:
        if seen is not None and seen.failed(quoting=True):
            return (seen.failure(name, TASKS),)
        bare = not arguments.given and arguments.raw.lstrip()[:1] == "["
        given: Mapping[str, Any] = {"todos": arguments.raw} if bare else arguments.given
        tasks = _tasks_of("".join(tool.words), given, seen.head if seen is not None else "")
        return (tasks,) if tasks is not None else ()
    if (ran := _ran(tool, arguments, seen)) is not None:
        return ran
    if what := _looked_up(tool, arguments):
        if seen is not None and seen.failed(quoting=True):
            return (seen.failure(f"{name} {what}", FileRead(what).name),)
        # A short list of hits; of a file its numbered lines.
        numbered = _NUMBERED.findall(seen.text) if seen and not tool.searches else ()
        hits = seen.short() if seen and tool.searches else ()
        return (FileRead(what, hits or tuple(f"{number}: {line}" for number, line in numbered)),)
    patch = patch_of(arguments) if tool.patches else None
    state = edit_state(tool, arguments)
    checks = bool(_CHECKING & {*tool.words}) and tool.words[0] in (
        "run",
        "execute",
        "pytest",
        "build",
        "lint",
    )
    found: tuple[Effect, ...] = ()
    if seen is None:
        if patch is not None or state is not None or checks:
            return ()
    elif patch is not None:
        found = effects_of_patch(name, patch, arguments, seen)
    elif state is not None:
        found = effects_of_edit(name, state, arguments, seen, opened)
    elif checks:
        line = one_line(f"{name} {key_arguments(arguments)}".strip(), COMMAND_CHARS)
        return (seen.command(line, None if seen.running else not seen.failed()),)
    return found or _effects_by_verb(name, tool, arguments, seen)


def _ran(tool: Tool, arguments: Arguments, seen: Result | None) -> tuple[Effect, ...] | None:
    """The effects of a script, a program given as text, or input for a running command; None for others."""
    runs_code = tool.words == ("python",) or bool(_CODE & {*tool.words} and _STARTING & {*tool.words})
    takes_command = isinstance(arguments.keyed.get("command"), str | list) and not arguments.path
    runs = tool.runs_scripts or runs_code or (tool.runs_commands and takes_command)
    if runs and (script := arguments.script).strip():
        if not runs_code:
            return effects_of_script(script, seen)
        # Read as if a shell had run it.
        ran = effects_of_script(f"python - <<'END_OF_CODE'\n{script}\nEND_OF_CODE\n", seen)
        line = one_line(f"python: {script}", COMMAND_CHARS)
        return tuple(replace(each, line=line) if isinstance(each, Command) else each for each in ran)
    if not tool.runs_scripts and "".join(tool.words) not in ("writestdin", "sendinput"):
        return None
    polled = {"sessionid", "chars", "input", "keys"} & arguments.keyed.keys()
    if seen is None or seen.running or not polled:
        return ()
    sent = arguments.text(("chars", "input", "text", "keys")).strip()
    line = line_of(sent or f"session {arguments.keyed.get('sessionid', '')}".strip())
    return (seen.command(line, not seen.failed()),)


def _looked_up(tool: Tool, arguments: Arguments) -> str:
    """The file, address or search that a reading tool looks at; "" for other tools."""
    path = arguments.path
    if path and (tool.shows_files or (tool.is_editor and arguments.keyed.get("command") in ("view", "read"))):
        return path
    sought = arguments.text(_SOUGHT) if tool.searches else ""
    within = (path if path != sought else "") or arguments.text(("dir", "targetdirectory", "cwd"))
    if sought and (within or tool.words[0] != "find"):
        return one_line(f'"{sought}" in {within}' if within else f'"{sought}"', LINE_CHARS)
    is_address = bool(tool.words) and _FETCHING.issuperset(tool.words)
    address = arguments.text(("url", "uri", "address", "link")) if is_address else ""
    return one_line(address, LINE_CHARS) if "://" in address else ""


def _tagged(text: str) -> Iterator[Effect]:
    """The effects of calls written as XML tags, each read as a call with an unknown result."""
    place = 0
    for _ in range(_TAGS):
        found = _XML.search(text, place)
        place = text.find(f"</{found[1]}>", found.end()) if found else -1
        if found is None or place < 0:
            return
        name, body = found[1], text[found.end() : place]
        given = _children(body)
        raw = msgspec.json.encode(given).decode()
        if name in ("task_progress", "update_todo_list"):
            yield from filter(None, [_tasks_in(body)])
        elif name == "execute_command":
            line = given.get("command", "").strip()
            yield from [Command(line_of(line), None, "")] if line else []
        else:
            if name == "use_mcp_tool":
                name, raw = given.get("tool_name", name), given.get("arguments", "{}")
            # The empty result stands for an unknown one, so that changes are reported as aider's are.
            yield from effects_of(ToolCall("", name, raw), "")


def _children(body: str) -> dict[str, str]:
    """The texts of the tags inside a tag; those that only hold other tags (args, file, diff) are entered."""
    found: dict[str, str] = {}
    place = 0
    for _ in range(_TAGS):
        child = _CHILD.search(body, place)
        if child is None:
            break
        name, place = child[1], child.end()
        close = body.find(f"</{name}>", place)
        inner = body[place:close]
        if close < 0 or name in ("args", "file", "files") or (name == "diff" and "<content>" in inner):
            continue
        found.setdefault("diff" if name == "content" and "SEARCH" in inner else name, inner.strip("\r\n"))
        place = close
    return found


# Limit on the items of a task list; agents' own lists are shorter.
_MOST = 200
_STATES: Mapping[str, TaskState] = {
    **dict.fromkeys(word_set("completed complete done finished closed resolved x yes true checked"), "done"),
    **dict.fromkeys(
        word_set("in_progress inprogress in-progress doing active started running current working - ~ / > *"),
        "doing",
    ),
    **dict.fromkeys(
        word_set("cancelled canceled dropped skipped abandoned deleted removed obsolete"), "dropped"
    ),
}
_LISTS = ranked_words(
    "todos plan tasks task_list taskList todoList todo_list items steps list newTodos checklist"
    " task_progress updates content markdown"
)
_TEXTS = ranked_words("content step title subject task text description name label todo")
_STATED = ranked_words("status state done completed checked is_done")
_IDS = ranked_words("id taskId task_id")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])?\s*\[([ xX~/>*-]?)\]\s*(\S[^\n]*)", re.MULTILINE)
_NUMBER = re.compile(r"#\s?(\d+)|\"id\"\s*:\s*\"?([\w-]+)")


def _tasks_of(name: str, given: Mapping[str, Any], result: str) -> TaskList | None:
    """The task list that a call writes; None when it only reads one or names no tasks."""
    if name in ("taskcreate", "taskupdate"):
        # One task; its id is in the result or in the arguments.
        ((ident, (text, state)),) = _items([given]) or [("", ("", "open"))]
        if name == "taskcreate" and (numbered := _NUMBER.search(result[:500])):
            ident = numbered[1] or numbered[2]
        is_told = (text or ident) if name == "taskcreate" else ident and any(key in given for key in _STATED)
        return TaskList(((text, state),), partial=True, ids=(ident,)) if is_told else None
    if given.get("todos") == []:
        return TaskList(())
    for value in (given[key] for key in _LISTS if given.get(key)):
        if isinstance(value, list) or (isinstance(value, str) and "[" in value):
            found = _items(value)
            ids = tuple(ident for ident, _ in found)
            partial = given.get("merge") is True or "updates" in given
            tasks = tuple(item for _, item in found)
            return TaskList(tasks, partial, ids if any(ids) else ()) if found else None
    return None


def _tasks_in(text: str) -> TaskList | None:
    """The check list in a text ("- [x] done"); None for none."""
    return _tasks_of("", {"todos": text}, "")


def _items(listed: list[Any] | str) -> list[tuple[str, tuple[str, TaskState]]]:
    """The id, the text and the state of each task of a list: objects, lines with or without a mark."""
    if isinstance(listed, str):
        try:
            decoded = msgspec.json.decode(listed) if listed.lstrip().startswith("[{") else None
        except (msgspec.MsgspecError, ValueError, RecursionError):
            decoded = None
        marked = [found[0] for found in islice(_ITEM.finditer(listed[:40_000]), _MOST)]
        listed = decoded if isinstance(decoded, list) else marked
    found: list[tuple[str, tuple[str, TaskState]]] = []
    for each in listed[:_MOST]:
        ident, text, state = "", each, ""
        if isinstance(each, dict):
            text = next((each[key] for key in _TEXTS if isinstance(each.get(key), str) and each[key]), "")
            state = next((each[key] for key in _STATED if key in each), "")
            ident = str(next((each[key] for key in _IDS if key in each), ""))
        elif isinstance(each, str) and (mark := _ITEM.match(each)):
            text, state = mark[2], mark[1]
        if isinstance(state, bool):
            state = "done" if state else ""
        if isinstance(text, str) and (text.strip() or ident):
            known = _STATES.get(str(state).strip().lower().replace(" ", "_"), "open")
            found.append((ident, (one_line(text, LINE_CHARS), known)))
    return found


# Characters of one argument, of one that is prose, and of all: a booking with its flights and payments.
_VALUE_CHARS, _PROSE_CHARS, _ARGUMENTS_CHARS = 60, 40, 220
# Values that an outcome shows, the depth to which a result is searched for them, and elements of a list.
_SHOWN, _DEEP, _LISTED = 6, 4, 12
# The rank of an argument that is prose.
_PROSE = 3
# Pieces of one result, and characters of one.
_PIECES, _PIECE_CHARS = 40, 240

_DID = re.compile(
    r"\b(?:success\w*|created|updated|deleted|removed|cancel+ed|booked|sent|saved|scheduled|changed"
    r"|modified|added"
    r"|completed|confirmed|placed|submitted|transferred|refunded|processed|enabled|disabled|queued"
    r"|started|stopped"
    r"|done|assigned|registered|published|applied|closed|opened)\b",
    re.IGNORECASE,
)
_SELECTS = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*\(?(?:select|show|describe|desc|explain|pragma|values|with)\b", re.IGNORECASE
)
# Names of values, with "_" between their words: ids in arguments, new ids and amounts in results, states.
_IDENTIFYING = re.compile(
    r"(?:^|_)(?:ids?|uuid|number|no|code|key|name|email|sku|ref|reference|slug|username|title|to|recipient"
    r"|url|path|symbol|account|phone)$",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"^(?:id|number|key|url|link|code|ref|reference|(?:confirmation|tracking|order|ticket)_?\w*)$",
    re.IGNORECASE,
)
_NEW_ID = re.compile(r"_(?:id|number|no|code|reference)$", re.IGNORECASE)
_AMOUNT = re.compile(
    r"(?:^|_)(?:amount|balance|fee|refund|charge|paid|due|subtotal)$|^total(?:_(?:amount|price|cost))?$",
    re.IGNORECASE,
)
_STATUS = re.compile(r"(?:^|_)(?:status|state|result|outcome|message|msg|confirmation|note)$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EMPTY = word_set("ok okay success successful successfully true done null none {} [] completed")


def _effects_by_verb(
    name: str, tool: Tool, arguments: Arguments, result: Result | None
) -> tuple[Effect, ...]:
    verb = tool.verb
    if verb == "silent":
        return ()
    if {"sql", "query", "execute"} & {*tool.words}:
        statement = arguments.text(("sql", "sqlquery", "statement", "query"))
        verb = "read" if _SELECTS.match(statement) else verb
    shown = key_arguments(arguments)
    whole = one_line(f"{name} {shown}".strip(), LINE_CHARS)
    if result is None:
        return (FileRead(whole),) if verb == "read" else ()
    if result.failed(quoting=verb == "read"):
        about = (FileRead(whole).name,) if verb == "read" else called(name, shown)
        return (result.failure(whole, *about),)
    if verb == "read" or (not verb and not _did_something(result)):
        return (FileRead(whole, tuple(islice(_pieces_of(result, arguments.raw), _PIECES))),)
    return (Action(name, shown, _outcome(tool, result, arguments.raw)),)


def key_arguments(arguments: Arguments) -> str:
    """The arguments on one line: identifying ones first and without their names, prose last and cut."""
    if not arguments.given:
        bare = arguments.raw[: LINE_CHARS * 4].strip()
        return "" if bare in ("", "{}", "null") else one_line(bare, LINE_CHARS)
    items = sorted(arguments.given.items(), key=lambda item: _rank(*item))
    shown = ((key, value, _shown(value)) for key, value in items)
    parts = (text if _rank(key, value) == 0 else f"{key}={text}" for key, value, text in shown if text)
    return one_line(", ".join(parts), _ARGUMENTS_CHARS)


def _pieces_of(result: Result, arguments: str) -> Iterator[str]:
    """What a result holds, in pieces of one line: a field, a record of a list, a sentence, a short output.

    Numbers have their names with them. What the arguments say is left out.
    """
    if result.said is None or not result.is_data:
        yield from result.short() or sentences_of(result.text)
        return
    fields = ((key, value, _shown(value)) for key, value in result.said.items())
    said = (
        f"{key} {text}"
        for key, value, text in fields
        if not isinstance(value, dict | list)
        and _rank(key, value) < _PROSE
        and text
        and text not in arguments
    )
    yield one_line(", ".join(said), _PIECE_CHARS)
    for key, value in result.said.items():
        is_table = isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
        for item in value if is_table else [value] if isinstance(value, dict | list) and value else []:
            yield one_line(f"{key} {_flat(item)}".strip(), _PIECE_CHARS)


def _flat(value: Any) -> str:
    """A value on one line: texts alone, numbers and truths with their names."""
    if isinstance(value, dict):
        said = ((key, each, _flat(each)) for key, each in value.items())
        return " ".join(
            f"{key} {text}" if isinstance(each, int | float) else text for key, each, text in said if text
        )
    if isinstance(value, list):
        return ", ".join(filter(None, map(_flat, value)))
    return _shown(value) if _rank("", value) < _PROSE else ""


def _outcome(tool: Tool, result: Result, arguments: str) -> str:
    """What a result says beyond success: states, amounts, and ids that the arguments do not have."""
    if result.said is None or not result.is_data:
        line = result.first_line
        says_more = line.strip(" .!\"'").lower() not in _EMPTY and not line.startswith(("diff ", "<!", "["))
        return one_line(line, OUTCOME_CHARS) if says_more else ""
    found: dict[str, tuple[int, str]] = {}
    for depth, key, value in _leaves(result.said):
        name, text = _CAMEL.sub("_", key), str(value)
        if isinstance(value, bool) or not text.strip() or text.strip().lower() in _EMPTY:
            continue
        # An id of the object that was made: it is named so, or like the tool.
        is_new = bool(_OWN.match(name)) or (depth == 0 and bool(_NEW_ID.search(name)))
        is_id = is_new or (bool(_IDENTIFYING.search(name)) and not {*words_of(name)}.isdisjoint(tool.words))
        if depth < 2 and _STATUS.search(name):
            # A state speaks for itself.
            found[key] = 0, one_line(text, _VALUE_CHARS)
        elif text != "0" and text not in arguments and ((depth < 2 and is_id) or _AMOUNT.search(name)):
            found[key] = 1 + depth, f"{key} {one_line(text, _VALUE_CHARS)}"
    ranked = sorted(found.values(), key=lambda each: each[0])[:_SHOWN]
    return one_line(", ".join(text for _, text in ranked), OUTCOME_CHARS)


def _did_something(result: Result) -> bool:
    if result.said is not None and result.is_data:
        states = [str(value)[:200] for key, value in result.said.items() if _STATUS.search(key)]
        flags = (result.said.get(key) is True for key in ("success", "ok", "created", "updated"))
        return any(map(_DID.search, states)) or any(flags)
    return bool(_DID.search(result.head[:200])) and "\n" not in result.head[:400].strip()


def _rank(key: str, value: Any) -> int:
    """0 for an identifying argument, 1 for another scalar, 2 for a collection, `_PROSE` for prose."""
    if isinstance(value, str) and (len(value) > _VALUE_CHARS or "\n" in value):
        return _PROSE
    if isinstance(value, list | dict):
        return 2
    return 0 if _IDENTIFYING.search(_CAMEL.sub("_", key)) else 1


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value, _VALUE_CHARS if len(value) <= _VALUE_CHARS else _PROSE_CHARS)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return one_line(" ".join(filter(None, map(_shown, value.values()))), _VALUE_CHARS)
    if isinstance(value, list):
        shown = "; ".join(filter(None, map(_shown, value[:_LISTED])))
        return f"[{one_line(shown, LINE_CHARS)}]" if shown else ""
    return "" if value is None else str(value)


def _leaves(value: Any, depth: int = 0, key: str = "") -> Iterator[tuple[int, str, Any]]:
    """(depth, name, value) of each scalar in a result."""
    if isinstance(value, dict) and depth < _DEEP:
        for name, each in value.items():
            yield from _leaves(each, depth + (key != ""), str(name))
    elif isinstance(value, list) and depth < _DEEP:
        for each in value[:_LISTED]:
            yield from _leaves(each, depth + 1, key)
    elif value is not None and not isinstance(value, dict | list):
        yield depth, key, value
