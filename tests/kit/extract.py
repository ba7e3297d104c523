"""An honest summarizer without a model: sentences it was given, word for word, under the headings asked for.

Invents nothing, and of a decision that was replaced keeps only the new one. Knows nothing of what a test
has planted.
"""

from __future__ import annotations

import json
import re
from typing import Any

from palimpsest.core.summary.asking import APPENDED

from tests.kit.model import Says, Seen

Json = dict[str, Any]
# What is worth a line, the most worthy first: what was decided or is to be done, then names with digits.
_WORTHY = (
    re.compile(r"\bdecided\b|\binstead of\b|\bnext step\b|\btask\b", re.I),
    re.compile(r"[^\W\d_][\w-]*\d|\d[\w-]*[^\W\d_]|\d{2}"),
)
_PATH = re.compile(r"(?<![\w.:/-])/?(?:[\w.-]+/)+[\w-]+\.\w+")
_REPLACED = re.compile(r"\binstead of (?:the )?([\w./-]*\w)", re.I)
_SENTENCE = re.compile(r"\S[^\n]*?(?:[.!?](?=\s|$)|(?=\n|$))")
# Who says it and what opens a line of an earlier summary; what only frames the question.
_LABEL = re.compile(r"^(?:[A-Z][A-Z ]+ \[[^\]]*\]: |\[\d[^\]]*\] \w+: |[-*•»◦] |\d+\. )+")
_FRAME = re.compile(r"^[<#{\[`]|^[A-Z_]+$|^->|characters left out|^Files: ")
_SECTIONS = (
    (re.compile(r"decision", re.I), re.compile(r"\bdecided\b|\binstead of\b", re.I)),
    (re.compile(r"next step|threads|current state", re.I), re.compile(r"\bnext step\b|\btask\b", re.I)),
    (re.compile(r"completed|flow|files", re.I), re.compile(r"^Files: ")),
)
# The shortest line worth keeping and the longest, and how much names of files may take (characters).
_LEAST, _MOST, _FILES = 16, 240, 700
# On the safe side for English, and room for headings.
_CHARS_PER_TOKEN = 2.4


def extract(seen: Seen) -> Says:
    """The summary of what was shown within what may be written: the worthiest lines, of equals the newest."""
    is_riding = str(seen.messages[-1].get("content")).startswith(APPENDED)
    asked = [str(message.get("content")) for message in (seen.messages[-1:] if is_riding else seen.messages)]
    text = "\n".join(map(_text, seen.messages[:-1] if is_riding else seen.messages[-1:]))
    if "## Entry" in asked[-1]:
        # An entry is about the new messages alone.
        said = [_text(message) for message in seen.messages[:-1]] if is_riding else [text]
        text = "\n".join(
            each for each in said if "Handoff from a previous agent" not in each or not is_riding
        )
        text = text.partition("<new-messages>")[2].partition("</new-messages>")[0] or text
    titles = [line for said in asked for line in said.splitlines() if line.startswith("## ")]
    room = int(seen.body.get("max_tokens") or 1_000) * _CHARS_PER_TOKEN - sum(map(len, titles))
    return Says({"role": "assistant", "content": _written(_kept(text, room), titles)})


def _kept(text: str, room: float) -> list[str]:
    """The lines that `room` characters hold, in their order."""
    files = _files(text)
    # Of a text without names and decisions the last sentences.
    lines = _lines(text) or [line.strip() for line in _SENTENCE.findall(text) if len(line) > _LEAST][-4:]
    ranked = sorted(enumerate(lines), key=lambda line: (_rank(line[1]), -line[0]))
    room -= len(files)
    chosen: list[int] = []
    for place, line in ranked:
        if len(line) + 3 <= room:
            room -= len(line) + 3
            chosen.append(place)
    return [lines[place] for place in sorted(chosen)] + [files] * bool(files)


def _lines(text: str) -> list[str]:
    """What matters, each once, in order; nothing of what a later line has replaced."""
    kept: dict[str, None] = {}
    for found in _SENTENCE.findall(text):
        line = _LABEL.sub("", found.strip())[:_MOST]
        if len(line) < _LEAST or _FRAME.search(line) or _rank(line) == len(_WORTHY):
            continue
        if gone := _REPLACED.search(line):
            kept = dict.fromkeys(old for old in kept if gone[1] not in old)
        kept.pop(line, None)
        kept[line] = None
    return list(kept)


def _rank(line: str) -> int:
    return next((rank for rank, worthy in enumerate(_WORTHY) if worthy.search(line)), len(_WORTHY))


def _files(text: str) -> str:
    """One line with the names of all files, the newest if they are too many."""
    named = ""
    for path in reversed(dict.fromkeys(_PATH.findall(text))):
        if len(named) + len(path) < _FILES:
            named = f" {path}{named}"
    return f"Files:{named}" if named else ""


def _written(lines: list[str], titles: list[str]) -> str:
    if not titles:
        return "\n".join(f"- {line}" for line in lines) or "COMPLETE"
    if "## Entry" in titles:
        state = [f"- {line}" for line in lines if _SECTIONS[1][1].search(line)]
        entry = ("## Entry", "### What was said", *(f"- {line}" for line in lines))
        return "\n".join(("## State", *state, *entry))
    bodies: dict[str, list[str]] = {title: [] for title in titles}
    for line in lines:
        bodies[_title(line, titles)].append(f"- {line}")
    return "\n".join(f"{title}\n" + ("\n".join(body) or "- None.") for title, body in bodies.items())


def _title(line: str, titles: list[str]) -> str:
    for heading, spoken in _SECTIONS:
        found = next((title for title in titles if heading.search(title)), None)
        if found is not None and spoken.search(line):
            return found
    return titles[0]


def _text(message: Json) -> str:
    calls = [json.dumps(call.get("function")) for call in message.get("tool_calls") or ()]
    return "\n".join([str(message.get("content") or ""), *calls])
