"""The outcome of a tool call, read from the text of its result: failed or not, why, still running, summary.

Lines are preselected by plain words before a pattern is tried: nearly every result is a success, and a
search for words is ten times faster. Only the first and last 1,500 characters of a longer result are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from palimpsest.core.notes.note import LINE_CHARS, Command, Failure, clipped, entries, one_line, word_set

# Characters of a line that are matched; a longer line is data.
_LINE = 400
# Limit on the lines with the same word.
_SAME = 12

# How a result begins that is nothing but an error.
_LEADING = re.compile(
    r"(?:[❌✗✘⚠️🛑]+\s*)?(?:"
    r"[\w.]*(?:error|exception|failure)(?:\s?\[[^\]]*\]|\s?\([^)]*\)|\s\w{0,3}\d+)?:\s*(?!\(?(?:none|null|0)\b)\S"
    r"|error (?:(?:execut|read|writ|edit|creat|apply|runn|call|invok|fetch|open|pars|load"
    r"|process|search|delet"
    r"|mov|connect|perform|updat|list|sav|send)ing|while|in|on|at|from|during|occurred|code)\b"
    r"|an? (?:\w+ )?error (?:has )?occurred"
    r"|(?:fatal|panic|denied|refused|rejected|failed|aborted|forbidden|unauthori[sz]ed)\s*[:!(]"
    r"|traceback \(most recent call last\):?\Z|failed (?:to|with|because)\b|(?-i:E[A-Z]{4,}): "
    r"|(?:\w+ ){0,3}(?:permission|access) denied|no such (?:file|tool|command)"
    r"|(?:can(?:no|')t|cannot|could not|couldn't|unable to|not (?:allowed|authori[sz]ed|permitted)) \w"
    r"|invalid (?:argument|path|input|request|parameter|value|json|patch|tool|id)"
    r"|(?:the )?(?:file|path|directory|folder|string|text|pattern|old_?str\w*|search|tool|command|context"
    r"|resource|model|server)\b.{0,200}?"
    r"(?:not found|no match|did not match|does not exist|doesn't exist|cannot be"
    r"|has not been read|not appear)"
    r"|(?:the )?user (?:doesn't want|does not want|denied|rejected|declined|cancel+ed|aborted)"
    r"|(?:the )?(?:tool|request|command|operation|call|patch|edit|job|task|action|transaction|payment)"
    r"(?: (?:call|use|execution|verification))? (?:has |was |is )?"
    r"(?:failed|timed out|rejected|denied|refused|aborted|interrupted|not (?:allowed|permitted))"
    r"|apply_patch verification failed|no replacement was performed|multiple occurrences of"
    r"|http(?:/[\d.]+)? [45]\d\d\b|status(?:[ _]code)?:? [45]\d\d\b"
    r"|[45]\d\d (?:[A-Z]\w+ ){0,3}(?:error|not found)"
    r"|your (?:proposed )?edit (?:has introduced|was not)|timed out|timeout\b)",
    re.IGNORECASE,
)
# What a shell or a program prints as its only or last line when it fails.
_SHELL = re.compile(
    r"(?:[\w./-]{0,40}sh(?:\.exe)?|/[\w./-]+): .{0,300}?(?:not found|no such file|denied|syntax error)"
    r"|[\w.@+-]{1,40}: (?:.{1,300}: )?(?:no such file or directory|permission denied|is a directory"
    r"|not a directory|command not found|file exists|directory not empty|operation not permitted"
    r"|no space left|connection (?:refused|reset)|no such \w+)"
    r"|[\w.@+-]{1,40}: (?:cannot|can't|could not|fatal|error|unrecogni[sz]ed|invalid|illegal"
    r"|missing|unable)\b"
    r"|e: |segmentation fault|killed\Z|aborted\b|bus error|.{1,80} is not recogni[sz]ed as"
    r"|! \[\w* ?rejected\]|conflict \(|automatic merge failed|exit status [1-9]|curl: \(\d+\)",
    re.IGNORECASE,
)
# Every line that the two patterns above match contains one of these.
_BAD_WORDS = entries(
    "error|fail|not |exception|cannot|can't|could|unable|invalid|denied|no such|fatal|panic|refused|"
    "reject|abort|timed out|timeout|traceback|forbidden|unauthori|exist|missing|illegal|no match|"
    "multiple occ|http|status|interrupt|user |no repl|segmentation|killed|is a dir|no space|reset|"
    "conflict|curl: (|bus |e: |unrecog|introduced"
)

# The summaries and diagnostics of test runners, compilers and build tools, anywhere in what they print.
_SUMMARY = re.compile(
    r"(?:=+ )?(?:.{0,60}, )?[1-9]\d* (?:failed|errors?)\b.{0,80} in [\d.:]+ ?m?s"
    r"|FAILED \((?:failures|errors)=|(?:FAILED|ERROR) \S+::|Tests?:?\s+[1-9]\d* failed"
    r"|Test Suites: [1-9]\d* failed|[1-9]\d* failing\Z|test result: FAILED|--- FAIL: |FAIL(?:\s|\Z)|FAILURES!"
    r"|\d+ examples?, [1-9]\d* failures?|(?:\[\w+\] )?Tests run: \d+, +Failures: (?:[1-9]"
    r"|\d+, +Errors: [1-9])"
    r"|(?:\[\w+\] )?BUILD FAIL(?:ED|URE)|Failed! |npm (?:ERR!|error) |error Command failed|fatal: "
    r"|g?make(?:\[\d+\])?: \*\*\*|error(?:\[E\d+\])?: \S|Found [1-9]\d* errors?\b"
    r"|.{0,20}\d problems? \([1-9]\d* error|.{0,20}\b\d+ passed.{0,40}\b[1-9]\d* failed"
    r"|.{0,20}\b[1-9]\d* (?:tests? )?failed\b.{0,40}\b\d+ passed"
    r"|[^\s:()]{1,200}(?::\d+(?::\d+)?|\(\d+(?:,\d+)?\)): (?:fatal )?error\b|Node\.js v\d|panic: "
    r"|thread .{0,60} panicked at "
)
_SUMMARY_WORDS = ("fail", "error", "fatal", "panic", "***", "npm err", "node.js v")

# Lines that state the reason of a failure: clear ones first, then others that mention one.
_CLEAR = re.compile(
    r"(?:Error|Exception|error|ERROR|fatal|FATAL|panic)\b(?:\[\w+\]| \w{0,3}\d+)?: ?\S|\AE {3,}\S"
    r"|! \[\w* ?rejected|panicked at|\A(?:FAILED|FAIL|ERROR)[: ]\S|--- FAIL|npm (?:ERR!|error) (?!code)\S"
    r"|\A(?:✕|✗) |✖ \D"
)
_CLEAR_WORDS = entries("error|fail|exception|fatal|panic|e   |rejected|npm err|✕|✗|✖")
_REASON_WORDS = entries(
    "fail|error|exception|denied|not found|no such|cannot|can't|could not|couldn't|unable to|refused|"
    "rejected|timed out|invalid|undefined|unexpected|missing|conflict|mismatch|not allowed|not been|"
    "doesn't|does not|did not"
)
_HARMLESS = re.compile(
    r"\b(?:0|no|zero|without)(?: \w+)? (?:errors?|failures?|failed|exceptions?|warnings?)\b(?: found)?"
    r"|\b(?:errors?|failures?|failed)\b\"?\s*[:=]\s*(?:0\b|none|null|false|\[\]|\(none\))",
    re.IGNORECASE,
)
_RAISED = re.compile(r"(?:\w+\.)*[A-Za-z]\w*(?::\s|\Z)")

# Statements, anywhere in a text, that an edit was not applied.
_NOT_APPLIED = re.compile(
    r"(?:changes|edits?|patch|diff|hunks?)(?: \S+){0,4} (?:not been applied|not applied|were not applied"
    r"|was not applied|could not be applied|failed to apply|does not apply)|no replacement was performed"
    r"|no (?:sufficiently similar )?match(?:es)? (?:was |were )?found|no changes? (?:were |was )?made"
    r"|(?:old_?str\w*|search (?:block|text|string|content)|text|string)\b[^\n]{0,120}"
    r"(?:not found|did not match|does not match)|no file (?:is )?open|introduced new syntax error",
    re.IGNORECASE,
)


def reports_failure(text: str) -> bool:
    """True for a text with the summary of failing tests, or with a diagnostic of a failed build."""
    return any(_SUMMARY.match(line) for line in lines_with(text, _SUMMARY_WORDS))


def _matches(line: str, *patterns: re.Pattern[str]) -> bool:
    """True for a line that one of the patterns for errors matches, where it has a word of them."""
    lower = line.lower()
    return any(word in lower for word in _BAD_WORDS) and any(each.match(line, 0, _LINE) for each in patterns)


def lines_with(text: str, words: Sequence[str]) -> list[str]:
    """The stripped lines that contain one of `words`, in order. The words are in lower case."""
    lower = text.lower()
    # Lower case of another length would shift the positions.
    lower = lower if len(lower) == len(text) else text
    starts: dict[int, int] = {}
    for word in words:
        at, seen = lower.find(word), 0
        while at >= 0 and seen < _SAME:
            start = text.rfind("\n", 0, at) + 1
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            starts[start] = min(end, start + _LINE)
            at, seen = lower.find(word, end), seen + 1
    return [text[start : starts[start]].strip() for start in sorted(starts)]


# Characters of a result's beginning and end that are read.
_HEAD, _TAIL = 1_500, 1_500
# Characters at either end in which an exit code, or a note that the command still runs, is searched.
_FRAME = 400
# A longer result is not decoded as JSON.
_JSON = 64_000
# Lines at the end among which a summary is searched, and lines of an output that is told whole.
_LAST, _SHORT_LINES = 5, 3

_EXIT = re.compile(
    r"\W*(?:(?:error|(?:the )?(?:command|process|program|script|tool|shell|job|task|tests?))\b.{0,200}?)?"
    r"(?:\bexit(?:ed)?(?: with)?(?:[ _-]?(?:code|status))?|\breturn(?:ed)?[ _-]?code)\b>?"
    r"[\"']?\s{0,2}[:=]?\s{0,2}(-?\d{1,5})\b(?![\w/])[^\w]{0,6}(?:\([^)]{0,40}\))?\W*\Z",
    re.IGNORECASE,
)
_TAGGED_EXIT = re.compile(r"<(?:returncode|exit_?code|exit_status)>\s*(-?\d{1,5})\s*<", re.IGNORECASE)
_RUNNING = entries(
    "running with session id|still running|running in the background|running in background"
    "|started in the background|started in background|moved to the background"
    '|"status": "running"|"status":"running"'
)
# Lines that clients put around the output of a tool: their beginnings, and complete ones.
_WRAPPERS = entries(
    "(open file: |(current directory: |chunk id: |wall time: |process exited|process running with|"
    "original token count|total output lines|directory: |signal: |background pids|process group pgid|"
    "command: |command executed|the tool execution failed with|[the command |[command |[current |"
    "[python interp|your command ran successfully and did|error: (none)|exit code|exited with|```|"
    "<returncode>|<exit|output: (|[execute_command for"
)
_WRAPPING = entries("|bash-$|output:|stdout:|stderr:|error:|err:|(no output)|no output")
_LABEL = re.compile(r"(?:(?:std)?(?:output|out|err)|observation): (?=\S)", re.IGNORECASE)
_TAG = re.compile(r"</?(?:tool_use_error|error|error_details|stderr|system|output)[^>]{0,80}>\s*")
# Matched in lower case.
_SUMS_UP = re.compile(
    r"\b\d+ (?:passed|passing|tests?|examples?|specs?|assertions|failed|skipped|errors?)\b|\Aok\b"
    r"|test result:|build succ|\Asuccess|successfully|all checks passed|no (?:issues|errors|problems) found"
    r"|\bup[- ]to[- ]date\b|\A(?:done|finished|completed|compiled|built)\b|added \d+ packages"
    r"|\A\[[\w./-]+ [0-9a-f]{7,}\]|\d+ files? changed"
)

_MESSAGES = entries(
    "error|message|error_message|errorMessage|detail|details|reason|errors|stderr|msg|text|content"
)
_PRINTED = ("stdout", "output", "stderr", "aggregated_output", "result", "content")
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "code")
_BAD_STATES = word_set(
    "error failed failure rejected denied declined refused invalid aborted timeout unauthorized forbidden"
)
_NOTHING = entries("|none|null|false|0|ok|(none)")


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
    def running(self) -> bool:
        """True when the result only says that the command still runs."""
        if self.code is not None:
            return False
        frames = f"{self.head[:_FRAME]}\n{self.tail[-_FRAME:]}".lower()
        return ("running" in frames or "background" in frames) and any(said in frames for said in _RUNNING)

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
            return not quoting and reports_failure(self.tail)
        if _matches(self.first_line, _LEADING, _SHELL):
            return True
        if quoting:
            return False
        is_shell = _matches(next(_last_lines(self.tail), ""), _SHELL)
        return is_shell or bool(self._raised()) or reports_failure(self.text)

    def not_applied(self) -> bool:
        """True when it says that an edit was not applied."""
        if self.failed(quoting=True):
            return True
        frame = self.head[:_FRAME]
        lower = frame.lower()
        may_say = "not" in lower or "no " in lower or "syntax error" in lower
        return may_say and bool(_NOT_APPLIED.search(frame))

    def error(self) -> str:
        """The first line that states the error, else the last line, else the exit code."""
        if self.said is not None and (message := _message(self.said)):
            return one_line(message, LINE_CHARS)
        if raised := self._raised():
            return clipped(raised, LINE_CHARS)
        found = self._reason() or next(_last_lines(self.tail), "")
        return clipped(found, LINE_CHARS) or (f"exit code {self.code}" if self.code else "")

    def _raised(self) -> str:
        """The last line of a Python program that died: a traceback with the exception in it; else ""."""
        last = next(_last_lines(self.tail), "")
        is_raised = "Traceback (most recent call last)" in self.text and _RAISED.match(last, 0, _LINE)
        return last if is_raised else ""

    def _reason(self) -> str:
        """The first line that clearly states an error, else the first that mentions one, else ""."""
        for words, pattern in ((_CLEAR_WORDS, _CLEAR), (_REASON_WORDS, None)):
            for line in filter(None, map(_unwrapped, lines_with(self.text, words))):
                left = _HARMLESS.sub("", line)
                if left.startswith("Traceback (most"):
                    continue
                if pattern.search(left) if pattern else any(word in left.lower() for word in words):
                    return line
        return ""

    def failure(self, what: str, *about: str) -> Failure:
        """The failure of what was tried; see `Failure.about`."""
        return Failure(one_line(what, LINE_CHARS), self.error(), about)

    def command(self, line: str, ok: bool | None, only_files: bool = False) -> Command:
        """The command with what it said: its error, or the line that sums up."""
        said = "" if ok is None else self.summary() if ok else self.error()
        return Command(line, ok, said, only_files)

    def summary(self) -> str:
        """The last line that sums up, else an output of at most three lines; else ""."""
        lines = [*_last_lines(self.tail)]
        sums_up = next((line for line in lines if _SUMS_UP.search(line[:_FRAME].lower())), "")
        if not sums_up and len(lines) <= _SHORT_LINES and len(self.tail) <= _FRAME:
            return clipped(" / ".join(reversed(lines)), LINE_CHARS)
        return clipped(sums_up, LINE_CHARS)

    def short(self) -> tuple[str, ...]:
        """An output of at most three lines, as one; nothing of a longer one."""
        lines = [*filter(None, map(_unwrapped, self.head.split("\n", _FRAME)))]
        return (
            (" / ".join(lines),) if lines and len(lines) <= _SHORT_LINES and len(self.head) <= _FRAME else ()
        )

    @property
    def text(self) -> str:
        """The part that is read: both ends, or all of a short result."""
        return self.head if self.tail is self.head else f"{self.head}\n{self.tail}"

    @property
    def first_line(self) -> str:
        """The first line of the output, without those that clients wrap it in; "" for none."""
        return next(filter(None, map(_unwrapped, self.head.split("\n"))), "")


def failed(result: str) -> bool:
    """True when a result reports a failed call: an exit code, an error, a traceback, failing tests."""
    return result_of(result).failed()


def result_of(text: str) -> Result:
    """The parsed result: both ends of the output, the exit code, the JSON object."""
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
    """The JSON object in a text; of a list of content parts an object with their texts as its output."""
    if len(text) > _JSON:
        # An object too long to decode is only checked for an error at its beginning.
        beginning = text[:200].lstrip(" {\n\t")
        return {"error": beginning[:LINE_CHARS]} if beginning.startswith('"error": "') else None
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if isinstance(decoded, list) and decoded and all(isinstance(part, dict) for part in decoded):
        texts = [part["text"] for part in decoded if "type" in part and isinstance(part.get("text"), str)]
        return {"output": "\n".join(texts)} if len(texts) == len(decoded) else {}
    return decoded if isinstance(decoded, dict) else {"": decoded} if isinstance(decoded, list) else None


def _printed(said: Mapping[str, Any]) -> str | None:
    """The output of a command in an object; None for an object that is data."""
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


def _stated_failure(said: Mapping[str, Any], quoting: bool) -> bool | None:
    """True for a failure by the object's own fields, False for a success; None when they do not say."""
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
    """The message of an error object."""
    if isinstance(value, str):
        return "" if value.strip().lower() in _NOTHING else value.strip()
    if isinstance(value, list):
        return next((text for each in value[:5] if (text := _message(each, depth + 1))), "")
    if isinstance(value, dict) and depth < 4:
        keys = (key for key in _MESSAGES if key in value)
        return next((text for key in keys if (text := _message(value[key], depth + 1))), "")
    return ""


def _last_lines(text: str) -> Iterator[str]:
    """The last lines of the output, last first, without "=" rules around them."""
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
    return (
        _LABEL.sub("", line, count=1)
        if lower.startswith(("output: ", "observation: ", "std", "err"))
        else line
    )
