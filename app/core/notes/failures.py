"""How tools, shells, compilers and test runners word a failure, line by line: the tables of patterns.

Each function judges one line, or picks lines of a text by words it must contain before any pattern is
tried: nearly every result is all well, and looking for words is ten times faster. Knows no results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# Characters of a line that are judged; longer ones are data.
_LINE = 400
# Lines with the same word that are judged.
_SAME = 12

# A whole result in a line or two: it begins with the error.
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
# What a shell or a program prints as its only or last word when it could not do its work.
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
# One of these stands in every line that the two patterns above match.
_BAD_WORDS = (
    "error", "fail", "not ", "exception", "cannot", "can't",
    "could", "unable", "invalid", "denied", "no such",
    "fatal", "panic", "refused", "reject", "abort", "timed out",
    "timeout", "traceback", "forbidden", "unauthori",
    "exist", "missing", "illegal", "no match", "multiple occ", "http",
    "status", "interrupt", "user ", "no repl",
    "segmentation", "killed", "is a dir", "no space", "reset", "conflict", "curl: (", "bus ", "e: ",
    "unrecog", "introduced",
)  # fmt: skip

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

# Which line says why: the clear ones, else others that speak of it.
_CLEAR = re.compile(
    r"(?:Error|Exception|error|ERROR|fatal|FATAL|panic)\b(?:\[\w+\]| \w{0,3}\d+)?: ?\S|\AE {3,}\S"
    r"|! \[\w* ?rejected|panicked at|\A(?:FAILED|FAIL|ERROR)[: ]\S|--- FAIL|npm (?:ERR!|error) (?!code)\S"
    r"|\A(?:✕|✗) |✖ \D"
)
_CLEAR_WORDS = ("error", "fail", "exception", "fatal", "panic", "e   ", "rejected", "npm err", "✕", "✗", "✖")
_REASON_WORDS = (
    "fail", "error", "exception", "denied", "not found", "no such",
    "cannot", "can't", "could not", "couldn't",
    "unable to", "refused", "rejected", "timed out", "invalid",
    "undefined", "unexpected", "missing", "conflict",
    "mismatch", "not allowed", "not been", "doesn't", "does not", "did not",
)  # fmt: skip
_HARMLESS = re.compile(
    r"\b(?:0|no|zero|without)(?: \w+)? (?:errors?|failures?|failed|exceptions?|warnings?)\b(?: found)?"
    r"|\b(?:errors?|failures?|failed)\b\"?\s*[:=]\s*(?:0\b|none|null|false|\[\]|\(none\))",
    re.IGNORECASE,
)
_RAISED = re.compile(r"(?:\w+\.)*[A-Za-z]\w*(?::\s|\Z)")

# An edit that was not made, wherever the text says so.
_NOT_APPLIED = re.compile(
    r"(?:changes|edits?|patch|diff|hunks?)(?: \S+){0,4} (?:not been applied|not applied|were not applied"
    r"|was not applied|could not be applied|failed to apply|does not apply)|no replacement was performed"
    r"|no (?:sufficiently similar )?match(?:es)? (?:was |were )?found|no changes? (?:were |was )?made"
    r"|(?:old_?str\w*|search (?:block|text|string|content)|text|string)\b[^\n]{0,120}"
    r"(?:not found|did not match|does not match)|no file (?:is )?open|introduced new syntax error",
    re.IGNORECASE,
)


def begins_badly(line: str) -> bool:
    """True for the first line of a result that is an error as a whole."""
    lower = line.lower()
    if not any(word in lower for word in _BAD_WORDS):
        return False
    return bool(_LEADING.match(line, 0, _LINE) or _SHELL.match(line, 0, _LINE))


def ends_badly(line: str) -> bool:
    """True for a last line with which a shell or a program gives up."""
    lower = line.lower()
    return any(word in lower for word in _BAD_WORDS) and bool(_SHELL.match(line, 0, _LINE))


def reports_failure(text: str) -> bool:
    """True for a text with the summary of failing tests, or with a diagnostic of a failed build."""
    return any(_SUMMARY.match(line) for line in lines_with(text, _SUMMARY_WORDS))


def ends_in_traceback(text: str, last: str) -> bool:
    """True where a program of Python died: a traceback, and the exception as the last line."""
    return "Traceback (most recent call last)" in text and bool(_RAISED.match(last, 0, _LINE))


def says_not_applied(text: str) -> bool:
    """True for the answer to an edit that was not made."""
    lower = text.lower()
    return ("not" in lower or "no " in lower or "syntax error" in lower) and bool(_NOT_APPLIED.search(text))


def reason_in(text: str, unwrapped: Callable[[str], str]) -> str:
    """The first line that says clearly what went wrong, else the first that speaks of it, else ""."""
    for words, pattern in ((_CLEAR_WORDS, _CLEAR), (_REASON_WORDS, None)):
        for line in filter(None, map(unwrapped, lines_with(text, words))):
            left = _HARMLESS.sub("", line)
            if left.startswith("Traceback (most"):
                continue
            if pattern.search(left) if pattern else any(word in left.lower() for word in words):
                return line
    return ""


def lines_with(text: str, words: Sequence[str]) -> list[str]:
    """The lines in which one of these words stands, in order, without white space around; words are small."""
    lower = text.lower()
    # Where small letters have another length than capitals, places do not agree.
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
