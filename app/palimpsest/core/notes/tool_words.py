"""The meaning of a tool's name and of its arguments' names, in any spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from palimpsest.core.notes.note import FileState, is_path, ranked_words, word_set

# Cached names: a client has some dozens of tools.
_KEPT = 512

_PARTS = re.compile(r"__|[.:/]")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_READING = word_set(
    "get list search find read view show check look lookup fetch query describe count status inspect"
    " examine browse retrieve load grep glob explore display print peek preview verify validate test"
    " compare locate tail head open scan analyze analyse review monitor watch track navigate visit goto"
    " scroll screenshot snapshot crawl scrape extract resolve lint diagnose estimate summarize ls cat"
    " pwd has is can what which who whoami ping details detail info information history logs log schema"
    " help version results output summary stats metrics translate convert parse detect classify predict"
    " measure lsp hover definition references symbols diagnostics usages availability weather price"
    " prices suggest recommend recall remind websearch webfetch url page"
)
# Verbs of tools that read nothing and change nothing.
_SILENT = word_set(
    "ask completion mode think calculate calculator calc reflect reason thought sleep wait noop finish"
    " complete done plan compute math respond reply answer ultrathink sequentialthinking time now"
)
_ACTING = word_set(
    "download add append apply approve archive assign attach authorize ban block book buy cancel change"
    " charge clear close commit configure confirm connect copy create delete deny deploy deposit disable"
    " disconnect dismiss dispatch drop edit email enable enroll exchange execute expire export file fill"
    " generate grant import increment decrement insert install invite invoke issue join kill launch"
    " leave link lock log_in login logout make mark merge modify move mute notify order pause patch pay"
    " place post press process promote provision publish purchase push put queue rebook record refund"
    " register reject release remove rename renew reopen replace reply_to request reschedule reserve"
    " reset resolve_issue restart restore resume return revert revoke rotate run save schedule select"
    " send set share ship sign start stop store submit subscribe swap sync tag terminate toggle transfer"
    " trigger type click unassign unblock uninstall unlink unlock unsubscribe update upgrade upload"
    " upsert use void withdraw write transmit escalate hand handoff redeem adjust correct amend extend"
    " suspend activate deactivate downgrade mint claim report enter drag tap fork star comment react"
    " vote spawn delegate refresh rollback migrate seed"
)
_VERBS: Mapping[str, Literal["action", "read", "silent"]] = {
    **dict.fromkeys(_ACTING, "action"),
    **dict.fromkeys(_READING, "read"),
    **dict.fromkeys(_SILENT, "silent"),
}
# Phrases that are actions although their verb alone is not: to check in is not to check.
_PHRASES = re.compile(
    r"\b(?:check (?:in|out)|sign (?:in|out|up)|log (?:in|out|call|event|entry)|look after|open (?!file)\w+)\b"
)
# Verbs of editing, and the words beside them in the names of tools that edit files.
_EDITING: Mapping[str, FileState] = {
    **dict.fromkeys(
        word_set("edit replace update modify insert append str multi change apply undo"), "edited"
    ),
    **dict.fromkeys(word_set("write create new save overwrite make mkdir"), "created"),
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
_CODE = word_set("python ipython jupyter code javascript")
_CHECKING = word_set("test tests pytest unittest build lint linter typecheck formatter check checks suite")
_SHOWING = word_set("read view open cat show get")
_SHOWN_WORDS = word_set(
    "file files image pdf content contents text many in editor str replace based edit tool code notebook"
)
_SEARCHING = word_set("grep glob search find web codebase ripgrep rg websearch google")
_FETCHING = word_set("fetch webfetch browse navigate visit get read open goto url page web")
# Names, without separators, of tools that keep a task list; any name with "todo" in it is another.
_KEEPERS = word_set(
    "updateplan tasktracker plan settasks writetasks updatetasklist settasklist tasklist updatetasks"
    " taskwrite taskcreate taskupdate setplan writeplan makeplan planwrite checklist updatechecklist"
)


@dataclass(frozen=True, slots=True)
class Tool:
    """What a tool does by its name; the arguments of a call must agree.

    `verb`: "action", "read", "silent" (it reads and changes nothing), or "" when no word is a known verb.
    `edits`: what it does to the file it is given, None for other tools.
    """

    words: tuple[str, ...]
    verb: Literal["action", "read", "silent", ""]
    edits: FileState | None
    patches: bool
    keeps_tasks: bool
    runs_scripts: bool
    runs_commands: bool
    runs_code: bool
    sends_input: bool
    checks: bool
    shows_files: bool
    searches: bool
    fetches: bool
    queries: bool

    @property
    def plain(self) -> str:
        """The name in lower case, without separators and without the server's name."""
        return "".join(self.words)

    @property
    def is_editor(self) -> bool:
        """True for a tool whose `command` argument says what it does to a file."""
        return "editor" in self.words or "edit" in self.words


def forget_tools() -> None:
    """Clears the caches of names of tools and of their arguments."""
    tool_named.cache_clear()
    _plain.cache_clear()


@lru_cache(maxsize=_KEPT)
def tool_named(name: str) -> Tool:
    """The tool of that name; only the last part counts where a server's name precedes it."""
    words = words_of(name)
    known = set(words)
    first = words[0] if words else ""
    plain = "".join(words)
    edits = _edits(words)
    named = bool(known & _SHELL_WORDS & {*words[:1], *words[-1:]})
    return Tool(
        words=words,
        verb=_verb(words),
        edits=edits,
        patches=bool(known & {"patch", "diff"}),
        keeps_tasks="todo" in plain or plain in _KEEPERS,
        runs_scripts=named
        or known in ({"exec"}, {"local", "shell", "call"})
        or bool(known & _RUN_WORDS and known & _RUN_OBJECTS),
        runs_commands="command" in known,
        runs_code=words == ("python",) or bool(known & _CODE and known & _RUN_WORDS),
        sends_input=plain in ("writestdin", "sendinput"),
        checks=first in ("run", "execute", "pytest", "build", "lint") and bool(_CHECKING & known),
        shows_files=first in _SHOWING and known - {first} <= _SHOWN_WORDS,
        searches=first in _SEARCHING and edits is None,
        fetches=bool(words) and known <= _FETCHING,
        queries=bool(known & {"sql", "query", "execute"}),
    )


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case."""
    last = _PARTS.split(name.strip())[-1] or name
    words = tuple(word.lower() for word in _WORD.findall(last))
    return words[1:] if len(words) > 1 and words[0] == "mcp" else words


def _verb(words: tuple[str, ...]) -> Literal["action", "read", "silent", ""]:
    if _PHRASES.search(" ".join(words)):
        return "action"
    return next((verb for word in words if (verb := _VERBS.get(word))), "")


def _edits(words: tuple[str, ...]) -> FileState | None:
    """What the first verb of editing says, provided that all other words are about files."""
    verb = next((word for word in words if word in _EDITING), None)
    if verb is None or not all(word in _FILE_WORDS or word in _EDITING for word in words):
        return None
    return "created" if "write" in words or "overwrite" in words else _EDITING[verb]


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
        for key in keys:
            value = self.keyed.get(key)
            if value and isinstance(value, str):
                return value
        return ""

    def items(self, keys: Sequence[str]) -> list[Any]:
        """The first value under `keys` that is a list; an object counts as a list of one."""
        found: Any = next(
            (self.keyed[key] for key in keys if isinstance(self.keyed.get(key), list | dict)), []
        )
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
        if isinstance(value, list):
            return _joined([word for word in value if isinstance(word, str)])
        return value if isinstance(value, str) else ""


def arguments_of(raw: str) -> Arguments:
    """The arguments in the text that a model wrote, valid JSON or not."""
    decoded = _decoded(raw) if len(raw) <= _DECODED else None
    # Some models encode the object twice.
    if isinstance(decoded, str) and decoded[:1] == "{":
        decoded = _decoded(decoded)
    return arguments_from(decoded if isinstance(decoded, dict) else {}, raw)


def arguments_from(given: Mapping[str, Any], raw: str = "") -> Arguments:
    """The arguments of a decoded object."""
    keyed = {_plain(key): value for key, value in given.items()}
    named = next(
        (keyed[key] for key in _PATHS if key in keyed and keyed[key] and isinstance(keyed[key], str)), ""
    )
    path = named.removeprefix("file://")
    return Arguments(given, keyed, raw, path if is_path(path) else "")


def _decoded(raw: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=1_024)
def _plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _joined(words: Sequence[str]) -> str:
    """A list of words as a script: what a shell is given to run, or the words quoted."""
    shell = words[0].rpartition("/")[2].removesuffix(".exe") if words else ""
    if len(words) > 2 and shell in _SHELLS and words[1][:1] in ("-", "/"):
        return words[2]
    if len(words) == 2 and shell in ("apply_patch", "applypatch"):
        return f"apply_patch <<'EOF'\n{words[1]}\nEOF\n"
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if word and not any(mark in word for mark in " \t\n'\"\\;&|<>()$`#"):
        return word
    return "'" + word.replace("'", "'\\''") + "'"
