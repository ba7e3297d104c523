"""Sentences of a message: its prose, where a sentence ends, and which decide or discover something.

Decisions and discoveries are recognised in English only (D07, D08).
"""

from __future__ import annotations

import re
from functools import lru_cache

from palimpsest.core.notes.note import word_set
from palimpsest.core.text.message_text import longest_run

# Characters that are read of a text. Pasted logs have megabytes; requests stand in front of them.
MOST_READ = 20_000
# Characters of a sentence; a longer one is data, or prose that no note should copy.
LONGEST = 400

_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_OPENING_TAG = re.compile(r"^[ \t]*<([A-Za-z][\w:.-]*+)[^<>\n]*+>", re.MULTILINE)
# Blocks with such tags hold the user's words; others were added by a harness.
_USER_BLOCK = re.compile(
    r"task|query|instruct|rule|request|message|prompt|user|feedback|guideline|requirement|question",
    re.IGNORECASE,
)
_TAG = re.compile(r"<[/!]?[A-Za-z][^<>\n]*+>[ \t]*")
# Lines that are not prose: listings, file positions, traces, quotes, tables, diffs, prompts, data.
_ODD_LINE = re.compile(
    r"\s*(?:"
    r"\d+[|→\t]|\d+:\s(?=\s|.*[(){}=;]|(?:import|from|return|def|class|else|try)\b)"
    r"|[\w./\\-]+:\d+[:-]"
    r"|>|\||[-+=_*|: ]{4,}$|@@ |diff --git |\$ |(?:\+\+\+|---) \S"
    r"|Traceback \(|File \".*\", line \d|at \S+\s?\(|Caused by: |[\w.]*(?:Error|Exception): "
    r"|[\[{}\]\"]|#include"
    r"|(?:def|class) \w+.*:\s*$|(?:import|from) [\w.]+(?: import .*)?$|(?:const|let|var) \w+ ?="
    r"|[^\s:]+[ \t]*\t[^\t]*\t|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
    r")"
)
# A run of so many characters without a space is data.
_LONG_DATA = 120
_LONG_RUN = re.compile(rf"[!-~]{{{_LONG_DATA}}}")
# Characters that are rare in prose.
_CODE_MARKS = re.compile(r"[{}<>;|\\=()\[\]_$]")
_BULLET = re.compile(r"[ \t]*(?:[-*+•–‣]|\(?\d{1,3}[.)])[ \t]+(?=\S)")
_HEADING = re.compile(r"\s*#{1,6}\s+")
# A date in front of what was said: "[3:18 pm on 4 May, 2023] John: Hey!"
DATED = re.compile(r"\[[^\[\]\n\d]{0,20}\d{1,4}[^\[\]\n\d]{1,12}\d{1,4}[^\[\]\n]{0,40}\](?=\s|\Z)")
_END = re.compile(r"[.!?\n…。！？](?:(?<=\n)|[.!?…\"'”’»)\]*_`]*(?=\s)|(?<=[。！？])[。！？」』”）]*)")
# A full stop after these does not end a sentence.
_ABBREVIATIONS = word_set(
    "e.g i.e eg ie dr mr mrs ms prof st vs approx ca cf inc ltd jr sr sra dra mme mlle z.b bzw d.h u.a usw"
    " evtl ggf inkl p.ej ej pág p.ex ex núm sig dott bijv resp al np tj т.е т.д др"
)
# Nor after these before a number: "No. 5", but "I said no."
_BEFORE_NUMBER = word_set("no nr fig vol p pp")
_LONGEST_ABBREVIATION = max(map(len, _ABBREVIATIONS)) + 2
# "am 3. Mai": an ordinal, in languages that write it with a full stop.
_MONTH = re.compile(
    r"\s+(?:jan|feb|mär|mar|apr|mai|maj|jun|jul|aug|sep|okt|nov|dez|dec|led|sty|lut|kwi|cze|lip|sie|wrz|paź|lis|gru)",
    re.IGNORECASE,
)
# Characters from which on a line without an end mark may be wrapped prose.
_WRAPPED_LINE = 60
# Prose has less than one code mark in so many characters.
_PROSE_PER_MARK = 10


def prose_of(text: str) -> str:
    """The prose of a text, with an empty line in place of each part left out.

    Left out are fenced and indented code, tool listings, stack traces, quoted lines, tables, long data
    and XML-like blocks, except those whose tag stands for the user's words (`<task>`, `<user_query>`).
    Only the first 20,000 characters are read.
    """
    text = text[:MOST_READ]
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    if "<" in text:
        text = _TAG.sub("\n\n", without_blocks(text))
    if "\n" not in text:
        return text if text and _is_prose(text, False) else ""
    kept: list[str] = []
    in_list = False
    for line in text.split("\n"):
        if line and _is_prose(line, in_list):
            kept.append(line)
            in_list = _is_item(line, 0) or (in_list and line[0] in " \t")
        else:
            kept.append("")
            in_list = False
    return "\n".join(kept)


# The rules, the facts and the question of a message are read one after the other.
@lru_cache(maxsize=4)
def sentences_of(text: str) -> tuple[str, ...]:
    """Sentences and list items of the prose in order, each a verbatim part of `text`, stripped.

    A list item is one sentence, unless it is longer than 400 characters. A line break ends a sentence
    unless the line looks wrapped: it has no end mark and at least 60 characters, or 30 before a line that
    starts in lower case. Sentences of more than 400 characters, or without a letter or digit, are left
    out. Only the first 20,000 characters are read.
    """
    prose = prose_of(text)
    found: list[str] = []
    start = 0
    item = _is_item(prose, 0)
    for match in _END.finditer(prose):
        at, end = match.span()
        if prose[at] == "\n":
            if not _ends_line(prose, start, at, item):
                continue
            end = at + 1
            _add(found, prose[start:end], item)
            item = _is_item(prose, end)
        elif item or (prose[at] == "." and _continues(prose, start, at, end)):
            continue
        else:
            _add(found, prose[start:end], False)
        start = end
    _add(found, prose[start:], item)
    return tuple(found)


def without_blocks(text: str) -> str:
    """The text without the blocks that a harness added; those with the user's words stay."""
    kept: list[str] = []
    at = 0
    unclosed: set[str] = set()
    for match in _OPENING_TAG.finditer(text):
        tag = match[1]
        if match.start() < at or tag in unclosed or _USER_BLOCK.search(tag):
            continue
        end = text.find(f"</{tag}>", match.end())
        if end < 0:
            unclosed.add(tag)
            continue
        kept.append(text[at : match.start()])
        at = end
    return "\n\n".join([*kept, text[at:]])


def _is_prose(line: str, in_list: bool) -> bool:
    first = line[0]
    if first == "[" and DATED.match(line):
        return True
    if first in " \t" and not in_list and line.startswith(("    ", "\t")) and not _is_item(line, 0):
        return False
    if (not first.isalpha() or ":" in line or "\t" in line or "import" in line) and _ODD_LINE.match(line):
        return False
    if len(line) > _LONG_DATA and longest_run(line) >= _LONG_DATA and _LONG_RUN.search(line):
        return False
    if "(" in line or "=" in line or "{" in line or ";" in line or "|" in line:
        return len(_CODE_MARKS.findall(line)) * _PROSE_PER_MARK < len(line)
    return True


def _is_item(prose: str, at: int) -> bool:
    return not prose[at : at + 1].isalpha() and _BULLET.match(prose, at) is not None


def _ends_line(prose: str, start: int, at: int, item: bool) -> bool:
    """True unless the line before the break at `at` continues in the next one."""
    following = prose[at + 1 : at + 8]
    word = following.lstrip()
    if not word or following[0] == "\n" or word[0] == "#" or _is_item(prose, at + 1):
        return True
    if item:
        return following[0] not in " \t"
    line = prose[max(start, prose.rfind("\n", 0, at) + 1) : at].strip()
    if not line or line[-1] in ".!?:;。！？：；" or line[0] == "#":
        return True
    return len(line) < (_WRAPPED_LINE // 2 if word[0].islower() else _WRAPPED_LINE)


def _continues(prose: str, start: int, at: int, end: int) -> bool:
    """True when the full stops at `at` do not end the sentence."""
    if end - at > 1 and prose.startswith("..", at):
        return prose[end : end + 12].lstrip()[:1].islower()
    word = prose[max(start, prose.rfind(" ", start, at) + 1) : at]
    if len(word) > _LONGEST_ABBREVIATION:
        return False
    word = word.lstrip("\n(\"'[")
    if word.isdigit():
        # "1." of an inline list, "3. Mai".
        return at - start <= len(word) + 1 or _MONTH.match(prose, at + 1) is not None
    if word.lower() in _BEFORE_NUMBER:
        return prose[end + 1 : end + 2].isdigit()
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")


def _add(found: list[str], part: str, item: bool) -> None:
    stripped = part.strip()
    if not stripped or not (stripped[0].isalnum() or any(map(str.isalnum, stripped))):
        return
    if stripped[0] == "[" and (date := DATED.match(stripped)):
        found.append(date[0])
        stripped = stripped[date.end() :].strip()
    if not stripped[:1].isalpha():
        mark = _BULLET.match(part) or _HEADING.match(part)
        stripped = part[mark.end() :].strip() if mark else stripped
    if len(stripped) <= LONGEST:
        found.append(stripped)
    elif item:
        found.extend(sentences_of(stripped))


# An announcement to look at something is not a decision.
_LOOKING = (
    r"(?!(?:now |first |just |quickly )*"
    r"(?:see|look|check|take|start|begin|read|view|verify|run|find|know|go)\b)"
)
_DECIDES = re.compile(
    rf"\b(?:(?:i|we)(?:['’]?ll| will) use|i['’]?ve (?:decided|chosen)|decided (?:to|on|against)"
    rf"|let['’]?s {_LOOKING}|(?:going to|gonna) {_LOOKING}|going with|choosing|chose|opted (?:for|to)"
    rf"|opting for|switching to|switched to|settled on|sticking with|instead of)\b",
    re.IGNORECASE,
)
_DISCOVERS = re.compile(
    r"\b(?:found (?:that|out)|discovered|the (?:\w+ )?(?:issue|problem|bug|cause|culprit|reason) (?:was|is)"
    r"|turn(?:s|ed) out|it appears|root cause|reali[sz]ed|noticed (?:that|the)"
    r"|i (?:can )?see (?:that|the (?:issue|problem))|it looks like|caused by)\b",
    re.IGNORECASE,
)


def decides(sentence: str) -> re.Match[str] | None:
    """The match of the words that state a decision; None for a question or without such words."""
    return None if sentence.endswith(("?", "？")) else _DECIDES.search(sentence)


def discovers(sentence: str) -> re.Match[str] | None:
    """The match of the words that report a discovery; None without such words."""
    return _DISCOVERS.search(sentence)
