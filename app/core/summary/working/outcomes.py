"""What came of a call: whether it failed and by which line (D04), and its output in short (D05).

Works on texts. Knows nothing of states beyond the note it makes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from app.core.summary.working.clipping import clipped, clipped_line, clipped_middle
from app.core.summary.working.limits import SlotLimits
from app.core.summary.working.state import OpenCall, ToolNote

# D04: errors further inside a result are content, not an outcome (characters).
_LOOKED_AT = 500


def _any(*alternatives: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in alternatives), flags)


# Taken out before a line is judged: words of failure that tell of none.
_HARMLESS = _any(
    r"\b(?:0|no|zero|without(?: any)?|never|not? an?)\s+(?:\w+\s+){0,2}?"
    r"(?:errors?|failures?|failed|exceptions?)\b",
    r"\b(?:errors?|failures?|failed|exceptions?|stderr|is_error)\b[\"']?\s*[:=]\s*"
    r"(?:0\b|(?:none|null|nil|false|no)\s*(?:[,;.)}\]]|\Z)|\[\s*\]|\{\s*\}|\"\"|'')",
    r"\berror[-_ ](?:handl\w+|messages?|boundar\w+|pages?|logs?|logging|codes?|types?|class(?:es)?|rates?"
    r"|cases?|recovery|free|prone|states?|paths?|budgets?|report\w*|track\w*|test\w*|text|format\w*)\b",
    r"\b(?:on|log|handle|is|no|raise|throw|show|catch)[-_]?error\b(?!:)",
    r"\b(?:except|catch|class|import|raise|throw new|extends|handles?|handling|fix(?:es|ed)?|resolved?)\b"
    r"[^\n:]{0,60}\b\w*(?:errors?|exceptions?|failures?)\b:?",
    r"\bexit(?:ed)?(?: with)?(?: code| status)?:?\s*0\b",
    r"\berror\.(?:log|html|tsx?|jsx?|py|go|rs)\b",
)
# How a result begins that is nothing but an error; enough for results that quote other texts.
_LEADING = re.compile(
    r"\s*(?:<[\w-]+>\s*)?(?:[\w.]*(?:error|exception)\s*(?:\[[^\]]*\]|\([^)]*\))?:"
    r"|error (?:executing|reading|running|calling|while|opening|writing|in tool)\b"
    r"|(?:fatal|panic|denied):|traceback \(most|failed to \w|(?-i:E[A-Z]{4,}):\s"
    r"|\{\s*\"error\"\s*:\s*[\"{\[\w]|\{\s*\"success\"\s*:\s*false\b"
    r"|(?:the )?(?:file|path|directory|string|text|pattern|old_string|command|tool)\b[^.\n]{0,200}?"
    r"(?:not found|does not exist|doesn't exist|was not found|cannot be)"
    r"|no such file|(?:permission|access) denied"
    r"|[\w./-]+: [^\n]{0,200}(?:no such file or directory|permission denied|is a directory|command not found)"
    r"|(?:can(?:no|')t|cannot|could not|unable to) \w|invalid (?:argument|path|input|request)\b"
    r"|no match(?:es)? found for|string to replace not found|request failed|command (?:failed|timed out))",
    re.IGNORECASE,
)
_FAILING = _any(
    r"\b\w*(?:error|exception)\b\s*(?:TS\d+|C\d+|E\d+|\[[\w-]+\]|\(\w+\))?:(?!:)\s*(?![\"'\s]*(?:\}|\Z))",
    r"^\s*error\s+\S",
    r"\bfatal\b:|\bpanic:|\bpanicked at\b|\btraceback \(most recent",
    r"\b[1-9]\d*\s+(?:\w+\s+)?(?:failed|failures?|failing|errors?|exceptions?)\b",
    r"\b(?:command not found|no such file or directory|permission denied|access denied|segmentation fault)\b",
    r"\bnpm err!|\bundefined reference\b|\bcannot find (?:module|package|symbol|name)\b|\bmodule not found\b",
    r"\b(?:connection (?:refused|reset)|timed out|timeout (?:exceeded|expired|after))\b",
    r"\be(?:connrefused|connreset|noent|acces|perm|addrinuse|timedout|exist|isdir|notdir|pipe|mfile)\b",
    r"\b(?:http(?:/[\d.]+)?|status(?: ?code)?\"?:?)\s*[45]\d\d\b",
    r"\"(?:success|ok)\"\s*:\s*false\b|\"is_?error\"\s*:\s*true\b|\"error\"\s*:\s*[\"{\[\w]",
    r"\"status\"\s*:\s*\"(?:error|failed|failure)\"|\bfailed to \w+",
    r"\b(?:build|compilation|tests?|assertion|step|job|deploy\w*|request|install\w*) failed\b",
    r"\bcould not \w+|\bunable to \w+",
)
# Capitals tell an outcome from a word.
_FAILED = re.compile(r"(?:^|\s)(?:FAILED|FAIL|FAILURE|ERROR|FATAL)\b|^E\s{2,}\S", re.MULTILINE)
# Tools whose results quote files or answer in a word.
_QUOTING = frozenset({"read", "edit", "write", "delete", "search", "plan"})
# Says that it failed and not why: used when no other line does.
_EXIT = re.compile(
    r"\bexit(?:ed)?(?: with)?(?:[ _]?code| status)?\"?:?\s*-?[1-9]\d*\b|\breturn(?:ed)? code:? [1-9]",
    re.IGNORECASE,
)
# Commands that show texts, in which words of failure are content.
_SHOWING = re.compile(
    r"\s*(?:\Z|(?:cd|cat|bat|head|tail|less|more|nl|sed\s+-n|awk|grep|rg|ag|find|ls|tree|wc|jq|echo|sort"
    r"|git\s+(?:show|diff|log|grep|blame))\b)"
)
_THEN = re.compile(r"&&|\|\||[;\n]")
_COUNTED = re.compile(r"\s*found (\d+) (?:match|result|file|line)", re.IGNORECASE)
_NO_MATCH = re.compile(r"\s*(?:no (?:match|result|file)\w*(?: found)?\b|found 0 )", re.IGNORECASE)


def failure_in(text: str, call: OpenCall, limits: SlotLimits) -> str:
    """The first line that says what went wrong, on one line; "" when the result looks fine.

    Looks at the first 500 characters. Results that quote files (reads, edits, searches, commands that
    show texts) fail only by how they begin.
    """
    head = text[:_LOOKED_AT]
    if call.kind in _QUOTING or _only_shows(call):
        told = (line for line in head.splitlines() if line.strip() and not _EXIT.match(line))
        first = next(told, "")
        found = first if _LEADING.match(first) and _LEADING.match(without_harmless(first)) else ""
    else:
        lines = head.splitlines()
        found = next((line for line in lines if _fails(line)), "") or next(
            (line for line in lines if _EXIT.search(line)), ""
        )
    return clipped_line(_whole(found, text), limits.failure_chars)


def without_harmless(text: str) -> str:
    """`text` without words of failure that tell of none: "0 failed", "no errors", "error handling"."""
    return _HARMLESS.sub("", text)


def tool_note(call: OpenCall, text: str, failed: bool, limits: SlotLimits) -> ToolNote:
    """The result in short: a search by its count and first lines, anything else by head and tail."""
    label = clipped_line(call.label, limits.label_chars)
    if call.kind == "search" and not failed:
        return ToolNote(label, _search_text(text, limits))
    most = limits.failed_shell_chars if failed else limits.shell_chars
    return ToolNote(label, clipped_middle(text.strip("\n").rstrip(), most), failed)


def shell_text(text: str) -> str:
    """What a shell printed, taken out of the JSON some tools wrap it in; a failing exit code leads it."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text
    if not isinstance(found, dict):
        return text
    parts = [found[key] for key in ("stdout", "output", "stderr") if isinstance(found.get(key), str)]
    if not parts:
        return text
    code = _exit_code(found)
    lead = f"exit code {code}\n" if code else ""
    return lead + "\n".join(part.strip("\n") for part in parts if part.strip())


def _exit_code(found: Mapping[str, Any]) -> int:
    inner = found.get("metadata")
    places = (found, inner) if isinstance(inner, dict) else (found,)
    values = (place.get(key) for place in places for key in ("exit_code", "exitCode", "returncode", "code"))
    return next((value for value in values if isinstance(value, int)), 0)


def _only_shows(call: OpenCall) -> bool:
    """True for a command line no part of which does more than show a text."""
    return bool(call.command) and all(_SHOWING.match(part) for part in _THEN.split(call.command))


def _fails(line: str) -> bool:
    told = without_harmless(line)
    return bool(_LEADING.match(told) or _FAILING.search(told) or _FAILED.search(told))


def _whole(line: str, text: str) -> str:
    """The line with what stands behind the cut, if it was cut there."""
    if not line or not text.startswith(line, max(0, _LOOKED_AT - len(line))):
        return line
    end = text.find("\n", _LOOKED_AT)
    return line + text[_LOOKED_AT : end if end >= 0 else len(text)]


def _search_text(text: str, limits: SlotLimits) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    counted = _COUNTED.match(text)
    if not lines or _NO_MATCH.match(text):
        return "0 matches"
    number = int(counted.group(1)) if counted else len(lines)
    count = f"{number} match{'' if number == 1 else 'es'}"
    shown = lines[1:] if counted else lines
    room = limits.search_chars - len(count) - 1
    return "\n".join((count, clipped("\n".join(shown[: limits.search_lines]), room))).rstrip()
