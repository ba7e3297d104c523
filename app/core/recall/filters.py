"""What a search may be kept to: who said it, or what it holds.

Pure, by the stored bytes of one message alone. Knows nothing of words or ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from app.core.view.masking import text_of
from app.core.wire.json_text import decoded
from app.core.wire.responses.items import as_chat
from app.errors import InvalidJson

Speaker = Literal["user", "assistant", "tool"]
Holding = Literal["command", "file", "error", "summary"]
ROLES: tuple[Speaker, ...] = get_args(Speaker)
KINDS: tuple[Holding, ...] = get_args(Holding)

# Members of a call's arguments whose value is run.
_COMMANDS = frozenset({"command", "commands", "cmd", "script"})
# A name without spaces that has a folder, or an ending of letters and digits; and the headers of patches.
_PATH = re.compile(r"(?:[\w.@~+-]*/)+[\w.@+-]+|[\w@+-]+\.[A-Za-z]\w{0,7}")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:---|\+\+\+) [ab]/)\S", re.MULTILINE)
_ERROR = re.compile(
    r"\b(?:\w*(?:error|exception)|traceback|fail(?:ed|ure)|fatal|panic|denied|not found)\b"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?\W{1,3}[1-9]\d*\b",
    re.IGNORECASE,
)
# "0 errors", "no failures": what says that there are none.
_NONE = re.compile(
    r"\b(?:0|no|without)\s+(?:\w+\s+)?(?:errors?|exceptions?|failed|failures?)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Filters:
    """None asks for nothing in particular.

    `command`: a call whose arguments have a command to run. `file`: a call whose arguments name a path, or
    are a patch. `error`: a tool's result with a line that speaks of an error or a failure. `summary`: what
    stands for folded messages. Where `kind` is not "summary" only messages are meant.
    """

    role: Speaker | None = None
    kind: Holding | None = None

    @property
    def reads_bodies(self) -> bool:
        """True when a message must be read to tell whether it is meant."""
        return self.kind not in (None, "summary")

    def may_be(self, kind: str, role: str) -> bool:
        """Whether a message (or a summary, whose role is "") can be meant, its body unread."""
        if self.kind == "summary":
            return kind == "summary"
        if kind == "summary":
            return self == Filters()
        tools = ("tool", "function")
        if self.kind == "error" and role not in tools:
            return False
        return self.role is None or role == self.role or (self.role == "tool" and role in tools)

    def holds(self, kind: str, role: str, body: bytes) -> bool:
        """Whether it is meant; `body` is a message's exact bytes."""
        if not self.may_be(kind, role):
            return False
        if not self.reads_bodies:
            return True
        fields = as_chat(decoded(body))
        if not isinstance(fields, Mapping):
            return False
        if self.kind == "error":
            return has_error(text_of(fields))
        tells = _has_command if self.kind == "command" else _has_path
        return any(tells(name, value) for name, value in _arguments(fields))


ANY = Filters()


def has_error(text: str) -> bool:
    """Whether a line of what a tool said speaks of an error or a failure that is there."""
    return any(_ERROR.search(_NONE.sub("", line)) for line in text.splitlines())


def _has_command(name: str, value: str) -> bool:
    return name in _COMMANDS and bool(value.strip())


def _has_path(name: str, value: str) -> bool:
    if name in _COMMANDS:
        return any(_PATH.fullmatch(word.strip("\"'`;,")) and "." in word for word in value.split())
    return bool(_PATH.fullmatch(value.strip()) or _PATCHED.search(value))


def _arguments(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The members of all calls' arguments that hold text; "" names what is no JSON object."""
    told = fields.get("tool_calls")
    for call in told if isinstance(told, list) else []:
        called = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
        if isinstance(called, Mapping):
            yield from _members(called.get("arguments", called.get("input", "")))


def _members(said: Any) -> Iterator[tuple[str, str]]:
    try:
        read = decoded(said.encode("utf-8", "surrogatepass")) if isinstance(said, str) else said
    except InvalidJson:
        read = None
    if not isinstance(read, Mapping):
        yield "", said if isinstance(said, str) else ""
        return
    for name, value in read.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, list):
            yield name, " ".join(each for each in value if isinstance(each, str))
