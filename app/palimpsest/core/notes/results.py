"""The outcome of a tool call, read from the text of its result: failed or not, why, still running, summary.

Only the first and last 1,500 characters of a longer result are read, and 400 of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from palimpsest.core.notes.note import LINE_CHARS, Command, Failure, clipped, one_line, ranked_words, word_set

# Characters of a line that are matched: a longer line is data.
_LINE = 400
# Characters of a result's beginning and end that are read.
_ENDS = 1_500
# Characters at either end in which an exit code, or a note that the command still runs, is searched.
_FRAME = 400
# A longer result is not decoded as JSON.
_JSON = 64_000
# Lines at the end among which a summary is searched, and lines of an output that is told whole.
_LAST, _SHORT_LINES = 5, 3

# How a result begins that is nothing but an error.
_LEADING = re.compile(
    r"(?:[❌✗✘⚠️🛑]+\s*)?(?:"
    r"[\w.]*(?:error|exception|failure)(?:\s?\[[^\]]*\]|\s?\([^)]*\)|\s\w{0,3}\d+)?:\s*(?!\(?(?:none|null"
    r"|0)\b)\S"
    r"|error (?:(?:execut|read|writ|edit|creat|apply|runn|call|fetch|open|pars|load|process|connect|sav"
    r"|send)ing"
    r"|while|in|on|at|from|occurred|code)\b|an? (?:\w+ )?error (?:has )?occurred"
    r"|(?:fatal|panic|denied|refused|rejected|failed|aborted|forbidden|unauthori[sz]ed)\s*[:!(]"
    r"|traceback \(most recent call last\):?\Z|failed (?:to|with|because)\b|(?:permission|access) denied"
    r"|(?:can(?:no|')t|could(?: not|n't)|unable to|not (?:allowed|authori[sz]ed|permitted)) \w"
    r"|no such (?:file|tool|command)|invalid (?:argument|path|input|request|parameter|value|json|patch"
    r"|tool|id)"
    r"|(?:the )?(?:file|path|directory|folder|string|text|pattern|old_?str\w*|search|tool|command|resource)\b"
    r".{0,200}?(?:not found|no match|(?:did|does) not (?:match|exist)|doesn't exist|not been read|not appear)"
    r"|(?:the )?user (?:doesn't want|does not want|denied|rejected|declined|cancel+ed|aborted)"
    r"|(?:the )?(?:tool|request|command|operation|patch|edit|job|task|transaction|payment)"
    r"(?: (?:call|use|execution))? (?:has |was |is )?(?:failed|timed out|rejected|denied|refused|aborted"
    r"|not allowed)"
    r"|apply_patch verification failed|no replacement was performed|multiple occurrences of"
    r"|(?:http(?:/[\d.]+)?|status(?:[ _]code)?:?) [45]\d\d\b|your (?:proposed )?edit (?:has introduced"
    r"|was not)"
    r"|timed out|timeout\b)",
    re.IGNORECASE,
)
# What a shell or a program prints as its only or last line when it fails.
_SHELL = re.compile(
    r"[\w./@+-]{1,40}: (?:.{0,300}: )?(?:(?:command )?not found|no such \w+|permission denied|is a directory"
    r"|not a directory|file exists|directory not empty|operation not permitted|no space left"
    r"|connection (?:refused|reset)|syntax error)"
    r"|[\w.@+-]{1,40}: (?:cannot|can't|could not|fatal|error|unrecogni[sz]ed|invalid|illegal|missing"
    r"|unable)\b"
    r"|e: |segmentation fault|killed\Z|aborted\b|bus error|.{1,80} is not recogni[sz]ed as"
    r"|! \[\w* ?rejected\]|conflict \(|automatic merge failed|curl: \(\d+\)",
    re.IGNORECASE,
)
# The summaries and diagnostics of test runners, compilers and build tools, on any line of what they print.
_SUMMARY = re.compile(
    r"^[ \t]*(?:(?:=+ )?(?:.{0,60}, )?[1-9]\d* (?:failed|errors?)\b.{0,80} in [\d.:]+ ?m?s"
    r"|FAILED \((?:failures|errors)=|(?:FAILED|ERROR) \S+::|Tests?:?\s+[1-9]\d* failed|[1-9]\d* failing$"
    r"|test result: FAILED|--- FAIL: |FAIL(?:\s|$)|FAILURES!|\d+ examples?, [1-9]\d* failures?"
    r"|(?:\[\w+\] )?Tests run: \d+, +Failures: (?:[1-9]|\d+, +Errors: [1-9])|(?:\[\w+\] )?BUILD FAIL(?:ED"
    r"|URE)"
    r"|npm (?:ERR!|error) |fatal: |g?make(?:\[\d+\])?: \*\*\*|error(?:\[E\d+\])?: \S|Found [1-9]\d* errors?\b"
    r"|.{0,20}\d problems? \([1-9]\d* error|.{0,20}\b\d+ passed.{0,40}\b[1-9]\d* failed"
    r"|.{0,20}\b[1-9]\d* (?:tests? )?failed\b.{0,40}\b\d+ passed|Node\.js v\d|panic: "
    r"|thread .{0,60} panicked at "
    r"|[^\s:()]{1,200}(?::\d+(?::\d+)?|\(\d+(?:,\d+)?\)): (?:fatal )?error\b)",
    re.MULTILINE,
)
# Lines that state the reason of a failure: clear ones, and others that mention one.
_CLEAR = re.compile(
    r"(?:Error|Exception|error|ERROR|fatal|FATAL|panic)\b(?:\[\w+\]| \w{0,3}\d+)?: ?\S|\AE {3,}\S"
    r"|! \[\w* ?rejected|panicked at|\A(?:FAILED|FAIL|ERROR)[: ]\S|--- FAIL|npm (?:ERR!|error) (?!code)\S"
    r"|\A(?:✕|✗) |✖ \D"
)
_REASON = re.compile(
    r"fail|error|exception|denied|not found|no such|cannot|can't|could(?: not|n't)|unable to|refused|rejected"
    r"|timed out|invalid|undefined|unexpected|missing|conflict|mismatch|not allowed|not been|does(?:n't"
    r"| not)|did not",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:0|no|zero|without)(?: \w+)? (?:errors?|failures?|failed|exceptions?|warnings?)\b(?: found)?"
    r"|\b(?:errors?|failures?|failed)\b\"?\s*[:=]\s*(?:0\b|none|null|false|\[\]|\(none\))"
    r"|\ATraceback \(most.*",
    re.IGNORECASE,
)
_RAISED = re.compile(r"(?:\w+\.)*[A-Za-z]\w*(?::\s|\Z)")
# Statements at the beginning of a result that an edit was not applied.
_NOT_APPLIED = re.compile(
    r"(?:changes|edits?|patch|diff|hunks?)(?: \S+){0,4} (?:not (?:been |be )?applied|failed to apply"
    r"|does not apply)"
    r"|no replacement was performed|no (?:sufficiently similar )?match(?:es)? (?:was |were )?found"
    r"|no changes? (?:were |was )?made|no file (?:is )?open|introduced new syntax error"
    r"|(?:old_?str\w*|search (?:block|text|string|content)|text|string)\b[^\n]{0,120}"
    r"(?:not found|(?:did|does) not match)",
    re.IGNORECASE,
)
_EXIT = re.compile(
    r"\W*(?:(?:error|(?:the )?(?:command|process|program|script|tool|shell|job|task|tests?))\b.{0,200}?)?"
    r"(?:\bexit(?:ed)?(?: with)?(?:[ _-]?(?:code|status))?|\breturn(?:ed)?[ _-]?code)\b>?"
    r"[\"']?\s{0,2}[:=]?\s{0,2}(-?\d{1,5})\b(?![\w/])(?:</\w+>)?[^\w]{0,6}(?:\([^)]{0,40}\))?\W*\Z",
    re.IGNORECASE,
)
_RUNNING = re.compile(
    r"running with session id|still running|(?:running|started|moved) (?:in|to) (?:the )?background"
    r'|"status": ?"running"',
    re.IGNORECASE,
)
# Lines that clients put around the output of a tool.
_WRAPPER = re.compile(
    r"\(open file: |\(?current directory: |chunk id: |wall time: |process (?:exited|running with|group pgid)"
    r"|original token count|total output lines|directory: |signal: |background pids|command: "
    r"|command executed"
    r"|the tool execution failed with|\[(?:the command|command|current|python interp|execute_command for)"
    r"|your command ran successfully and did|error: \(none\)|exit code|exited with|```|<returncode>|<exit"
    r"|output: \("
    r"|(?:bash-\$|(?:output|stdout|stderr|error|err):|\(?no output\)?)?\Z",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:(?:std)?(?:output|out|err)|observation): (?=\S)", re.IGNORECASE)
_TAG = re.compile(r"</?(?:tool_use_error|error|error_details|stderr|system|output)[^>]{0,80}>\s*")
_SUMS_UP = re.compile(
    r"\b\d+ (?:passed|passing|tests?|examples?|specs?|assertions|failed|skipped|errors?)\b|\Aok\b"
    r"|test result:|build succ|\Asuccess|successfully|all checks passed|no (?:issues|errors|problems) found"
    r"|\bup[- ]to[- ]date\b|\A(?:done|finished|completed|compiled|built)\b|added \d+ packages"
    r"|\A\[[\w./-]+ [0-9a-f]{7,}\]|\d+ files? changed",
    re.IGNORECASE,
)

# Keys of JSON results: of messages, of outputs, of exit codes; and the states of failures.
_MESSAGES = ranked_words(
    "error message error_message errorMessage detail details reason errors stderr msg text content"
)
_PRINTED = ranked_words("stdout output stderr aggregated_output result content")
_CODES = ranked_words("exit_code exitCode returncode return_code exit_status")
_BAD_STATES = word_set(
    "error failed failure rejected denied declined refused invalid aborted timeout unauthorized forbidden"
)
_NOTHING = ("", "none", "null", "false", "0", "ok", "(none)")


@dataclass(frozen=True, slots=True)
class Result:
    """One result as far as it is read.

    `head` and `tail` are the ends of the output; each is all of it where it is short. `code` is the exit
    code. `said` is the JSON object of a result that is one; `is_data` when it does not merely wrap an output.
    """

    head: str
    tail: str
    code: int | None
    said: Mapping[str, Any] | None = None
    is_data: bool = False

    @property
    def text(self) -> str:
        """The part that is read: both ends, or all of a short result."""
        return self.head if self.tail is self.head else f"{self.head}\n{self.tail}"

    @property
    def first_line(self) -> str:
        """The first line of the output, without those that clients wrap it in; "" for none."""
        return next(filter(None, map(_unwrapped, self.head.split("\n"))), "")

    @property
    def running(self) -> bool:
        """True when the result only says that the command still runs."""
        ends = (self.head[:_FRAME], self.tail[-_FRAME:])
        return self.code is None and any(map(_RUNNING.search, ends))

    def failed(self, quoting: bool = False) -> bool:
        """True when the call failed. With `quoting` it shows other texts, so only its frame counts."""
        if self.said is not None:
            has_failed = _stated_failure(self.said, quoting)
            if has_failed is not None or self.is_data:
                return bool(has_failed)
        if self.code:
            return True
        if self.code == 0:
            # `pytest | tail` exits with 0 whatever the tests did.
            return not quoting and bool(_SUMMARY.search(self.tail))
        first = self.first_line[:_LINE]
        if _LEADING.match(first) or _SHELL.match(first):
            return True
        if quoting:
            return False
        last = next(_last_lines(self.tail), "")[:_LINE]
        return bool(_SHELL.match(last) or self._raised() or _SUMMARY.search(self.text))

    def not_applied(self) -> bool:
        """True when it says that an edit was not applied."""
        return self.failed(quoting=True) or bool(_NOT_APPLIED.search(self.head[:_FRAME]))

    def error(self) -> str:
        """The first line that states the error, else the last line, else the exit code."""
        if self.said is not None and (message := _message(self.said)):
            return one_line(message, LINE_CHARS)
        lines = [line for line in map(_unwrapped, self.text.split("\n")) if line]
        stated = [(line, _HARMLESS.sub("", line[:_LINE])) for line in lines]
        found = (line for cause in (_CLEAR, _REASON) for line, left in stated if cause.search(left))
        last = next(_last_lines(self.tail), "")
        said = clipped(self._raised() or next(found, last), LINE_CHARS)
        return said or (f"exit code {self.code}" if self.code else "")

    def _raised(self) -> str:
        """The last line of a Python program that died: a traceback with the exception in it; else ""."""
        last = next(_last_lines(self.tail), "")
        is_raised = "Traceback (most recent call last)" in self.text and _RAISED.match(last[:_LINE])
        return last if is_raised else ""

    def failure(self, what: str, *about: str) -> Failure:
        """The failure of what was tried; see `Failure.about`."""
        return Failure(one_line(what, LINE_CHARS), self.error(), about)

    def command(self, line: str, ok: bool | None) -> Command:
        """The command with what it said: its error, or the line that sums up."""
        said = "" if ok is None else self.summary() if ok else self.error()
        return Command(line, ok, said)

    def summary(self) -> str:
        """The last line that sums up, else an output of at most three lines; else ""."""
        lines = [*_last_lines(self.tail)]
        sums_up = next((line for line in lines if _SUMS_UP.search(line[:_LINE])), "")
        if not sums_up and len(lines) <= _SHORT_LINES and len(self.tail) <= _FRAME:
            return clipped(" / ".join(reversed(lines)), LINE_CHARS)
        return clipped(sums_up, LINE_CHARS)

    def short(self) -> tuple[str, ...]:
        """An output of at most three lines, as one; nothing of a longer one."""
        if len(self.head) > _FRAME:
            return ()
        lines = [*filter(None, map(_unwrapped, self.head.split("\n")))]
        return (" / ".join(lines),) if 0 < len(lines) <= _SHORT_LINES else ()


def result_of(text: str) -> Result:
    """The parsed result: both ends of the output, the exit code, the JSON object."""
    said, is_data, code = None, False, None
    if text[:20].lstrip()[:1] in ("{", "[") and len(text) <= _JSON:
        said = _object(text)
    if said is not None:
        inner = said.get("metadata")
        framed = {**(inner if isinstance(inner, dict) else {}), **said}
        codes = (framed.get(key) for key in (*_CODES, "code"))
        code = next((each for each in codes if isinstance(each, int) and 0 <= each < 256), None)
        parts = [said[key] for key in _PRINTED if isinstance(said.get(key), str)]
        wraps = len(said) <= 2 or any(key in said for key in (*_CODES, *_PRINTED[:4:2], "metadata"))
        is_data = not (parts and wraps)
        text = text if is_data else "\n".join(part.strip("\r\n") for part in parts if part.strip())
    head = text[:_ENDS] if len(text) > 2 * _ENDS else text
    tail = head if head is text else text[-_ENDS:]
    return Result(head, tail, _exit_code(head, tail) if code is None else code, said, is_data)


def _object(text: str) -> Mapping[str, Any] | None:
    """The JSON object in a text; of a list of content parts an object with their texts as its output."""
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not isinstance(decoded, list):
        return decoded if isinstance(decoded, dict) else None
    if not decoded or not all(isinstance(part, dict) for part in decoded):
        return {"": decoded}
    texts = [part["text"] for part in decoded if "type" in part and isinstance(part.get("text"), str)]
    # Other lists of objects are listings: nothing of them is told.
    return {"output": "\n".join(texts)} if len(texts) == len(decoded) else {}


def _exit_code(head: str, tail: str) -> int | None:
    for place in (head[:_FRAME], tail[-_FRAME:]):
        for line in place.split("\n"):
            if ("xit" in line or "ode" in line or "EXIT" in line) and (match := _EXIT.match(line)):
                return int(match[1])
    return None


def _stated_failure(said: Mapping[str, Any], quoting: bool) -> bool | None:
    """True for a failure by the object's own fields, False for a success; None when they do not say."""
    for key in ("success", "ok", "succeeded"):
        if isinstance(said.get(key), bool):
            return not said[key]
    for key in ("isError", "is_error", "error", "errors", "errorMessage", "error_message"):
        value = said.get(key)
        if value and not (isinstance(value, str) and value.strip().lower() in _NOTHING):
            return True
    stated = [said[key] for key in ("status_code", "statusCode", "status") if key in said]
    if any(isinstance(each, int) and each >= 400 for each in stated):
        return True
    state = said.get("status")
    return True if not quoting and isinstance(state, str) and state.strip().lower() in _BAD_STATES else None


def _message(value: Any, depth: int = 0) -> str:
    """The message of an error object."""
    if isinstance(value, str):
        return "" if value.strip().lower() in _NOTHING else value.strip()
    inner = value[:5] if isinstance(value, list) else []
    if isinstance(value, dict):
        inner = [value[key] for key in _MESSAGES if key in value]
    return next((text for each in inner if depth < 4 and (text := _message(each, depth + 1))), "")


def _last_lines(text: str) -> Iterator[str]:
    """The last lines of the output, last first, without "=" rules around them."""
    lines = (_unwrapped(line).strip("= ") for line in reversed(text.rsplit("\n", 2 * _LAST)))
    yield from [line for line in lines if line][:_LAST]


def _unwrapped(line: str) -> str:
    """The stripped line without tags and labels that clients put in; "" for one that is only wrapping."""
    line = line.strip()
    if _WRAPPER.match(line[:60]):
        return ""
    if "<" in line:
        line = _TAG.sub("", line)
        if line[:1] == "<" and line[-1:] == ">" and line.count("<") == 1 and " " not in line:
            return ""
    return _LABEL.sub("", line, count=1)
