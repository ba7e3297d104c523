"""What a tool call was given: its arguments by their usual names, free of secrets and data.

Knows nothing of what the calls mean for a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from app.core.text.fence import sendable
from app.core.text.secrets import without_secrets
from app.core.text.wording import Call, without_data

# D03; the names after "target" are other agents'.
PATH_KEYS = (
    "file",
    "path",
    "filePath",
    "file_path",
    "target_file",
    "source_file",
    "target",
    "filename",
    "file_name",
    "absolute_path",
    "relative_path",
    "relative_workspace_path",
    "notebook_path",
    "TargetFile",
    "AbsolutePath",
)
PATHS_KEYS = ("paths", "files", "file_paths", "filePaths")
COMMAND_KEYS = ("command", "cmd", "script", "code", "CommandLine", "input")
# How a list of arguments runs a script: the script alone says what is done.
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "powershell", "pwsh"})


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call; `given` is empty when the model wrote no JSON object."""

    given: Mapping[str, Any]
    raw: str

    def text(self, *keys: str) -> str:
        """The first of these that holds text, as it was given, secrets apart; "" for none."""
        found = (self.given.get(key) for key in keys)
        return next((clean(value) for value in found if isinstance(value, str) and value), "")

    def number(self, *keys: str) -> int | None:
        """The first of these that holds a whole number."""
        found = (self.given.get(key) for key in keys)
        return next((v for v in found if isinstance(v, int) and not isinstance(v, bool)), None)

    def items(self, *keys: str) -> list[Any] | None:
        """The first of these that holds a list."""
        found = (self.given.get(key) for key in keys)
        return next((value for value in found if isinstance(value, list)), None)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files the call names, in order, each once; never over more than one line."""
        one = self.text(*PATH_KEYS)
        many = [*_texts(self.items(*PATHS_KEYS) or ())]
        return tuple(dict.fromkeys(p for p in ([one] if one else many) if p.strip() and "\n" not in p))

    @property
    def command(self) -> str:
        """The command line of a shell call; the script alone of `["bash", "-lc", script]`."""
        words = self.items(*COMMAND_KEYS)
        if words is None:
            return self.text(*COMMAND_KEYS)
        texts = [word for word in words if isinstance(word, str)]
        if len(texts) > 2 and texts[0] in _SHELLS and texts[1].startswith("-"):
            return clean(texts[2])
        return clean(" ".join(texts))


def arguments_of(call: Call) -> Arguments:
    """The arguments of `call`, whatever the model wrote."""
    try:
        found = msgspec.json.decode(call.arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = None
    return Arguments(found if isinstance(found, dict) else {}, call.arguments)


def clean(text: str) -> str:
    """`text` as it may stand in a state: no secrets, no data that is not text, sendable as UTF-8."""
    return sendable(without_secrets(without_data(text)))


def label_of(call: Call, arguments: Arguments) -> str:
    """The call as one would write it, on one line, uncut: `name(key=value, key=value)`."""
    if not arguments.given:
        said = " ".join(arguments.raw.split())
        return clean(f"{call.name}({'' if said == '{}' else said})")
    parts = ", ".join(f"{key}={_shown(value)}" for key, value in arguments.given.items())
    return clean(f"{call.name}({parts})")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.split())


def _texts(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield clean(value)
        elif isinstance(value, Mapping):
            path = next((value[key] for key in PATH_KEYS if isinstance(value.get(key), str)), "")
            if path:
                yield clean(path)
