"""The bounds of a working state's slots, and which tools count as what.

Plain values, every one a setting. Knows nothing of messages or of what is noted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

ToolKind = Literal["read", "edit", "write", "delete", "shell", "search", "project", "plan", "other"]
FILE_KINDS: frozenset[str] = frozenset({"read", "edit", "write", "delete"})

# From so many populated slots on, a gap-fill is not worth a call (D12).
ENOUGH_SLOTS = 15

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """How much a slot may hold: `max_` numbers count entries, `_chars` characters of one entry.

    Where a slot is full the oldest entry goes, of files the one touched longest ago.
    """

    # D16, D05: the rolling window of tool results.
    max_tool_results: int = 30
    # D04, D07, D08.
    max_failures: int = 25
    max_decisions: int = 25
    max_discoveries: int = 25
    # The specification leaves these open; they keep the state of a long session below a megabyte.
    max_user_requirements: int = 100
    max_plan_steps: int = 50
    max_environment: int = 20
    max_files: int = 100
    max_file_actions: int = 8
    max_assistant_notes: int = 12
    # Calls whose result has not come; an aborted one must not wait for ever.
    max_open_calls: int = 64

    # D06; a requirement shorter than the least is "yes" or "ok".
    task_chars: int = 400
    requirement_chars: int = 300
    least_requirement_chars: int = 5
    plan_step_chars: int = 400
    environment_chars: int = 200
    # D03: each side of an edit, and what a read says of its file.
    edit_chars: int = 300
    read_chars: int = 200
    path_chars: int = 500
    # D04, D05.
    failure_chars: int = 300
    shell_chars: int = 800
    failed_shell_chars: int = 1_500
    search_lines: int = 10
    search_chars: int = 600
    label_chars: int = 200
    # D07, D08: shorter captures say nothing.
    least_capture_chars: int = 10
    decision_chars: int = 120
    discovery_chars: int = 150
    # D09: of one message.
    note_sentences: int = 5
    note_chars: int = 500
    # What models filled in, all rounds together (D11).
    gap_chars: int = 8_000


DEFAULT_LIMITS = SlotLimits()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class ToolNames:
    """Tool names by what the tools do, in lower case without anything but letters and digits.

    The defaults are the names agents in use give their tools. A tool in no class is "other": its
    results are kept like a project tool's.
    """

    read: frozenset[str] = _names(
        """read readfile fileread readfiles readmanyfiles readmultiplefiles readtextfile view viewfile
        openfile catfile getfile getfilecontents getfilecontent notebookread readnotebook"""
    )
    edit: frozenset[str] = _names(
        """edit editfile fileedit multiedit multieditfile strreplace strreplaceeditor replace
        strreplacebasededittool strreplaceinfile replaceinfile replacestringinfile applypatch applydiff
        searchreplace searchandreplace insertcontent inserteditintofile notebookedit editnotebook
        modifyfile updatefile patch patchfile texteditor textedit"""
    )
    write: frozenset[str] = _names(
        """write writefile filewrite writetofile createfile createnewfile createtextfile newfile savefile
        create"""
    )
    delete: frozenset[str] = _names("delete deletefile filedelete removefile unlink rm")
    shell: frozenset[str] = _names(
        """bash shell sh terminal exec execcommand executecommand runcommand runterminalcmd
        runterminalcommand runinterminal runshellcommand runshell runbash bashtool executebash localshell
        containerexec shellcommand powershell cmd"""
    )
    search: frozenset[str] = _names(
        """grep greptool grepsearch ripgrep rg searchfiles searchcode codebasesearch codesearch
        findinfiles searchfilecontent textsearch filesearch glob globtool findfiles"""
    )
    project: frozenset[str] = _names(
        """project ls listdir listdirectory listfiles tree test tests runtests runtest build lint readlints
        typecheck diagnostics getdiagnostics geterrors gitstatus gitdiff gitlog runtask"""
    )
    plan: frozenset[str] = _names(
        """plan updateplan createplan setplan todo todos todowrite todoupdate writetodos updatetodos
        updatetodolist managetodolist settodos taskcreate taskupdate"""
    )

    def kind(self, name: str) -> ToolKind:
        """The class of a tool by its name, whatever its spelling or the server it comes from."""
        plain = plain_name(name)
        kinds: tuple[tuple[ToolKind, frozenset[str]], ...] = (
            ("read", self.read),
            ("edit", self.edit),
            ("write", self.write),
            ("delete", self.delete),
            ("shell", self.shell),
            ("search", self.search),
            ("project", self.project),
            ("plan", self.plan),
        )
        return next((kind for kind, known in kinds if plain in known), "other")


DEFAULT_NAMES = ToolNames()


def plain_name(name: str) -> str:
    """A tool's name as the classes hold it: "mcp__files__read_file" and "files.readFile" are "readfile"."""
    last = name.rpartition("__")[2].rpartition(".")[2]
    return _NOT_IN_NAMES.sub("", last.lower())
