"""Edits of files: the tools that make them, and the formats in which models write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from palimpsest.core.notes.note import (
    LINE_CHARS,
    Effect,
    FileChange,
    FileState,
    counted,
    edit,
    is_path,
    one_line,
    ranked_words,
    word_set,
)
from palimpsest.core.notes.results import Result
from palimpsest.core.notes.tool_words import Arguments, Tool, arguments_from

# Characters of an edit that are read: a longer one is a generated file.
_READ_CHARS = 400_000
# Limit on the files of one patch, and on the blocks of one text.
_MOST = 200
# Characters of each side of an edit: compared, shown of one line, shown of several.
_COMPARED, _SIDE, _RUN_CHARS = 20_000, 62, 120
# Characters before the first difference that are shown of a long line.
_LEAD = 16

_SECTION = re.compile(r"^\*\*\* (Add|Update|Delete) File: ?([^\r\n]+)", re.MULTILINE)
_MOVED = re.compile(r"\s*\*\*\* Move to: ?([^\r\n]+)")
_PATCH_END = re.compile(r"^\*\*\* End Patch", re.MULTILINE)
_DIFFED = re.compile(r"^--- ([^\s][^\t\r\n]*)[^\r\n]*\r?\n\+\+\+ ([^\s][^\t\r\n]*)[^\r\n]*", re.MULTILINE)
_RENAMED = re.compile(r"^rename from ([^\r\n]+)\r?\nrename to ([^\r\n]+)", re.MULTILINE)
_SEARCH = re.compile(r"^(?:<{5,9}|-{5,9}) ?SEARCH>?[^\n]*\n", re.MULTILINE)
_DIVIDER = re.compile(r"^={5,9}[^\S\n]*\n", re.MULTILINE)
_REPLACE = re.compile(r"^(?:>{5,9}|\+{5,9}) ?REPLACE", re.MULTILINE)
# Roo writes the number of a block's first line above its text.
_POSITION = re.compile(r"\A(?::(?:start_line|end_line):[^\n]*\n|-{5,}\r?\n)+")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_WHOLE = re.compile(
    r"^([^\s`*#:|<>\"'()]{1,200}\.[A-Za-z]\w{0,9})[ \t]*\r?\n(```+)[\w+-]*\r?\n", re.MULTILINE
)


def change_detail(old: str, new: str) -> str:
    """The first lines in which `old` and `new` differ, as `"old" -> "new"`; "" when none does."""
    before, after = _lines(old), _lines(new)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    before, after = before[start:], after[start:]
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    return _difference(before, after)


def changes_of_patch(patch: str) -> tuple[FileChange, ...]:
    """The file changes of a patch in Codex's format, a unified diff or a git diff; none for other text."""
    patch = patch[:_READ_CHARS]
    if "*** " in patch and _SECTION.search(patch):
        return tuple(_sections(patch))
    if "--- " in patch or "rename from " in patch:
        return tuple(_diffs(patch))
    return ()


def change_of_diff(diff: str, path: str) -> FileChange:
    """The change by SEARCH/REPLACE blocks or a diff to `path`; other text gives an edit without detail."""
    if blocks := [block[:2] for block in _blocks(diff[:_READ_CHARS])]:
        return _edited(path, blocks, are_blocks=True)
    found = changes_of_patch(diff) or changes_of_patch(f"--- {path}\n+++ {path}\n{diff}")
    return replace(found[0], path=path, state="edited", to="") if found else FileChange(path, "edited")


def edits_in_text(text: str) -> tuple[FileChange, ...]:
    """The edits in an assistant's text: SEARCH/REPLACE blocks, fenced diffs, complete files."""
    text = text[:_READ_CHARS]
    if "REPLACE" in text and "SEARCH" in text:
        found = tuple(_named_blocks(text))
        if found:
            return found
    if "*** Begin Patch" in text or ("```diff" in text and "\n+++ " in text):
        return changes_of_patch(text)
    return tuple(_whole_files(text)) if "```" in text else ()


def _sections(patch: str) -> Iterator[FileChange]:
    heads = list(islice(_SECTION.finditer(patch), _MOST))
    end = _PATCH_END.search(patch, heads[-1].end())
    stops = [head.start() for head in heads[1:]] + [end.start() if end else len(patch)]
    for head, stop in zip(heads, stops, strict=True):
        kind, path = head.group(1), head.group(2).strip()
        body = patch[head.end() : stop]
        if not is_path(path):
            continue
        if kind == "Delete":
            yield FileChange(path, "deleted")
        elif kind == "Add":
            yield FileChange(path, "created", detail=counted(body.strip("\r\n")))
        else:
            moved = _MOVED.match(body)
            yield _by_hunks(path, moved.group(1).strip() if moved else "", body)


def _diffs(patch: str) -> Iterator[FileChange]:
    heads = list(islice(_DIFFED.finditer(patch), _MOST))
    stops = [*(head.start() for head in heads[1:]), len(patch)][: len(heads)]
    renamed = {m[2].strip(): m[1].strip() for m in islice(_RENAMED.finditer(patch), _MOST)}
    for head, stop in zip(heads, stops, strict=True):
        old, new = _plain(head.group(1), "a/"), _plain(head.group(2), "b/")
        body = patch[head.end() : stop]
        is_deleted = new == "/dev/null"
        if not is_path(old if is_deleted else new):
            continue
        if old == "/dev/null":
            detail = f"{body.count(chr(10) + '+')} lines"
            yield FileChange(old if is_deleted else new, "created", detail=detail)
        elif is_deleted and new not in renamed:
            yield FileChange(old, "deleted")
        else:
            name = renamed.pop(new, "")
            yield _by_hunks(name or new, new if name else "", body)
    for to, name in renamed.items():
        yield FileChange(name, "moved", to)


def _by_hunks(path: str, to: str, body: str) -> FileChange:
    """A file edited by hunks, and moved unless `to` is empty."""
    lines = body.split("\n")
    old, new = ("\n".join(line[1:] for line in lines if line.startswith(mark)) for mark in "-+")
    return FileChange(path, "moved" if to else "edited", to, _hunks(lines), (edit(old, new),))


def _plain(name: str, prefix: str) -> str:
    return name.strip().strip('"').removeprefix(prefix)


def _hunks(lines: Sequence[str]) -> str:
    """The first run of removed and added lines, and the number of changed lines after it."""
    marks = "".join("-" if line.startswith("-") else "+" if line.startswith("+") else " " for line in lines)
    found = re.search(r"-*\+*(?<=[-+])", marks)
    if found is None:
        return ""
    run = lines[found.start() : found.end()]
    removed, added = (
        [line[1:].strip() for line in run if line[0] == mark and line[1:].strip()] for mark in "-+"
    )
    more = len(marks[found.end() :].replace(" ", ""))
    first = _difference(removed, added)
    return f"{first}; {more} more lines" if more and first else first


def _difference(before: Sequence[str], after: Sequence[str]) -> str:
    """Two runs of lines as `"old" -> "new"`, the lines of each joined and cut."""
    if len(before) == len(after) == 1:
        old, new = _around(before[0], after[0])
        return f'"{old}" -> "{new}"'
    if before and after:
        return f'"{_run(before)}" -> "{_run(after)}"'
    return f'{"removed" if before else "added"} "{_run(before or after)}"' if before or after else ""


def _run(lines: Sequence[str]) -> str:
    """The lines with a letter or a digit: a bracket alone says nothing."""
    said = [line for line in lines if any(c.isalnum() for c in line)] or lines
    return one_line(" / ".join(said), _RUN_CHARS)


def _around(old: str, new: str) -> tuple[str, str]:
    """Both lines, cut to `_SIDE` characters around their first difference."""
    if max(len(old), len(new)) <= _SIDE:
        return old, new
    same = next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    start = max(0, same - _LEAD) if same > _SIDE - _LEAD else 0
    lead = "..." if start else ""
    return (lead + one_line(old[start:], _SIDE - 3), lead + one_line(new[start:], _SIDE - 3))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text[:_COMPARED].split("\n") if line.strip()]


def _blocks(text: str) -> Iterator[tuple[str, str, int, int]]:
    """(old, new, start, end) of each complete SEARCH/REPLACE block."""
    place = 0
    for _ in range(_MOST):
        search = _SEARCH.search(text, place)
        divider = _DIVIDER.search(text, search.end()) if search else None
        close = _REPLACE.search(text, divider.end()) if divider else None
        if search is None or divider is None or close is None:
            return
        place = close.end()
        yield text[search.end() : divider.start()], text[divider.end() : close.start()], search.start(), place


def _named_blocks(text: str) -> Iterator[FileChange]:
    """The changes of SEARCH/REPLACE blocks: the line above names the file, else it is the last block's."""
    path, place = "", 0
    for old, new, start, end in _blocks(text):
        lines = [line.strip() for line in text[place:start].split("\n")]
        named = [line for line in lines if line and not _FENCE.match(line)]
        candidate = named[-1].strip("`*#: ") if named else ""
        if candidate and " " not in candidate and ("." in candidate or "/" in candidate):
            path = candidate
        place = end
        if is_path(path):
            created = FileChange(path, "created", detail=counted(new))
            yield _edited(path, [(old, new)], are_blocks=True) if old.strip() else created


def _whole_files(text: str) -> Iterator[FileChange]:
    """Complete files: a file name alone on a line, directly followed by a fenced block."""
    place = 0
    for _ in range(_MOST):
        found = _WHOLE.search(text, place)
        if found is None:
            return
        close = text.find("\n" + found.group(2), found.end() - 1)
        if close < 0:
            return
        yield FileChange(found.group(1), "edited", detail=counted(text[found.end() : close]))
        place = close + 1


# Limit on the edits of one call.
_MOST_EDITS = 100
# Characters at the start of a result in which an editor names its open file.
_SHOWN_WITHIN = 4_000

_TARGETS = ranked_words("newpath destination dest destinationpath to target newname targetpath")
_OLD = ranked_words("oldstring oldstr oldtext search old original targetcontent oldcontent find regex")
_NEW = ranked_words(
    "newstring newstr newtext replace new updated replacementtext replacement replacementcontent"
    " newcontent repl inserttext newsource source codeedit body text content code changes"
)
_CONTENTS = ranked_words("content contents filetext text newcontent code codecontent data body")
_SEVERAL = ranked_words("edits replacements replacementchunks edit operations changes")
_PATCHES = ranked_words("patch input patchtext diff patchcontent")

# Editors with several functions name the one to use in `command`.
_COMMANDS: Mapping[str, FileState] = {
    **dict.fromkeys(word_set("str_replace insert undo_edit edit append edit_file"), "edited"),
    **dict.fromkeys(word_set("create write overwrite"), "created"),
    "delete": "deleted",
    "rename": "moved",
}
_SHOWN = re.compile(r"\[File: ([^\n]{1,400}?) \(\d+ lines? total\)\]")
_CREATED = re.compile(
    r"\b(?:was|been|successfully) created\b|\bcreated (?:a )?new file|^created ", re.IGNORECASE
)
_REWRITTEN = re.compile(r"overwr|updated|modified|edited|existing|rewritten", re.IGNORECASE)


def patch_of(arguments: Arguments) -> str | None:
    """The patch in the arguments; None without one. Codex sends it bare, not as JSON."""
    if not arguments.given:
        return arguments.raw
    text = arguments.text(_PATCHES)
    listed = arguments.items(("command", "cmd"))
    return text or next((each for each in listed if isinstance(each, str) and "\n" in each), None)


def effects_of_patch(name: str, patch: str, arguments: Arguments, result: Result) -> tuple[Effect, ...]:
    """The file changes of a patch; none for an unknown format."""
    path = arguments.path
    found = (change_of_diff(patch, path),) if path else changes_of_patch(patch)
    if result.not_applied():
        paths = [path] if path else [change.path for change in found]
        return (result.failure(f"{name} {', '.join(paths)}", *paths),)
    return found


def edit_state(tool: Tool, arguments: Arguments) -> FileState | None:
    """What the call does to a file; None when it changes none."""
    command = arguments.keyed.get("command")
    if isinstance(command, str) and tool.is_editor:
        return _COMMANDS.get(command)
    # Stateful editors need no path; edits of several files name a path each.
    named = arguments.path or tool.words in (("edit",), ("insert",)) or arguments.items(_SEVERAL)
    return tool.edits if named else None


def effects_of_edit(
    name: str, state: FileState, arguments: Arguments, result: Result, opened: str
) -> tuple[Effect, ...]:
    """The change of a file: the one that the call names, its result shows, or `opened`. None without one."""
    path = arguments.path or shown_file(result) or opened
    if result.not_applied():
        return (result.failure(f"{name} {path}", path),)
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
    """The file that a stateful editor reports as open; "" when it reports none."""
    for text in (result.head[:_SHOWN_WITHIN], result.tail):
        found = _SHOWN.search(text) if "[File: " in text else None
        if found:
            return found.group(1)
    return ""


def _beside(path: str, target: str) -> str:
    """The new path; a name without a folder stays in the folder of `path`."""
    folder = path.rpartition("/")[0]
    return f"{folder}/{target}" if target and folder and "/" not in target else target


def _edits(path: str, arguments: Arguments) -> Iterator[FileChange]:
    if arguments.keyed.get("command") == "undo_edit":
        yield FileChange(path, "edited", detail="last edit undone")
    elif diff := arguments.text(("diff", "patch")):
        yield change_of_diff(diff, path)
    elif several := _inner(arguments):
        yield from _several(path, several)
    else:
        yield _edited(path, [_sides(arguments)])


def _inner(arguments: Arguments) -> list[dict[str, Any]]:
    return [each for each in arguments.items(_SEVERAL)[:_MOST_EDITS] if isinstance(each, dict)]


def _several(path: str, edits: Sequence[Mapping[str, Any]]) -> Iterator[FileChange]:
    """One change per file; an edit without a path of its own belongs to `path`."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in map(arguments_from, edits):
        if each.path or path:
            found.setdefault(each.path or path, []).append(_sides(each))
    return (_edited(file, sides) for file, sides in found.items())


def _sides(arguments: Arguments) -> tuple[str, str]:
    """The text that an edit takes out, and the one that it puts in."""
    return arguments.text(_OLD), arguments.text(_NEW)


def _edited(path: str, sides: Sequence[tuple[str, str]], are_blocks: bool = False) -> FileChange:
    """The file after these edits: the detail of the first one, the number of others, and each one's sides."""
    said = (change_detail(_POSITION.sub("", old) if are_blocks else old, new) for old, new in sides)
    details = dict.fromkeys(filter(None, said))
    first, more = next(iter(details), ""), len(details) - 1
    if more > 0:
        tail = f"; {more} more"
        first = one_line(first, LINE_CHARS - len(tail)) + tail
    return FileChange(path, "edited", detail=first, edits=tuple(edit(*each) for each in sides))
