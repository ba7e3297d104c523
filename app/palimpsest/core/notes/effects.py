"""Effects of an agent's tool calls: files changed, actions, commands, failures, tasks, reads.

A call is classified by the words of its name and by its arguments, in the forms that agents use. An effect
is reported only where the result does not contradict it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from palimpsest.core.notes.actions import effects_of_tool, key_arguments, tasks_in, tasks_of
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
    TASKS,
    Command,
    Effect,
    FileRead,
    one_line,
    ranked_words,
)
from palimpsest.core.notes.results import Result, result_of
from palimpsest.core.notes.shell import effects_of_script, line_of
from palimpsest.core.notes.tool_words import Arguments, Tool, arguments_of, tool_named
from palimpsest.core.text.message_text import ToolCall

# Characters of an assistant's text in which edits are searched.
_TEXT_CHARS = 400_000
# Limit on the tags of one text, and on those inside one tag.
_TAGS = 100
# Characters of a tool's name that are shown.
_NAME_CHARS = 80

_SOUGHT = ranked_words("pattern query regex searchterm q search term objective filename glob globpattern")
_ADDRESSES = ranked_words("url uri address link")
_WITHIN = ranked_words("dir targetdirectory cwd")
# Stateful editors work on the file they have open.
_STATEFUL = ranked_words("open create edit insert goto scroll_up scroll_down")
_OPEN_FILE = re.compile(r"\(Open file: ([^\n]{1,400}?)\)\s*$", re.MULTILINE)
# A line of a file as tools show it: "12: text", "12|text", "12<tab>text".
_NUMBERED = re.compile(r"^\s*(\d{1,6})[:|\t→]\s*(\S.{6,150})$", re.MULTILINE)
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
    tasks = tasks_in(progress) if isinstance(progress, str) else None
    return (*found, tasks) if tasks is not None else found


def open_file_after(call: ToolCall, result: str | None) -> str:
    """The file that a stateful editor has open after the call; "" when the call does not say."""
    if result is None:
        return ""
    tail = result[-600:]
    if "(Open file: " in tail:
        found = _OPEN_FILE.search(tail)
        return found.group(1) if found and found.group(1) != "n/a" else ""
    if call.name not in _STATEFUL:
        return ""
    seen = result_of(result)
    shown = shown_file(seen)
    if shown or call.name not in ("open", "create") or seen.failed(quoting=True):
        return shown
    return arguments_of(call.arguments).path


def effects_in_text(text: str) -> tuple[Effect, ...]:
    """Edits and commands that an assistant wrote as text: aider's formats, and tool calls as XML tags.

    Whether they succeeded is unknown, so commands have `ok` None.
    """
    text = text[:_TEXT_CHARS]
    if "</" in text and _XML.search(text):
        found = tuple(_tagged(text))
        if found:
            return found
    return edits_in_text(text)


def _effects(name: str, arguments: Arguments, seen: Result | None, opened: str) -> tuple[Effect, ...]:
    tool = tool_named(name)
    if tool.keeps_tasks:
        return _tasked(name, tool, arguments, seen)
    given = isinstance(arguments.keyed.get("command"), str | list) and not arguments.path
    runs = tool.runs_scripts or tool.runs_code or (tool.runs_commands and given)
    if runs and (script := arguments.script).strip():
        return _ran_code(script, seen) if tool.runs_code else effects_of_script(script, seen)
    if tool.sends_input or tool.runs_scripts:
        return _input_effects(arguments, seen)
    if what := _looked_up(tool, arguments):
        if seen is None or not seen.failed(quoting=True):
            return (FileRead(what, _shown(tool, seen) if seen else ()),)
        return (seen.failure(f"{name} {what}", FileRead(what).name),)
    patch = patch_of(arguments) if tool.patches else None
    state = edit_state(tool, arguments)
    found: tuple[Effect, ...] = ()
    if seen is None:
        if patch is not None or state is not None or tool.checks:
            return ()
    elif patch is not None:
        found = effects_of_patch(name, patch, arguments, seen)
    elif state is not None:
        found = effects_of_edit(name, state, arguments, seen, opened)
    elif tool.checks:
        line = one_line(f"{name} {key_arguments(arguments)}".strip(), COMMAND_CHARS)
        found = (_command(line, seen),)
    return found or effects_of_tool(name, tool, arguments, seen)


def _ran_code(code: str, seen: Result | None) -> tuple[Effect, ...]:
    """The effects of a program given as text, read as if a shell had run it."""
    found = effects_of_script(f"python - <<'END_OF_CODE'\n{code}\nEND_OF_CODE\n", seen)
    line = one_line(f"python: {code}", COMMAND_CHARS)
    return tuple(replace(each, line=line) if isinstance(each, Command) else each for each in found)


def _command(line: str, seen: Result) -> Command:
    return seen.command(line, None if seen.running else not seen.failed())


def _tasked(name: str, tool: Tool, arguments: Arguments, seen: Result | None) -> tuple[Effect, ...]:
    if seen is not None and seen.failed(quoting=True):
        return (seen.failure(name, TASKS),)
    bare = not arguments.given and arguments.raw.lstrip()[:1] == "["
    given = {"todos": arguments.raw} if bare else arguments.given
    tasks = tasks_of(tool.plain, given, seen.head if seen is not None else None)
    return (tasks,) if tasks is not None else ()


def _input_effects(arguments: Arguments, seen: Result | None) -> tuple[Effect, ...]:
    """The effect of input for a running command, or of a poll of its output."""
    if seen is None or seen.running or not {"sessionid", "chars", "input", "keys"} & arguments.keyed.keys():
        return ()
    sent = arguments.text(("chars", "input", "text", "keys")).strip()
    line = sent or f"session {arguments.keyed.get('sessionid', '')}".strip()
    return (_command(line_of(line), seen),)


def _shown(tool: Tool, seen: Result) -> tuple[str, ...]:
    """A short list of hits; of a file its numbered lines."""
    numbered = (f"{number}: {line}" for number, line in _NUMBERED.findall(seen.text))
    return seen.short() if tool.searches else tuple(numbered)


def _looked_up(tool: Tool, arguments: Arguments) -> str:
    """The file, address or search that a reading tool looks at; "" for other tools."""
    path = arguments.path
    if path and (tool.shows_files or (tool.is_editor and arguments.keyed.get("command") in ("view", "read"))):
        return path
    sought = arguments.text(_SOUGHT) if tool.searches else ""
    within = (path if path != sought else "") or (arguments.text(_WITHIN) if sought else "")
    if sought and (within or tool.words[0] != "find"):
        return one_line(f'"{sought}" in {within}' if within else f'"{sought}"', LINE_CHARS)
    address = arguments.text(_ADDRESSES) if tool.fetches else ""
    return one_line(address, LINE_CHARS) if "://" in address else ""


def _tagged(text: str) -> Iterator[Effect]:
    """The effects of calls written as XML tags, each read as a call with an unknown result."""
    place = 0
    for _ in range(_TAGS):
        found = _XML.search(text, place)
        if found is None:
            return
        close = text.find(f"</{found.group(1)}>", found.end())
        if close < 0:
            return
        yield from _tag_effects(found.group(1), text[found.end() : close])
        place = close


def _tag_effects(name: str, body: str) -> Iterator[Effect]:
    if name in ("task_progress", "update_todo_list"):
        tasks = tasks_in(body)
        if tasks is not None:
            yield tasks
        return
    given = _children(body)
    if name == "execute_command":
        if given.get("command", "").strip():
            yield Command(line_of(given["command"].strip()), None, "")
        return
    raw = msgspec.json.encode(given).decode()
    if name == "use_mcp_tool":
        name, raw = given.get("tool_name", name), given.get("arguments", "{}")
    # The empty result stands for an unknown one, so that changes are reported as aider's are.
    yield from effects_of(ToolCall(id="", name=name, arguments=raw), "")


def _children(body: str) -> dict[str, Any]:
    """The texts of the tags inside a tag; those that only hold other tags (args, file, diff) are entered."""
    found: dict[str, Any] = {}
    place = 0
    for _ in range(_TAGS):
        child = _CHILD.search(body, place)
        if child is None:
            break
        name = child.group(1)
        close = body.find(f"</{name}>", child.end())
        place = child.end()
        inner = body[child.end() : close]
        if close < 0 or name in ("args", "file", "files") or (name == "diff" and "<content>" in inner):
            continue
        found.setdefault("diff" if name == "content" and "SEARCH" in inner else name, inner.strip("\r\n"))
        place = close + len(name) + 3
    return found
