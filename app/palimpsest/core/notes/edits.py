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
    Failure,
    FileChange,
    FileState,
    counted,
    edit,
    is_path,
    one_line,
)
from palimpsest.core.notes.results import Result
from palimpsest.core.notes.tool_words import Arguments, Tool, arguments_from

# Characters of an edit that are read: a longer one is a generated file.
_READ_CHARS = 400_000
# Limit on the files of one patch, and on the blocks of one text.
_MOST = 200
# Characters of each side of an edit: compared, shown.
_COMPARED, _SIDE = 20_000, 62
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
    blocks = [block[:2] for block in _blocks(diff[:_READ_CHARS])]
    if not blocks:
        found = changes_of_patch(diff) or changes_of_patch(f"--- {path}\n+++ {path}\n{diff}")
        return replace(found[0], path=path, state="edited", to="") if found else FileChange(path, "edited")
    edits = tuple(edit(*block) for block in blocks)
    return FileChange(path, "edited", detail=joined([_block_detail(*block) for block in blocks]), edits=edits)


def joined(details: Sequence[str]) -> str:
    """The first detail and the number of further ones, on one line."""
    distinct = list(dict.fromkeys(detail for detail in details if detail))
    if len(distinct) < 2:
        return distinct[0] if distinct else ""
    more = f"; {len(distinct) - 1} more"
    return one_line(distinct[0], LINE_CHARS - len(more)) + more


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
            state: FileState = "moved" if moved else "edited"
            yield FileChange(path, state, moved.group(1).strip() if moved else "", _hunks(body), _sides(body))


def _diffs(patch: str) -> Iterator[FileChange]:
    heads = list(islice(_DIFFED.finditer(patch), _MOST))
    stops = [*(head.start() for head in heads[1:]), len(patch)][: len(heads)]
    renamed = {m[2].strip(): m[1].strip() for m in islice(_RENAMED.finditer(patch), _MOST)}
    for head, stop in zip(heads, stops, strict=True):
        old, new = _plain(head.group(1), "a/"), _plain(head.group(2), "b/")
        body = patch[head.end() : stop]
        path, state = (old, "deleted") if new == "/dev/null" else (new, "edited")
        if not is_path(path):
            continue
        if old == "/dev/null":
            yield FileChange(path, "created", detail=f"{body.count(chr(10) + '+')} lines")
        elif new in renamed:
            yield FileChange(renamed.pop(new), "moved", new, _hunks(body), _sides(body))
        elif state == "deleted":
            yield FileChange(path, "deleted")
        else:
            yield FileChange(path, "edited", detail=_hunks(body), edits=_sides(body))
    for to, name in renamed.items():
        yield FileChange(name, "moved", to)


def _plain(name: str, prefix: str) -> str:
    return name.strip().strip('"').removeprefix(prefix)


def _hunks(body: str) -> str:
    """The first run of removed and added lines, and the number of changed lines after it."""
    removed: list[str] = []
    added: list[str] = []
    ended, more = False, 0
    for line in body.split("\n"):
        side = removed if line.startswith("-") else added if line.startswith("+") else None
        if side is None or (side is removed and added):
            ended = ended or bool(removed or added)
        if side is not None and line[1:].strip():
            if ended:
                more += 1
            else:
                side.append(line[1:].strip())
    first = _difference(removed, added)
    return one_line(first, LINE_CHARS - 24) + f"; {more} more lines" if more and first else first


def _sides(body: str) -> tuple[tuple[str, str], ...]:
    """All removed lines and all added lines."""
    lines = body.split("\n")
    old, new = ("\n".join(line[1:] for line in lines if line.startswith(mark)) for mark in "-+")
    return (edit(old, new),)


def _difference(before: Sequence[str], after: Sequence[str]) -> str:
    """Two runs of lines as `"first" -> "first"`, with the number of further lines."""
    if not before and not after:
        return ""
    more = max(len(before), len(after)) - 1
    tail = f" and {more} more line{'s' if more > 1 else ''}" if more else ""
    if before and after:
        old, new = _around(before[0], after[0])
        return f'"{old}" -> "{new}"{tail}'
    word, lines = ("removed", before) if before else ("added", after)
    return f'{word} "{one_line(_first_with_text(lines), LINE_CHARS - 40)}"{tail}'


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


def _first_with_text(lines: Sequence[str]) -> str:
    """The first line with a letter or a digit: a bracket alone says nothing."""
    return next((line for line in lines if any(c.isalnum() for c in line)), lines[0])


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


def _block_detail(old: str, new: str) -> str:
    return change_detail(_POSITION.sub("", old), new)


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
            if old.strip():
                yield FileChange(path, "edited", detail=_block_detail(old, new), edits=(edit(old, new),))
            else:
                yield FileChange(path, "created", detail=counted(new))


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

# Editors with several functions name the one to use in `command`.
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
        return (_failure(name, [path] if path else [change.path for change in found], result),)
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
    """The file that a stateful editor reports as open; "" when it reports none."""
    for text in (result.head[:_SHOWN_WITHIN], result.tail):
        found = _SHOWN.search(text) if "[File: " in text else None
        if found:
            return found.group(1)
    return ""


def _failure(name: str, paths: Sequence[str], result: Result) -> Failure:
    what = one_line(f"{name} {', '.join(paths)}".strip(), LINE_CHARS)
    return Failure(what, result.error(), tuple(paths))


def _beside(path: str, target: str) -> str:
    """The new path; a name without a folder stays in the folder of `path`."""
    folder = path.rpartition("/")[0]
    return f"{folder}/{target}" if target and folder and "/" not in target else target


def _edits(path: str, arguments: Arguments) -> Iterator[FileChange]:
    if arguments.keyed.get("command") == "undo_edit":
        yield FileChange(path, "edited", detail="last edit undone")
        return
    diff = arguments.text(("diff", "patch"))
    if diff:
        yield change_of_diff(diff, path)
        return
    several = _inner(arguments)
    if several:
        yield from _several(path, several)
    else:
        yield _edited(path, [arguments])


def _inner(arguments: Arguments) -> list[dict[str, Any]]:
    return [each for each in arguments.items(_SEVERAL)[:_MOST_EDITS] if isinstance(each, dict)]


def _several(path: str, edits: Sequence[Mapping[str, Any]]) -> Iterator[FileChange]:
    """One change per file; an edit without a path of its own belongs to `path`."""
    found: dict[str, list[Arguments]] = {}
    for each in map(arguments_from, edits):
        if each.path or path:
            found.setdefault(each.path or path, []).append(each)
    for file, inner in found.items():
        yield _edited(file, inner)


def _edited(path: str, edits: Sequence[Arguments]) -> FileChange:
    sides = [(each.text(_OLD), each.text(_NEW)) for each in edits]
    detail = joined([change_detail(*each) for each in sides])
    return FileChange(path, "edited", detail=detail, edits=tuple(edit(*each) for each in sides))
