"""Filters of a search: by role, or by kind of content. Pure, by the stored bytes of one message alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import InvalidJson

Speaker = Literal["user", "assistant", "tool"]
ContentKind = Literal["command", "file", "error", "summary"]
ROLES: tuple[Speaker, ...] = get_args(Speaker)
KINDS: tuple[ContentKind, ...] = get_args(ContentKind)

# Members of a call's arguments whose value is a command.
_COMMANDS = frozenset({"command", "commands", "cmd", "script"})
# A name without spaces that has a folder or an extension; and the headers of patches.
_PATH = re.compile(r"(?:[\w.@~+-]*/)+[\w.@+-]+|[\w@+-]+\.[A-Za-z]\w{0,7}")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:---|\+\+\+) [ab]/)\S", re.MULTILINE)
_ERROR = re.compile(
    r"\b(?:\w*(?:error|exception)|traceback|fail(?:ed|ure)|fatal|panic|denied|not found)\b"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?\W{1,3}[1-9]\d*\b",
    re.IGNORECASE,
)
# "0 errors", "no failures": statements that there are none.
_NONE = re.compile(
    r"\b(?:0|no|without)\s+(?:\w+\s+)?(?:errors?|exceptions?|failed|failures?)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Filters:
    """None does not filter.

    Kinds: `command`, a call whose arguments hold a command to run. `file`, a call whose arguments name a path
    or are a patch. `error`, a tool's result with a line about an error or a failure. `summary`, a summary of
    folded messages; every other filter excludes summaries.
    """

    role: Speaker | None = None
    kind: ContentKind | None = None

    @property
    def reads_bodies(self) -> bool:
        """True when the filter depends on a message's body."""
        return self.kind not in (None, "summary")

    def may_be(self, kind: str, role: str) -> bool:
        """Whether a message (or a summary, whose role is "") can pass, without reading its body."""
        if self.kind == "summary":
            return kind == "summary"
        if kind == "summary":
            return self == Filters()
        said_by = "tool" if role == "function" else role
        return self.role in (None, said_by) and (said_by == "tool" or self.kind != "error")

    def holds(self, kind: str, role: str, body: bytes) -> bool:
        """Whether it passes; `body` is a message's exact bytes."""
        if not self.may_be(kind, role):
            return False
        if not self.reads_bodies:
            return True
        fields = as_chat(decoded(body))
        if not isinstance(fields, Mapping):
            return False
        if self.kind == "error":
            return has_error(text_of(fields))
        for name, value in _arguments(fields):
            if self.kind == "command":
                found = name in _COMMANDS and bool(value.strip())
            elif name in _COMMANDS:
                words = (word.strip("\"'`;,") for word in value.split())
                found = any(_PATH.fullmatch(word) and "." in word for word in words)
            else:
                found = bool(_PATH.fullmatch(value.strip()) or _PATCHED.search(value))
            if found:
                return True
        return False


ANY = Filters()


def has_error(text: str) -> bool:
    """Whether a line of a tool's result reports an error or a failure; "0 errors" does not."""
    return any(_ERROR.search(_NONE.sub("", line)) for line in text.splitlines())


def _arguments(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The text members of all calls' arguments; arguments that are not a JSON object have the name ""."""
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        called = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
        if isinstance(called, Mapping):
            said = called.get("arguments", called.get("input", ""))
            try:
                read = decoded(said.encode("utf-8", "surrogatepass")) if isinstance(said, str) else said
            except InvalidJson:
                read = None
            members = read if isinstance(read, Mapping) else {"": said}
            for name, value in members.items():
                texts = value if isinstance(value, list) else [value]
                if words := [each for each in texts if isinstance(each, str)]:
                    yield name, " ".join(words)
