"""Effects of a shell script, from its commands and its result: changes, actions, the command, reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from palimpsest.core.notes.edits import changes_of_patch, shown_file
from palimpsest.core.notes.note import (
    COMMAND_CHARS,
    LINE_CHARS,
    Action,
    Effect,
    FileChange,
    FileRead,
    one_line,
    word_set,
)
from palimpsest.core.notes.programs import changes_of, folder_after, only_reads, reads_of
from palimpsest.core.notes.results import Result
from palimpsest.core.notes.script import SimpleCommand, simple_commands, without_heredocs

_HEREDOC_MARK = re.compile("\0\\d+\0")
# SWE-agent's editor: `create F`, `edit N:M`, the new lines, `end_of_edit`.
_EDITOR = re.compile(
    r"\s*(?:create \S+\s*\Z|edit (?P<lines>\d+:\d+)[ \t]*\n(?P<text>.*?)\n?end_of_edit\b)", re.DOTALL
)
# They exit with 1 to answer "no".
_ANSWERING = word_set("grep egrep fgrep rg ag ack diff cmp test [ [[ which type git")

# With their output redirected they do nothing but write that file.
_WRITING = word_set("cat echo printf")


def effects_of_script(script: str, result: Result | None) -> tuple[Effect, ...]:
    """The effects in order: changes and actions, then the command. A script that only reads has its reads."""
    if result and (found := _by_editor(script, result)):
        return found
    plain, texts = without_heredocs(script)
    commands = simple_commands(plain, texts)
    looks = all(only_reads(each) for each in commands)
    read: dict[str, None] = {}
    folder = ""
    for each in commands if looks else ():
        folder = folder_after(each, folder)
        read |= dict.fromkeys(reads_of(each, folder))
    said = result.short() if result and len(read) == 1 else ()
    reads = tuple(FileRead(each, said) for each in read)
    if result is None:
        return reads
    ok = None if result.running else not _has_failed(commands, result, looks)
    if looks and ok is not False:
        return reads
    done = tuple(dict.fromkeys(_certain_effects(commands, result, ok is not False)))
    runs = [each for each in commands if each.program != "cd"]
    if runs and all(each.program in ("apply_patch", "applypatch") for each in runs):
        if ok is False:
            patches = [each.text or " ".join(each.words[1:]) for each in commands]
            paths = [change.path for patch in patches for change in changes_of_patch(patch)]
            return (result.failure(f"apply_patch {', '.join(paths)}", *paths),)
        if done:
            return done
    only_files = ok is True and all(map(_only_files, commands))
    return (*done, result.command(line_of(plain), ok, only_files))


def _by_editor(script: str, result: Result) -> tuple[Effect, ...]:
    """The change by an editor that is called through a shell; what it puts in is no shell.

    The file is the one that the result shows as open.
    """
    call = _EDITOR.match(script)
    if call is None or (not (path := shown_file(result)) and not result.not_applied()):
        return ()
    if result.not_applied():
        return (
            result.failure(f"{one_line(call[0], LINE_CHARS)} {path}".strip(), path or call["lines"] or ""),
        )
    if call["lines"] is None:
        return (FileChange(path, "created"),)
    text = one_line(" / ".join(filter(None, map(str.strip, call["text"].split("\n")))), LINE_CHARS - 30)
    return (FileChange(path, "edited", detail=f'lines {call["lines"]} now "{text}"'),)


def _only_files(command: SimpleCommand) -> bool:
    """True for a command that only reads, or that changes files and nothing else."""
    changes = changes_of(command, "")
    is_writer = not command.outputs or command.program in _WRITING
    return only_reads(command) or (
        bool(changes) and is_writer and all(isinstance(change, FileChange) for change in changes)
    )


def line_of(script: str) -> str:
    """The script on one line, heredocs left out, in at most 200 characters."""
    return one_line(_HEREDOC_MARK.sub("<<EOF ...", script), COMMAND_CHARS)


def _has_failed(commands: Sequence[SimpleCommand], result: Result, looks: bool) -> bool:
    if result.code == 1 and looks and commands and commands[-1].program in _ANSWERING:
        # "Nothing found" and "they differ" are answers, not failures.
        return bool(result.head.strip()) and Result(result.head, result.tail, None, None, False).failed(
            quoting=True
        )
    return result.failed(quoting=looks)


def _certain_effects(
    commands: Sequence[SimpleCommand], result: Result, ok: bool
) -> Iterator[FileChange | Action]:
    """The effects that surely took place. A failed script counts up to the command that may have stopped it.

    Programs name themselves when they fail ("rm: cannot remove"). After a program that reports nothing, a
    command joined by && may not have run. Commands after || are left out: nobody knows whether they ran.
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
            yield from (change for change in changes if isinstance(change, FileChange))
            runs = bool(changes) or only_reads(each)
