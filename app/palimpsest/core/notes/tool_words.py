"""The meaning of a tool's name and of its arguments' names, in any spelling."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from palimpsest.core.notes.note import FileState, is_path, ranked_words, word_set

_PARTS = re.compile(r"__|[.:/]")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# The first word of a name that is in one of these three tables says what the tool does; where none is, its
# result decides.
_READING = word_set(
    "get list search find read view show check look lookup fetch query describe count status inspect"
    " examine browse retrieve load grep glob explore display print peek preview verify validate test"
    " compare locate tail head open scan analyze analyse review monitor watch track navigate visit goto"
    " scroll screenshot snapshot crawl scrape extract resolve lint diagnose estimate summarize ls cat"
    " pwd has is can what which who whoami ping detail details info information history logs log schema"
    " help version results output summary stats metrics translate convert parse detect classify predict"
    " measure lsp hover definition references symbols diagnostics usages availability weather price"
    " prices suggest recommend recall remind websearch webfetch url page"
)
# They read nothing and change nothing.
_SILENT = word_set(
    "ask completion mode think calculate calculator calc reflect reason thought sleep wait noop finish"
    " complete done plan compute math respond reply answer ultrathink sequentialthinking time now"
)
_ACTING = word_set(
    "download add append apply approve archive assign attach authorize ban block book buy cancel change"
    " charge clear close commit configure confirm connect copy create delete deny deploy deposit disable"
    " disconnect dismiss dispatch drop edit email enable enroll exchange execute expire export file fill"
    " generate grant import increment insert install invite issue join kill launch leave link lock login"
    " logout make mark merge modify move mute notify order pause patch pay place post press process promote"
    " provision publish purchase push put queue rebook record refund register reject release remove rename"
    " renew reopen replace request reschedule reserve reset restart restore resume return revert revoke"
    " rotate run save schedule select send set share ship sign start stop store submit subscribe swap sync"
    " tag terminate toggle transfer trigger type click unassign unblock uninstall unlink unlock unsubscribe"
    " update upgrade upload upsert use void withdraw write escalate hand handoff redeem adjust correct amend"
    " extend suspend activate deactivate downgrade claim report enter delegate rollback migrate seed"
)
# Phrases that are actions although their verb alone is not: to check in is not to check.
_PHRASES = re.compile(
    r"\b(?:check (?:in|out)|sign (?:in|out|up)|log (?:in|out|call|event|entry)|look after|open (?!file)\w+)\b"
)
# Verbs of editing, and the words beside them in the names of tools that edit files.
_EDITING: Mapping[str, FileState] = {
    **dict.fromkeys(
        word_set("edit replace update modify insert append str multi change apply undo"), "edited"
    ),
    **dict.fromkeys(word_set("write overwrite create new save make mkdir"), "created"),
    **dict.fromkeys(word_set("delete remove rm unlink"), "deleted"),
    **dict.fromkeys(word_set("rename move mv"), "moved"),
}
_FILE_WORDS = word_set(
    "file files notebook text string str diff to in into based tool editor line lines block cell code"
    " at existing content contents path directory folder dir document source before after symbol body"
    " regex chunk search and range by smart fast builtin single disk template multi"
)
_SHELL_WORDS = word_set("bash shell sh zsh terminal powershell pwsh console cmd")
_RUN_WORDS = word_set("run exec execute start launch send")
_RUN_OBJECTS = word_set("command commands cmd script shell bash terminal code python ipython cell")
_SHOWING = word_set("read view open cat show get")
_SHOWN_WORDS = word_set(
    "file files image pdf content contents text many in editor str replace based edit tool code notebook"
)
_SEARCHING = word_set("grep glob search find web codebase ripgrep rg websearch google")
# Names, without separators, of tools that keep a task list; any name with "todo" in it is another.
_KEEPERS = word_set(
    "updateplan tasktracker plan settasks writetasks updatetasklist settasklist tasklist updatetasks"
    " taskwrite taskcreate taskupdate setplan writeplan makeplan planwrite checklist updatechecklist"
)

Verb = Literal["action", "read", "silent", ""]


@dataclass(frozen=True, slots=True)
class Tool:
    """What a tool does by its name; the arguments of a call must agree.

    `words`: of the name, in lower case. `verb`: "silent" when it reads and changes nothing, "" when no word
    is a known verb. `edits`: what it does to the file it is given, None for other tools.
    """

    words: tuple[str, ...]
    verb: Verb
    edits: FileState | None
    patches: bool
    keeps_tasks: bool
    runs_scripts: bool
    shows_files: bool
    searches: bool

    @property
    def runs_commands(self) -> bool:
        """True for a tool that runs its `command` argument when it is given no file."""
        return "command" in self.words

    @property
    def is_editor(self) -> bool:
        """True for a tool whose `command` argument says what it does to a file."""
        return "editor" in self.words or "edit" in self.words


# A client has some dozens of tools.
@lru_cache(maxsize=512)
def tool_named(name: str) -> Tool:
    """The tool of that name; only the last part counts where a server's name precedes it."""
    words = words_of(name)
    known, first, plain = set(words), words[0] if words else "", "".join(words)
    verb: Verb = "action" if _PHRASES.search(" ".join(words)) else ""
    for word in words if not verb else ():
        verb = "action" if word in _ACTING else "read" if word in _READING else ""
        verb = verb or ("silent" if word in _SILENT else "")
        if verb:
            break
    # The first verb of editing decides, provided that all other words are about files.
    edit = next((word for word in words if word in _EDITING), None)
    edits = _EDITING[edit] if edit and known <= _FILE_WORDS | _EDITING.keys() else None
    return Tool(
        words,
        verb,
        edits="created" if edits and known & {"write", "overwrite"} else edits,
        patches=bool(known & {"patch", "diff"}),
        keeps_tasks="todo" in plain or plain in _KEEPERS,
        runs_scripts=bool(_SHELL_WORDS & {*words[:1], *words[-1:]})
        or plain in ("exec", "localshellcall")
        or bool(known & _RUN_WORDS and known & _RUN_OBJECTS),
        shows_files=first in _SHOWING and known - {first} <= _SHOWN_WORDS,
        searches=first in _SEARCHING and edits is None,
    )


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case."""
    last = _PARTS.split(name.strip())[-1] or name
    words = tuple(word.lower() for word in _WORD.findall(last))
    return words[1:] if len(words) > 1 and words[0] == "mcp" else words


# Characters of arguments up to which they are decoded; longer ones hold data.
_DECODED = 2_000_000
# Names in lower case, without separators.
_PATHS = ranked_words(
    "path filepath file filename targetfile absolutepath relativepath relativeworkspacepath"
    " notebookpath filetoedit oldpath source sourcepath from uri directory dirpath folder sourcefile"
    " target"
)
_SCRIPTS = ranked_words("command cmd script commands commandline code input action bashcommand")
_SHELLS = word_set("bash sh zsh dash powershell pwsh cmd")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call.

    `given`: as the model wrote them, empty for text that is not a JSON object. `keyed`: by names in lower
    case without separators. `raw`: the text. `path`: the file or folder that the call names, "" for none.
    """

    given: Mapping[str, Any]
    keyed: Mapping[str, Any]
    raw: str
    path: str

    def text(self, keys: Sequence[str]) -> str:
        """The first value under `keys` that is a text, "" for none."""
        values = (self.keyed.get(key) for key in keys)
        return next((value for value in values if value and isinstance(value, str)), "")

    def items(self, keys: Sequence[str]) -> list[Any]:
        """The first value under `keys` that is a list; an object counts as a list of one."""
        values = (self.keyed.get(key) for key in keys)
        found: Any = next((value for value in values if isinstance(value, list | dict)), [])
        return found if isinstance(found, list) else [found]

    @property
    def script(self) -> str:
        """The script of the call; a list such as ["bash", "-c", script] gives the script alone."""
        if not self.given:
            return "" if self.raw.lstrip()[:1] == "{" else self.raw
        value = next((self.keyed[key] for key in _SCRIPTS if key in self.keyed), "")
        if isinstance(value, dict):
            return arguments_from(value).script
        if isinstance(value, str) and value[:2] == '["':
            value = _decoded(value) or value
        if not isinstance(value, list):
            return value if isinstance(value, str) else ""
        words = [word for word in value if isinstance(word, str)]
        program = words[0].rpartition("/")[2].removesuffix(".exe") if words else ""
        if len(words) > 2 and program in _SHELLS and words[1][:1] in ("-", "/"):
            return words[2]
        if len(words) == 2 and program in ("apply_patch", "applypatch"):
            return f"apply_patch <<'EOF'\n{words[1]}\nEOF\n"
        return shlex.join(words)


def arguments_of(raw: str) -> Arguments:
    """The arguments in the text that a model wrote, valid JSON or not."""
    decoded = _decoded(raw) if len(raw) <= _DECODED else None
    # Some models encode the object twice.
    if isinstance(decoded, str) and decoded[:1] == "{":
        decoded = _decoded(decoded)
    return arguments_from(decoded if isinstance(decoded, dict) else {}, raw)


def arguments_from(given: Mapping[str, Any], raw: str = "") -> Arguments:
    """The arguments of a decoded object."""
    keyed = {key.replace("_", "").replace("-", "").lower(): value for key, value in given.items()}
    named = (value for key in _PATHS if (value := keyed.get(key)) and isinstance(value, str))
    path = next(named, "").removeprefix("file://")
    return Arguments(given, keyed, raw, path if is_path(path) else "")


def _decoded(raw: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
