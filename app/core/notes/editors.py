"""Tools that edit files: recognised by the words of their names, read by the usual names of arguments.

Knows nothing of shells or of other tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.core.notes.acts import (
    LINE_CHARS,
    Effect,
    Failure,
    FileChange,
    FileState,
    counted,
    edit,
    one_line,
)
from app.core.notes.arguments import Arguments, arguments_from
from app.core.notes.names import Tool
from app.core.notes.patches import change_detail, joined, patched, replaced
from app.core.notes.results import Result

# Edits of one call that are looked at.
_MOST_EDITS = 100
# Where an editor shows the file it has open: at the beginning or end of its result (characters).
_SHOWN_WITHIN = 4_000

_TARGETS = ("newpath", "destination", "dest", "destinationpath", "to", "target", "newname", "targetpath")
_OLD = (
    "oldstring", "oldstr", "oldtext", "search", "old", "original",
    "targetcontent", "oldcontent", "find", "regex",
)  # fmt: skip
_NEW = (
    "newstring", "newstr", "newtext", "replace", "new", "updated", "replacementtext", "replacement",
    "replacementcontent", "newcontent", "repl", "inserttext", "newsource", "source",
    "codeedit", "body", "text", "content",
    "code", "changes",
)  # fmt: skip
_CONTENTS = ("content", "contents", "filetext", "text", "newcontent", "code", "codecontent", "data", "body")
_SEVERAL = ("edits", "replacements", "replacementchunks", "edit", "operations", "changes")
_PATCHES = ("patch", "input", "patchtext", "diff", "patchcontent")

# A tool that does several things says in its `command` which.
_COMMANDS: Mapping[str, FileState] = {
    **dict.fromkeys(("str_replace", "insert", "undo_edit", "edit", "append", "edit_file"), "edited"),
    **dict.fromkeys(("create", "write", "overwrite"), "created"),
    "delete": "deleted",
    "rename": "moved",
}
_SHOWN = re.compile(r"\[File: ([^\n]{1,400}?) \(\d+ lines? total\)\]")
_CREATED = re.compile(
    r"\b(?:was|been|successfully) created\b|\bcreated (?:a )?new file|^created ", re.IGNORECASE
)
_REWRITTEN = re.compile(r"overwr|updated|modified|edited|existing|rewritten", re.IGNORECASE)


def patch_of(arguments: Arguments) -> str | None:
    """The patch that a patching tool is given, None for none. Codex writes it bare, not as JSON."""
    if not arguments.given:
        return arguments.raw
    text = arguments.text(_PATCHES)
    listed = arguments.items(("command", "cmd"))
    return text or next((each for each in listed if isinstance(each, str) and "\n" in each), None)


def effects_of_patch(name: str, patch: str, arguments: Arguments, result: Result) -> tuple[Effect, ...]:
    """The files that a patch changed; none when it has no format that is known."""
    path = arguments.path
    found = (replaced(patch, path),) if path else patched(patch)
    if result.not_applied():
        return (_failure(name, [path] if path else [change.path for change in found], result),)
    return found


def edit_state(tool: Tool, arguments: Arguments) -> FileState | None:
    """What the call does to a file, None for one that edits none or only looks."""
    command = arguments.keyed.get("command")
    if isinstance(command, str) and tool.is_editor:
        return _COMMANDS.get(command)
    # Editors with a state need no path; edits of several files name theirs.
    named = arguments.path or tool.words in (("edit",), ("insert",)) or arguments.items(_SEVERAL)
    return tool.edits if named else None


def effects_of_edit(
    name: str, state: FileState, arguments: Arguments, result: Result, opened: str
) -> tuple[Effect, ...]:
    """The change of the file that the call names, its result shows, or that is open; none without a file."""
    path = arguments.path or shown_file(result) or opened
    if result.not_applied():
        return (_failure(name, [path], result),)
    if not path:
        return tuple(_several("", _inner(arguments))) if state == "edited" else ()
    if state == "moved":
        return (FileChange(path, "moved", _beside(path, arguments.text(_TARGETS))),)
    if state == "deleted":
        return (FileChange(path, "deleted"),)
    if state == "edited" and not _CREATED.search(result.head[:200]):
        return tuple(_edits(path, arguments))
    content = arguments.text((*_CONTENTS, *_NEW))
    state = "edited" if content and _REWRITTEN.search(result.head[:200]) else "created"
    folder = any(word in name.lower() for word in ("directory", "folder", "mkdir"))
    return (FileChange(path, state, detail="folder" if folder else counted(content) if content else ""),)


def shown_file(result: Result) -> str:
    """The file that an editor with a state shows, "" when it shows none."""
    for text in (result.head[:_SHOWN_WITHIN], result.tail):
        found = _SHOWN.search(text) if "[File: " in text else None
        if found:
            return found.group(1)
    return ""


def _failure(name: str, paths: Sequence[str], result: Result) -> Failure:
    what = one_line(f"{name} {', '.join(paths)}".strip(), LINE_CHARS)
    return Failure(what, result.error(), tuple(paths))


def _beside(path: str, target: str) -> str:
    """The new path: a bare new name stays in the folder."""
    folder = path.rpartition("/")[0]
    return f"{folder}/{target}" if target and folder and "/" not in target else target


def _edits(path: str, arguments: Arguments) -> Iterator[FileChange]:
    if arguments.keyed.get("command") == "undo_edit":
        yield FileChange(path, "edited", detail="last edit undone")
        return
    diff = arguments.text(("diff", "patch"))
    if diff:
        yield replaced(diff, path)
        return
    several = _inner(arguments)
    if several:
        yield from _several(path, several)
    else:
        yield _edited(path, [arguments])


def _inner(arguments: Arguments) -> list[dict[str, Any]]:
    return [each for each in arguments.items(_SEVERAL)[:_MOST_EDITS] if isinstance(each, dict)]


def _several(path: str, edits: Sequence[Mapping[str, Any]]) -> Iterator[FileChange]:
    """One change a file; edits of several files name theirs."""
    found: dict[str, list[Arguments]] = {}
    for each in map(arguments_from, edits):
        if each.path or path:
            found.setdefault(each.path or path, []).append(each)
    for file, told in found.items():
        yield _edited(file, told)


def _edited(path: str, edits: Sequence[Arguments]) -> FileChange:
    sides = [(each.text(_OLD), each.text(_NEW)) for each in edits]
    detail = joined([change_detail(*each) for each in sides])
    return FileChange(path, "edited", detail=detail, edits=tuple(edit(*each) for each in sides))
