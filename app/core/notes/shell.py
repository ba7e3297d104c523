"""What a shell script did, by its commands and its result: changes, actions, the command, or reads.

Knows nothing of tools or of how their arguments are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from app.core.notes.acts import (
    COMMAND_CHARS,
    LINE_CHARS,
    Action,
    Command,
    Effect,
    Failure,
    FileChange,
    Read,
    one_line,
    word_set,
)
from app.core.notes.patches import patched
from app.core.notes.programs import changes_of, folder_after, looked_at, only_looks
from app.core.notes.results import Result
from app.core.notes.script import Simple, simple_commands, without_heredocs

_HEREDOC_MARK = re.compile("\0\\d+\0")
# They exit with 1 to say "no".
_ANSWERING = word_set("grep egrep fgrep rg ag ack diff cmp test [ [[ which type git")

# With their output in a file they do nothing but write it.
_WRITING = word_set("cat echo printf")


def effects_of_script(script: str, result: Result | None) -> tuple[Effect, ...]:
    """What a script did, in order: its changes and actions, then the command; reads where it only looked."""
    plain, texts = without_heredocs(script)
    commands = simple_commands(plain, texts)
    looks = all(only_looks(each) for each in commands)
    reads = tuple(_reads(commands)) if looks else ()
    if result is None:
        return reads
    ok = None if result.running else not _has_failed(commands, result, looks)
    if looks and ok is not False:
        return reads
    done = tuple(dict.fromkeys(_done(commands, result, ok is not False)))
    if _is_patch(commands) and ok is False:
        paths = _patched_paths(commands)
        what = one_line(f"apply_patch {', '.join(paths)}".strip(), LINE_CHARS)
        return (Failure(what, result.error(), paths),)
    if _is_patch(commands) and done:
        return done
    said = "" if ok is None else result.summary() if ok else result.error()
    is_told = ok is True and all(_only_files(each) for each in commands)
    return (*done, Command(line_of(plain), ok, said, is_told))


def _only_files(command: Simple) -> bool:
    """True for one that changes files and nothing else, or that only looks at them."""
    changes = changes_of(command, "")
    is_writer = not command.outputs or command.program in _WRITING
    return only_looks(command) or (
        bool(changes) and is_writer and all(isinstance(change, FileChange) for change in changes)
    )


def line_of(script: str) -> str:
    """The script on one line, as it is shown."""
    return one_line(_HEREDOC_MARK.sub("<<EOF ...", script), COMMAND_CHARS)


def _has_failed(commands: Sequence[Simple], result: Result, looks: bool) -> bool:
    if result.code == 1 and looks and commands and commands[-1].program in _ANSWERING:
        # "Nothing found" and "they differ" are answers.
        return bool(result.head.strip()) and Result(result.head, result.tail, None, None, False).failed(
            quoting=True
        )
    return result.failed(quoting=looks)


def _reads(commands: Sequence[Simple]) -> Iterator[Read]:
    seen: dict[str, None] = {}
    folder = ""
    for each in commands:
        folder = folder_after(each, folder)
        for what in looked_at(each, folder):
            seen[what] = None
    for what in seen:
        yield Read(what)


def _done(commands: Sequence[Simple], result: Result, ok: bool) -> Iterator[FileChange | Action]:
    """What surely happened. Of a script that failed: file commands up to the first that may have stopped it.

    Programs name themselves when they fail ("rm: cannot remove"); after one that says nothing, what is
    joined by && may not have run. What stands after || runs only when something failed, which is not known.
    """
    folder, runs = "", True
    for each in commands:
        folder = folder_after(each, folder)
        runs = each.joined_by != "||" and (runs or each.joined_by in (";", "\n", "&"))
        if not runs:
            continue
        changes = changes_of(each, folder)
        if ok:
            yield from changes
            continue
        blamed = f"{each.program}: "
        runs = blamed not in result.head and blamed not in result.tail
        if runs:
            yield from (change for change in changes if _evident(change, result))
            runs = bool(changes) or only_looks(each)


def _evident(change: FileChange | Action, result: Result) -> bool:
    """Whether a change is known though the script failed: git repeats the subject of a commit."""
    return isinstance(change, FileChange) or (
        bool(change.arguments) and f"] {change.arguments}" in result.head
    )


def _is_patch(commands: Sequence[Simple]) -> bool:
    runs = [each for each in commands if each.program != "cd"]
    return bool(runs) and all(each.program in ("apply_patch", "applypatch") for each in runs)


def _patched_paths(commands: Sequence[Simple]) -> tuple[str, ...]:
    return tuple(
        change.path for each in commands for change in patched(each.text or " ".join(each.words[1:]))
    )
