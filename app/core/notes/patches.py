"""File changes in the formats in which models write edits: patches, diffs, SEARCH/REPLACE, old and new text.

Works on the texts of edits. Knows nothing of tools, shells or results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from app.core.notes.acts import LINE_CHARS, FileChange, FileState, counted, edit, is_path, one_line

# Characters of an edit that are read: a longer one is a generated file.
_READ_CHARS = 400_000
# Files of one patch, and blocks of one text, that are looked at.
_MOST = 200
# Characters of each side of an edit that are compared, and shown.
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
# Roo puts the line a block begins at before its text.
_POSITION = re.compile(r"\A(?::(?:start_line|end_line):[^\n]*\n|-{5,}\r?\n)+")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_WHOLE = re.compile(
    r"^([^\s`*#:|<>\"'()]{1,200}\.[A-Za-z]\w{0,9})[ \t]*\r?\n(```+)[\w+-]*\r?\n", re.MULTILINE
)


def change_detail(old: str, new: str) -> str:
    """What an edit put in place of what, by the first lines that differ; "" when none does."""
    before, after = _lines(old), _lines(new)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    before, after = before[start:], after[start:]
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    return _difference(before, after)


def patched(patch: str) -> tuple[FileChange, ...]:
    """The changes of a patch: Codex's own format, a unified diff, or git's; none for other text."""
    patch = patch[:_READ_CHARS]
    if "*** " in patch and _SECTION.search(patch):
        return tuple(_sections(patch))
    if "--- " in patch or "rename from " in patch:
        return tuple(_diffs(patch))
    return ()


def replaced(diff: str, path: str) -> FileChange:
    """The change that SEARCH/REPLACE blocks make to `path`; anything else is an edit without detail."""
    blocks = [block[:2] for block in _blocks(diff[:_READ_CHARS])]
    if not blocks:
        found = patched(diff) or patched(f"--- {path}\n+++ {path}\n{diff}")
        return replace(found[0], path=path, state="edited", to="") if found else FileChange(path, "edited")
    edits = tuple(edit(*block) for block in blocks)
    return FileChange(path, "edited", detail=joined([_block_detail(*block) for block in blocks]), edits=edits)


def joined(details: Sequence[str]) -> str:
    """The first detail and how many more there are, on one line."""
    told = list(dict.fromkeys(detail for detail in details if detail))
    if len(told) < 2:
        return told[0] if told else ""
    more = f"; {len(told) - 1} more"
    return one_line(told[0], LINE_CHARS - len(more)) + more


def written(text: str) -> tuple[FileChange, ...]:
    """The edits in an assistant's text: SEARCH/REPLACE blocks, fenced diffs, files written whole."""
    text = text[:_READ_CHARS]
    if "REPLACE" in text and "SEARCH" in text:
        found = tuple(_named_blocks(text))
        if found:
            return found
    if "*** Begin Patch" in text or ("```diff" in text and "\n+++ " in text):
        return patched(text)
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
    """The first run of removed and added lines, and how many more lines of either there are."""
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
    told = _difference(removed, added)
    return one_line(told, LINE_CHARS - 24) + f"; {more} more lines" if more and told else told


def _sides(body: str) -> tuple[tuple[str, str], ...]:
    """All removed lines, and all added ones."""
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
    return f'{word} "{one_line(_worded(lines), LINE_CHARS - 40)}"{tail}'


def _around(old: str, new: str) -> tuple[str, str]:
    """Both lines cut to their room around the first character in which they differ."""
    if max(len(old), len(new)) <= _SIDE:
        return old, new
    same = next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    start = max(0, same - _LEAD) if same > _SIDE - _LEAD else 0
    lead = "..." if start else ""
    return (lead + one_line(old[start:], _SIDE - 3), lead + one_line(new[start:], _SIDE - 3))


def _worded(lines: Sequence[str]) -> str:
    """The first line with a letter or digit in it: a bracket alone says nothing."""
    return next((line for line in lines if any(c.isalnum() for c in line)), lines[0])


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text[:_COMPARED].split("\n") if line.strip()]


def _blocks(text: str) -> Iterator[tuple[str, str, int, int]]:
    """(old, new, start, end) of each SEARCH/REPLACE block that is whole."""
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
    """SEARCH/REPLACE blocks with the file named on the line before; without one it is the last file's."""
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
    """Files written whole: the bare name alone on a line, a fenced block right below it."""
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
