"""The arguments of one call by their usual names, in whatever spelling: `filePath`, `file_path`, `FilePath`.

Knows nothing of what calls do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from app.core.notes.acts import is_path

# Characters of arguments that are decoded; longer ones are data that a tool was handed.
_DECODED = 2_000_000

# Names in small letters without separators.
_PATHS = (
    "path", "filepath", "file", "filename",
    "targetfile", "absolutepath", "relativepath", "relativeworkspacepath",
    "notebookpath", "filetoedit", "oldpath", "source", "sourcepath", "from",
    "uri", "directory", "dirpath", "folder", "sourcefile", "target",
)  # fmt: skip
_SCRIPTS = ("command", "cmd", "script", "commands", "commandline", "code", "input", "action", "bashcommand")
_SHELLS = frozenset(("bash", "sh", "zsh", "dash", "powershell", "pwsh", "cmd"))


@dataclass(frozen=True, slots=True)
class Arguments:
    """`given`: as the model wrote them, empty when that is no JSON object; `keyed`: by plain names.

    `raw`: the text that they were. `path`: the file or folder that the call names, "" for none.
    """

    given: Mapping[str, Any]
    keyed: Mapping[str, Any]
    raw: str
    path: str

    def text(self, keys: Sequence[str]) -> str:
        """The first of these that holds text, "" for none."""
        for key in keys:
            value = self.keyed.get(key)
            if value and isinstance(value, str):
                return value
        return ""

    def items(self, keys: Sequence[str]) -> list[Any]:
        """The first of these that holds a list, or an object as a list of one."""
        found: Any = next(
            (self.keyed[key] for key in keys if isinstance(self.keyed.get(key), list | dict)), []
        )
        return found if isinstance(found, list) else [found]

    @property
    def script(self) -> str:
        """The shell script of the call: of a list of words the script alone, where a shell runs one."""
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
    """The arguments that a model wrote, whatever they are."""
    decoded = _decoded(raw) if len(raw) <= _DECODED else None
    # Some models write the object as text once more.
    if isinstance(decoded, str) and decoded[:1] == "{":
        decoded = _decoded(decoded)
    return arguments_from(decoded if isinstance(decoded, dict) else {}, raw)


def arguments_from(given: Mapping[str, Any], raw: str = "") -> Arguments:
    """Arguments that are decoded already."""
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
    """A list of words as a script: what a shell is told to run, or the words quoted."""
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
