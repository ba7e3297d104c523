"""Edits of files: the tools that make them, and the formats in which models write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile

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
# Limit on the files of one patch, the blocks of one text, the edits of one call.
_MOST = 200
# Characters of each side of an edit: compared, shown of one line, shown of several.
_COMPARED, _SIDE, _RUN_CHARS = 20_000, 62, 120
# Characters before the first difference that are shown of a long line.
_LEAD = 16
# Characters at the start of a result in which an editor names its open file.
_SHOWN_WITHIN = 4_000

_SECTION = re.compile(r"^\*\*\* (?:(Add|Update|Delete) File: ?([^\r\n]+)|End Patch)", re.MULTILINE)
_MOVED = re.compile(r"\s*\*\*\* Move to: ?([^\r\n]+)")
_DIFFED = re.compile(r"^--- ([^\s][^\t\r\n]*)[^\r\n]*\r?\n\+\+\+ ([^\s][^\t\r\n]*)[^\r\n]*", re.MULTILINE)
_RENAMED = re.compile(r"^rename from ([^\r\n]+)\r?\nrename to ([^\r\n]+)", re.MULTILINE)
_SEARCH = re.compile(r"^(?:<{5,9}|-{5,9}) ?SEARCH>?[^\n]*\n", re.MULTILINE)
_DIVIDER = re.compile(r"^={5,9}[^\S\n]*\n", re.MULTILINE)
_REPLACE = re.compile(r"^(?:>{5,9}|\+{5,9}) ?REPLACE", re.MULTILINE)
# Roo writes the number of a block's first line above its text.
_POSITION = re.compile(r"\A(?::(?:start_line|end_line):[^\n]*\n|-{5,}\r?\n)+")
_WHOLE = re.compile(
    r"^([^\s`*#:|<>\"'()]{1,200}\.[A-Za-z]\w{0,9})[ \t]*\r?\n(```+)[\w+-]*\r?\n", re.MULTILINE
)
_SHOWN = re.compile(r"\[File: ([^\n]{1,400}?) \(\d+ lines? total\)\]")
_CREATED = re.compile(
    r"\b(?:was|been|successfully) created\b|\bcreated (?:a )?new file|^created ", re.IGNORECASE
)
_REWRITTEN = re.compile(r"overwr|updated|modified|edited|existing|rewritten", re.IGNORECASE)

# Names of arguments, in lower case and without separators.
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


def change_detail(old: str, new: str) -> str:
    """The lines in which `old` and `new` differ, as `"old" -> "new"`; "" when none does."""
    before, after = (
        [line.strip() for line in text[:_COMPARED].split("\n") if line.strip()] for text in (old, new)
    )
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    before, after = before[start:], after[start:]
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    if len(before) == len(after) == 1:
        (one,), (other,) = before, after
        pairs = enumerate(zip(one, other, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
        # A long line is shown around its first difference.
        cut = same - _LEAD if max(len(one), len(other)) > _SIDE and same > _SIDE - _LEAD else 0
        sides = [
            ("..." if cut else "") + one_line(line[cut:], _SIDE - 3 if cut else _SIDE)
            for line in (one, other)
        ]
    else:
        # A bracket alone says nothing.
        told = ([line for line in run if any(map(str.isalnum, line))] or run for run in (before, after))
        sides = [one_line(" / ".join(run), _RUN_CHARS) for run in told]
    if before and after:
        return f'"{sides[0]}" -> "{sides[1]}"'
    return f'{"removed" if before else "added"} "{sides[0] or sides[1]}"' if before or after else ""


def changes_of_patch(patch: str) -> tuple[FileChange, ...]:
    """The file changes of a patch in Codex's format, a unified diff or a git diff; none for other text."""
    patch = patch[:_READ_CHARS]
    if "*** " in patch and _SECTION.search(patch):
        return tuple(_sections(patch))
    return tuple(_diffs(patch)) if "--- " in patch or "rename from " in patch else ()


def change_of_diff(diff: str, path: str) -> FileChange:
    """The change by SEARCH/REPLACE blocks or a diff to `path`; other text gives an edit without detail."""
    if blocks := [block[:2] for block in _blocks(diff[:_READ_CHARS])]:
        return _edited(path, blocks, are_blocks=True)
    found = changes_of_patch(diff) or changes_of_patch(f"--- {path}\n+++ {path}\n{diff}")
    return replace(found[0], path=path, state="edited", to="") if found else FileChange(path, "edited")


def edits_in_text(text: str) -> tuple[FileChange, ...]:
    """The edits in an assistant's text: SEARCH/REPLACE blocks, fenced diffs, complete files."""
    text = text[:_READ_CHARS]
    if "REPLACE" in text and "SEARCH" in text and (found := tuple(_named_blocks(text))):
        return found
    if "*** Begin Patch" in text or ("```diff" in text and "\n+++ " in text):
        return changes_of_patch(text)
    return tuple(_whole_files(text)) if "```" in text else ()


def _sections(patch: str) -> Iterator[FileChange]:
    heads = list(islice(_SECTION.finditer(patch), _MOST))
    for head, stop in zip(heads, [*(each.start() for each in heads[1:]), len(patch)], strict=True):
        kind, path, body = head[1], (head[2] or "").strip(), patch[head.end() : stop]
        if not is_path(path):
            continue
        if kind == "Delete":
            yield FileChange(path, "deleted")
        elif kind == "Add":
            yield FileChange(path, "created", detail=counted(body.strip("\r\n")))
        else:
            moved = _MOVED.match(body)
            yield _by_hunks(path, moved[1].strip() if moved else "", body)


def _diffs(patch: str) -> Iterator[FileChange]:
    heads = list(islice(_DIFFED.finditer(patch), _MOST))
    renamed = {found[2].strip(): found[1].strip() for found in islice(_RENAMED.finditer(patch), _MOST)}
    for head, stop in zip(heads, [*(each.start() for each in heads), len(patch)][1:], strict=True):
        old, new = (head[side].strip().strip('"').removeprefix(mark) for side, mark in ((1, "a/"), (2, "b/")))
        body = patch[head.end() : stop]
        if not is_path(old if new == "/dev/null" else new):
            continue
        if old == "/dev/null":
            yield FileChange(new, "created", detail=f"{body.count(chr(10) + '+')} lines")
        elif new == "/dev/null":
            yield FileChange(old, "deleted")
        else:
            name = renamed.pop(new, "")
            yield _by_hunks(name or new, new if name else "", body)
    for to, name in renamed.items():
        yield FileChange(name, "moved", to)


def _by_hunks(path: str, to: str, body: str) -> FileChange:
    """A file edited by hunks, and moved unless `to` is empty."""
    lines = body.replace("\r\n", "\n").split("\n")
    old, new = ("\n".join(line[1:] for line in lines if line.startswith(mark)) for mark in "-+")
    return FileChange(path, "moved" if to else "edited", to, change_detail(old, new), (edit(old, new),))


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
        named = [line for line in lines if line and not line.startswith(("```", "~~~"))]
        candidate = named[-1].strip("`*#: ") if named else ""
        if " " not in candidate and ("." in candidate or "/" in candidate):
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
        place = text.find("\n" + found[2], found.end() - 1) if found else -1
        if found is None or place < 0:
            return
        yield FileChange(found[1], "edited", detail=counted(text[found.end() : place]))
        place += 1


def patch_of(arguments: Arguments) -> str | None:
    """The patch in the arguments; None without one. Codex sends it bare, not as JSON."""
    if not arguments.given:
        return arguments.raw
    listed = arguments.items(("command", "cmd"))
    lines = (each for each in listed if isinstance(each, str) and "\n" in each)
    return arguments.text(_PATCHES) or next(lines, None)


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
    if state == "moved" and path:
        # A name without a folder stays in the folder of the file.
        folder, target = path.rpartition("/")[0], arguments.text(_TARGETS)
        is_beside = target and folder and "/" not in target
        return (FileChange(path, "moved", f"{folder}/{target}" if is_beside else target),)
    if state == "deleted" and path:
        return (FileChange(path, "deleted"),)
    if state == "edited" and not (path and _CREATED.search(result.head[:200])):
        return tuple(_edits(path, arguments))
    content = arguments.text((*_CONTENTS, *_NEW))
    state = "edited" if content and _REWRITTEN.search(result.head[:200]) else "created"
    folders = any(word in name.lower() for word in ("directory", "folder", "mkdir"))
    detail = "folder" if folders else counted(content) if content else ""
    return (FileChange(path, state, detail=detail),) if path else ()


def shown_file(result: Result) -> str:
    """The file that a stateful editor reports as open; "" when it reports none."""
    found = _SHOWN.search(result.head[:_SHOWN_WITHIN]) or _SHOWN.search(result.tail)
    return found[1] if found else ""


def _edits(path: str, arguments: Arguments) -> Iterator[FileChange]:
    """One change per file; an edit without a path of its own belongs to `path`."""
    several = [each for each in arguments.items(_SEVERAL)[:_MOST] if isinstance(each, dict)]
    if arguments.keyed.get("command") == "undo_edit":
        yield FileChange(path, "edited", detail="last edit undone")
    elif diff := path and arguments.text(("diff", "patch")):
        yield change_of_diff(diff, path)
    else:
        found: dict[str, list[tuple[str, str]]] = {}
        for each in map(arguments_from, several) if several else [arguments]:
            found.setdefault(each.path or path, []).append((each.text(_OLD), each.text(_NEW)))
        yield from (_edited(file, sides) for file, sides in found.items() if file)


def _edited(path: str, sides: Sequence[tuple[str, str]], are_blocks: bool = False) -> FileChange:
    """The file after these edits: the detail of the first one, the number of others, and each one's sides."""
    said = (change_detail(_POSITION.sub("", old) if are_blocks else old, new) for old, new in sides)
    details = list(dict.fromkeys(filter(None, said)))
    tail = f"; {len(details) - 1} more" if len(details) > 1 else ""
    first = one_line(details[0], LINE_CHARS - len(tail)) + tail if tail else "".join(details)
    return FileChange(path, "edited", detail=first, edits=tuple(edit(*each) for each in sides))
