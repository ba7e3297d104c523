"""Which files a call touches and how (D03): reads, edits, creations, deletions, patches.

Knows nothing of other slots. Paths are kept exactly as the tool was given them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.core.summary.working.arguments import Arguments, clean
from app.core.summary.working.clipping import clipped_line
from app.core.summary.working.limits import SlotLimits, ToolKind
from app.core.summary.working.state import ActionKind, FileAction, FileNote

_BEFORE_KEYS = ("old_string", "old_str", "oldString", "old_text", "oldText", "search", "old", "original")
_AFTER_KEYS = ("new_string", "new_str", "newString", "new_text", "newText", "replace", "new", "updated")
_INSERTED_KEYS = ("insert_text", "new_source", "code_edit", "content", "contents", "text", "instructions")
_CONTENT_KEYS = ("content", "contents", "file_text", "text", "new_content", "code", "data", "body")
_PATCH_KEYS = ("patch", "diff", "input", "patchText", "patch_text")
# A tool that does several things says in its `command` which (the editors of Anthropic's models).
_COMMANDS: dict[str, ToolKind] = {
    "view": "read",
    "create": "write",
    "str_replace": "edit",
    "insert": "edit",
    "delete": "delete",
}
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: ([^\n]+)$", re.MULTILINE)
_PATCH_END = re.compile(r"^\*\*\* (?:End Patch|End of File)\s*$", re.MULTILINE)
_DIFFED = re.compile(r"^--- (\S+)(?:[ \t][^\n]*)?\n\+\+\+ (\S+)(?:[ \t][^\n]*)?$", re.MULTILINE)
_REMOVAL = re.compile(r"(?:^|&&|[;\n])[ \t]{0,16}(?:sudo )?(?:git )?rm[ \t]+([^&;|\n<>]+)")
_DEFINED = re.compile(
    r"^[ \t]*(?:\d{1,7}[ \t]*[\t:|→][ \t]*)?"
    r"(?:(?:export|default|pub|public|static|async|abstract)[ \t]+)*"
    r"(?:def|class|function|func|fn|struct|enum|interface|trait|type|const)[ \t]+"
    r"(?:\([^)\n]{0,80}\)[ \t]*)?([A-Za-z_]\w*)",
    re.MULTILINE,
)
# Characters of one removal's file names that are read.
_REMOVED_CHARS = 4_000
# Names of definitions a read shows.
_DEFINED_SHOWN = 12


def file_kind(kind: ToolKind, arguments: Arguments) -> ToolKind:
    """`kind` as the call's own `command` puts it, where one tool does several things."""
    given = arguments.given.get("command")
    return _COMMANDS.get(given, kind) if kind == "edit" and isinstance(given, str) else kind


def actions_of(
    kind: ToolKind, arguments: Arguments, call_id: str, limits: SlotLimits
) -> list[tuple[str, FileAction]]:
    """(path, action) for each file the call touches, in order; none when it names no file."""
    patch = _patch(kind, arguments)
    if patch:
        found = list(_patched(patch, limits))
    elif kind == "shell":
        found = [(path, FileAction("delete")) for path in _removed(arguments.command)]
    else:
        own = _own(kind, arguments, limits)
        found = [(path, action) for path in arguments.paths for action in own]
    return [
        (path, replace(action, call=call_id)) for path, action in found if 0 < len(path) <= limits.path_chars
    ]


def with_actions(
    files: Sequence[FileNote], actions: Sequence[tuple[str, FileAction]], limits: SlotLimits
) -> tuple[FileNote, ...]:
    """The files with these actions added, each touched file moved to the end."""
    notes = {note.path: note for note in files}
    for path, action in actions:
        note = notes.pop(path, FileNote(path))
        known = action.kind == "create" and any(a.kind != "delete" and not a.failed for a in note.actions)
        added = replace(action, kind="rewrite") if known else action
        # The same again says nothing new: the newer one stands for both.
        others = tuple(a for a in note.actions if replace(a, call="") != replace(added, call=""))
        notes[path] = FileNote(path, _kept((*others, added), limits.max_file_actions))
    return tuple(notes.values())[-limits.max_files :]


def with_outcome(
    files: tuple[FileNote, ...], call_id: str, shown: str, failed: bool, limits: SlotLimits
) -> tuple[FileNote, ...]:
    """The files with the outcome of a call at its actions: what a read showed, or that it failed.

    The actions lose their call's id, which may come again (F02).
    """
    if not call_id or not any(action.call == call_id for note in files for action in note.actions):
        return files
    found = []
    for note in files:
        told = (_outcome(a, shown, failed, limits) if a.call == call_id else a for a in note.actions)
        # Of equal actions the newest stays.
        distinct = tuple(dict.fromkeys(reversed(tuple(told))))[::-1]
        found.append(replace(note, actions=distinct))
    return tuple(found)


def _outcome(action: FileAction, shown: str, failed: bool, limits: SlotLimits) -> FileAction:
    if failed or action.kind != "read":
        return replace(action, call="", failed=failed)
    parts = (action.detail, _read_summary(shown))
    detail = clipped_line("; ".join(part for part in parts if part), limits.read_chars)
    return replace(action, call="", detail=detail)


def _own(kind: ToolKind, arguments: Arguments, limits: SlotLimits) -> list[FileAction]:
    """What the arguments say beside the path."""
    if kind == "read":
        return [FileAction("read", detail=_range(arguments))]
    if kind == "delete":
        return [FileAction("delete")]
    if kind == "write":
        content = arguments.text(*_CONTENT_KEYS)
        return [FileAction("create", detail=_lines(content) if content else "")]
    edits = arguments.items("edits", "replacements", "changes")
    if edits:
        inner = [Arguments(edit, "") for edit in edits if isinstance(edit, dict)]
        return [_edit(each, limits) for each in inner][-limits.max_file_actions :]
    return [_edit(arguments, limits)]


def _edit(arguments: Arguments, limits: SlotLimits) -> FileAction:
    before, after = arguments.text(*_BEFORE_KEYS), arguments.text(*_AFTER_KEYS)
    if not before and not after:
        after = arguments.text(*_INSERTED_KEYS)
    return _edited(before, after, limits)


def _edited(before: str, after: str, limits: SlotLimits) -> FileAction:
    old, new = (clipped_line(side, limits.edit_chars) for side in (before, after))
    return FileAction("edit", before=old, after=new)


def _range(arguments: Arguments) -> str:
    start = arguments.number("offset", "start_line", "startLine", "start_line_one_indexed", "line_start")
    end = arguments.number("end_line", "endLine", "end_line_one_indexed_inclusive", "line_end")
    count = arguments.number("limit", "num_lines", "max_lines")
    if start is None and end is None:
        return f"first {count} lines" if count is not None else ""
    if end is None and count is not None:
        end = (start or 1) + count - 1
    return f"lines {start or 1}-{'' if end is None else end}"


def _read_summary(shown: str) -> str:
    names = list(dict.fromkeys(_DEFINED.findall(shown)))
    told = ", ".join(names[:_DEFINED_SHOWN])
    return f"{_lines(shown)}; defines {told}" if told else _lines(shown)


def _lines(text: str) -> str:
    count = len(text.splitlines())
    return f"{count} line{'' if count == 1 else 's'}"


def _patch(kind: ToolKind, arguments: Arguments) -> str:
    """The patch a call applies, "" for none. Some models write it bare instead of as JSON."""
    given = ""
    if kind == "shell":
        given = arguments.command
    elif kind == "edit":
        given = arguments.text(*_PATCH_KEYS) if arguments.given else clean(arguments.raw)
    return given if _PATCHED.search(given) or _DIFFED.search(given) else ""


def _patched(patch: str, limits: SlotLimits) -> Iterator[tuple[str, FileAction]]:
    end = _PATCH_END.search(patch)
    heads = list(_PATCHED.finditer(patch)) or list(_DIFFED.finditer(patch))
    for place, head in enumerate(heads):
        stop = heads[place + 1].start() if place + 1 < len(heads) else end.start() if end else len(patch)
        body = patch[head.end() : stop].splitlines()
        before = "\n".join(line[1:] for line in body if line.startswith("-"))
        after = "\n".join(line[1:] for line in body if line.startswith("+"))
        kind, path = _head_of(head)
        if kind == "delete":
            yield path, FileAction("delete")
        elif kind == "create":
            yield path, FileAction("create", detail=_lines(after))
        else:
            yield path, _edited(before, after, limits)


def _head_of(head: re.Match[str]) -> tuple[ActionKind, str]:
    first, second = head.group(1), head.group(2)
    if first in ("Add", "Update", "Delete"):
        kinds: dict[str, ActionKind] = {"Add": "create", "Update": "edit", "Delete": "delete"}
        return kinds[first], second.strip()
    if second == "/dev/null":
        return "delete", first.removeprefix("a/")
    return ("create" if first == "/dev/null" else "edit"), second.removeprefix("b/")


def _removed(command: str) -> Iterator[str]:
    for match in _REMOVAL.finditer(command):
        given = match.group(1)
        # Splitting is slow, and nobody names so many files by hand; a name is never cut.
        given = given if len(given) <= _REMOVED_CHARS else given[:_REMOVED_CHARS].rpartition(" ")[0]
        try:
            words = shlex.split(given)
        except ValueError:
            continue
        yield from (word for word in words if word and not word.startswith("-") and "\n" not in word)


def _kept(actions: tuple[FileAction, ...], most: int) -> tuple[FileAction, ...]:
    """The newest actions; reads go first, for what was changed matters longer."""
    excess = len(actions) - most
    if excess <= 0:
        return actions
    reads = [place for place, action in enumerate(actions[:-1]) if action.kind == "read"][:excess]
    rest = tuple(action for place, action in enumerate(actions) if place not in reads)
    return rest[-most:]
