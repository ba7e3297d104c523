"""What the text of a tool's result says of the call: failed or not, why, still running, summed up how.

Looks at the first and last few thousand characters only, whatever the size. Knows nothing of tool names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from app.core.notes.acts import LINE_CHARS, clipped, one_line, word_set
from app.core.notes.failures import (
    begins_badly,
    ends_badly,
    ends_in_traceback,
    reason_in,
    reports_failure,
    says_not_applied,
)

# Characters of a result's beginning and end that are read.
_HEAD, _TAIL = 1_500, 1_500
# Frames with an exit code, and words that the work goes on, stand at the very beginning or end.
_FRAME = 400
# A longer result is not decoded as JSON.
_JSON = 64_000
# Lines at the end among which a summary is looked for.
_LAST = 5

_EXIT = re.compile(
    r"\W*(?:(?:error|(?:the )?(?:command|process|program|script|tool|shell|job|task|tests?))\b.{0,200}?)?"
    r"(?:\bexit(?:ed)?(?: with)?(?:[ _-]?(?:code|status))?|\breturn(?:ed)?[ _-]?code)\b>?"
    r"[\"']?\s{0,2}[:=]?\s{0,2}(-?\d{1,5})\b(?![\w/])[^\w]{0,6}(?:\([^)]{0,40}\))?\W*\Z",
    re.IGNORECASE,
)
_TAGGED_EXIT = re.compile(r"<(?:returncode|exit_?code|exit_status)>\s*(-?\d{1,5})\s*<", re.IGNORECASE)
_RUNNING = (
    "running with session id", "still running", "running in the background", "running in background",
    "started in the background", "started in background", "moved to the background", '"status": "running"',
    '"status":"running"',
)  # fmt: skip
# Lines that a client puts around what the tool printed: how they begin, and those that are nothing else.
_WRAPPERS = (
    "(open file: ", "(current directory: ", "chunk id: ",
    "wall time: ", "process exited", "process running with",
    "original token count", "total output lines", "directory: ",
    "signal: ", "background pids", "process group pgid",
    "command: ", "command executed", "the tool execution failed with",
    "[the command ", "[command ", "[current ",
    "[python interp", "your command ran successfully and did", "error: (none)",
    "exit code", "exited with", "```",
    "<returncode>", "<exit", "output: (", "[execute_command for",
)  # fmt: skip
_WRAPPING = frozenset(
    ("", "bash-$", "output:", "stdout:", "stderr:", "error:", "err:", "(no output)", "no output")
)
_LABEL = re.compile(r"(?:std)?(?:output|out|err): (?=\S)", re.IGNORECASE)
_TAG = re.compile(r"</?(?:tool_use_error|error|error_details|stderr|system|output)[^>]{0,80}>\s*")
# In small letters.
_SUMS_UP = re.compile(
    r"\b\d+ (?:passed|passing|tests?|examples?|specs?|assertions|failed|skipped|errors?)\b|\Aok\b"
    r"|test result:|build succ|\Asuccess|successfully|all checks passed|no (?:issues|errors|problems) found"
    r"|\bup[- ]to[- ]date\b|\A(?:done|finished|completed|compiled|built)\b|added \d+ packages"
    r"|\A\[[\w./-]+ [0-9a-f]{7,}\]|\d+ files? changed"
)

_MESSAGES = (
    "error", "message", "error_message", "errorMessage", "detail", "details", "reason", "errors", "stderr",
    "msg", "text", "content",
)  # fmt: skip
_PRINTED = ("stdout", "output", "stderr", "aggregated_output", "result", "content")
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "code")
_BAD_STATES = word_set(
    "error failed failure rejected denied declined refused invalid aborted timeout unauthorized forbidden"
)
_NOTHING = frozenset(("", "none", "null", "false", "0", "ok", "(none)"))


@dataclass(frozen=True, slots=True)
class Result:
    """One result as far as it is read.

    `head` and `tail` are what was printed; both are the whole where it is short. `code`: the exit code.
    `said`: the JSON object that the result is; `is_data` when that is no frame around something printed.
    """

    head: str
    tail: str
    code: int | None
    said: Mapping[str, Any] | None = None
    is_data: bool = False

    @property
    def running(self) -> bool:
        """True where the result says only that the work goes on."""
        if self.code is not None:
            return False
        frames = f"{self.head[:_FRAME]}\n{self.tail[-_FRAME:]}".lower()
        return ("running" in frames or "background" in frames) and any(said in frames for said in _RUNNING)

    def failed(self, quoting: bool = False) -> bool:
        """True when the call failed. `quoting`: the result shows other texts, so only its frame counts."""
        if self.said is not None:
            told = _told(self.said, quoting)
            if told is not None or self.is_data:
                return bool(told)
        if self.code:
            return True
        if self.code == 0:
            # `pytest | tail` succeeds whatever the tests did.
            return not quoting and reports_failure(self.tail)
        if begins_badly(next(_printed_lines(self.head), "")):
            return True
        if quoting:
            return False
        last = next(_last_lines(self.tail), "")
        return ends_badly(last) or ends_in_traceback(self.text, last) or reports_failure(self.text)

    def not_applied(self) -> bool:
        """True when it says that an edit was not made."""
        return self.failed(quoting=True) or says_not_applied(self.head[:_FRAME])

    def error(self) -> str:
        """The first line that says what went wrong; the last line or exit code when none does."""
        if self.said is not None:
            message = _message(self.said)
            if message:
                return one_line(message, LINE_CHARS)
        last = next(_last_lines(self.tail), "")
        if ends_in_traceback(self.text, last):
            return clipped(last, LINE_CHARS)
        found = reason_in(self.text, _unwrapped) or last
        return clipped(found, LINE_CHARS) or (f"exit code {self.code}" if self.code else "")

    def summary(self) -> str:
        """The last line that sums up; the only line where there is one; else ""."""
        lines = [*_last_lines(self.tail)]
        if len(lines) == 1 and len(self.tail) <= _FRAME:
            return clipped(lines[0], LINE_CHARS)
        return clipped(
            next((line for line in lines if _SUMS_UP.search(line[:_FRAME].lower())), ""), LINE_CHARS
        )

    @property
    def text(self) -> str:
        """What is read of the result: its beginning and its end, or all of it."""
        return self.head if self.tail is self.head else f"{self.head}\n{self.tail}"

    @property
    def first_line(self) -> str:
        """The first line that was printed, "" for none."""
        return next(_printed_lines(self.head), "")


def failed(result: str) -> bool:
    """True when a result says that its call failed: exit codes, errors, tracebacks, failing tests."""
    return looked_at(result).failed()


def error_line(result: str) -> str:
    """The first line of a result that says what went wrong, at most 160 characters; "" when all is well."""
    seen = looked_at(result)
    return seen.error() if seen.failed() else ""


def looked_at(text: str) -> Result:
    """The result as far as it is read: its beginning, its end, its exit code, or its JSON object."""
    said, is_data = None, False
    if text[:1] in ("{", "[", " ", "\n") and text[:20].lstrip()[:1] in ("{", "["):
        said = _object(text)
        printed = _printed(said) if said is not None else None
        text, is_data = (text, said is not None) if printed is None else (printed, False)
    head = text[:_HEAD] if len(text) > _HEAD + _TAIL else text
    tail = head if head is text else text[-_TAIL:]
    code = _code(said) if said is not None else None
    return Result(head, tail, _exit_code(head, tail) if code is None else code, said, is_data)


def _object(text: str) -> Mapping[str, Any] | None:
    """The JSON object that a text is, or for a list of content parts an object with their text as output."""
    if len(text) > _JSON:
        # Of an object too long to decode: whether it begins as an error.
        beginning = text[:200].lstrip(" {\n\t")
        return {"error": beginning[:LINE_CHARS]} if beginning.startswith('"error": "') else None
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if isinstance(decoded, list) and decoded and all(isinstance(part, dict) for part in decoded):
        texts = [part["text"] for part in decoded if "type" in part and isinstance(part.get("text"), str)]
        return {"output": "\n".join(texts)} if len(texts) == len(decoded) else {}
    return decoded if isinstance(decoded, dict) else {} if isinstance(decoded, list) else None


def _printed(said: Mapping[str, Any]) -> str | None:
    """What a command printed, None for an object that is data."""
    framed = any(key in said for key in (*_CODES[:5], "stdout", "stderr", "metadata", "aggregated_output"))
    parts = [said[key] for key in _PRINTED if isinstance(said.get(key), str)]
    if not parts or not (framed or len(said) <= 2):
        return None
    return "\n".join(part.strip("\r\n") for part in parts if part.strip())


def _code(said: Mapping[str, Any]) -> int | None:
    inner = said.get("metadata")
    for place in (said, inner if isinstance(inner, dict) else {}):
        for key in _CODES:
            value = place.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and (key != "code" or 0 <= value < 256):
                return value
    return None


def _exit_code(head: str, tail: str) -> int | None:
    places = (head[:_FRAME], tail[-_FRAME:]) if len(tail) > _FRAME or tail is not head else (head,)
    for place in places:
        lower = place.lower()
        if "exit" not in lower and "return" not in lower:
            continue
        found = _TAGGED_EXIT.search(place)
        if found:
            return int(found.group(1))
        for line in place.split("\n"):
            if "xit" in line or "ode" in line or "EXIT" in line:
                match = _EXIT.match(line)
                if match:
                    return int(match.group(1))
    return None


def _told(said: Mapping[str, Any], quoting: bool) -> bool | None:
    """What an object's own fields say of failure, None when they say nothing."""
    for key in ("success", "ok", "succeeded"):
        if isinstance(said.get(key), bool):
            return not said[key]
    for key in ("isError", "is_error", "error", "errors", "errorMessage", "error_message"):
        value = said.get(key)
        if value and not (isinstance(value, str) and value.strip().lower() in _NOTHING):
            return True
    number = next(
        (said[key] for key in ("status_code", "statusCode", "status") if isinstance(said.get(key), int)), 0
    )
    if number >= 400:
        return True
    state = said.get("status")
    return True if not quoting and isinstance(state, str) and state.strip().lower() in _BAD_STATES else None


def _message(value: Any, depth: int = 0) -> str:
    """The text in which an error object says why."""
    if isinstance(value, str):
        return "" if value.strip().lower() in _NOTHING else value.strip()
    if isinstance(value, list):
        return next((text for each in value[:5] if (text := _message(each, depth + 1))), "")
    if isinstance(value, dict) and depth < 4:
        keys = (key for key in _MESSAGES if key in value)
        return next((text for key in keys if (text := _message(value[key], depth + 1))), "")
    return ""


def _printed_lines(text: str) -> Iterator[str]:
    """What was printed, line by line, without the lines that clients wrap it in."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = _unwrapped(text[start:end])
        start = end + 1
        if line:
            yield line


def _last_lines(text: str) -> Iterator[str]:
    """The last lines that were printed, newest first, rules around them taken off."""
    given = 0
    for line in reversed(text.rsplit("\n", 2 * _LAST)):
        line = _unwrapped(line).strip("= ")
        if line and given < _LAST:
            given += 1
            yield line


def _unwrapped(line: str) -> str:
    line = line.strip()
    lower = line[:60].lower()
    if lower in _WRAPPING or lower.startswith(_WRAPPERS):
        return ""
    if line[0] == "<":
        line = _TAG.sub("", line)
        return (
            "" if line[:1] == "<" and line[-1] == ">" and line.count("<") == 1 and " " not in line else line
        )
    if "<" in line:
        line = _TAG.sub("", line)
    return _LABEL.sub("", line, count=1) if lower.startswith(("output: ", "std", "err")) else line
