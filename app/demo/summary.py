"""How the demo model answers when it is asked to summarize: nine sections of sentences it was given.

Pure. Nothing is invented: every line is a piece of the text to be summarized.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.demo.reading import OWN_LINE, Shown

SECTIONS = (
    "Primary request and intent",
    "User messages",
    "Work completed",
    "Errors and fixes",
    "Key technical details",
    "Decisions made",
    "Pending/incomplete",
    "Current state",
    "Recommended next step",
)
# What a line must speak of to stand in a section; sections without an entry take their lines by place.
_SPEAKS_OF = {
    2: re.compile(r"\b(done|created|wrote|added|finished|completed|fixed|shown)\b", re.I),
    3: re.compile(r"\b(error|failed|failure|exception|traceback|fix)\b", re.I),
    4: re.compile(r"\b\d[\w.,:-]*\b|[\w-]+/[\w./-]+|`[^`]+`"),
    5: re.compile(r"\b(decided|choose|chose|will use|going to|because|prefer)\b", re.I),
    6: re.compile(r"\b(todo|pending|later|still|next|remaining|must)\b", re.I),
}
# What frames the conversation in the request: headings, fences, names of parts, the closing order.
_LABEL = re.compile(r"[<#`]|[A-Z_]+(?:$| \(for orientation)|none\b|summar", re.I)
# Who said it, before the first line of each message; the demo's answers need no such numbers.
_SPEAKER = re.compile(r"^[A-Z]+ \[\d+(?:, continued)?\]: ")
_LINE_CHARS = 240
# On the safe side for English.
_CHARS_PER_TOKEN = 3


def asks_for_summary(messages: Sequence[Shown]) -> bool:
    """True when the first or last message gives the order; a summary further in is only history."""
    return _order_in(messages) is not None


def summary_of(messages: Sequence[Shown], max_tokens: int) -> str:
    """Nine numbered sections within `max_tokens`, the newest lines winning."""
    lines = _lines(messages)
    # Headings take about 80 tokens; what is left is shared evenly.
    room = max(0, max_tokens - 80) * _CHARS_PER_TOKEN // len(SECTIONS)
    parts = [
        f"## {number + 1}. {title}\n{_fitting(_section(number, lines), room)}"
        for number, title in enumerate(SECTIONS)
    ]
    return "\n\n".join(parts)


def _order_in(messages: Sequence[Shown]) -> Shown | None:
    return next((m for m in (*messages[:1], *messages[-1:]) if _is_order(m.text)), None)


def _is_order(text: str) -> bool:
    lowered = text.lower()
    return "summar" in lowered and SECTIONS[0].lower() in lowered and SECTIONS[8].lower() in lowered


def _lines(messages: Sequence[Shown]) -> list[str]:
    """Lines of the conversation itself: the order to summarize, headings and labels left out."""
    order = _order_in(messages)
    given = [m.text for m in messages if m is not order] or [_after_order(m.text) for m in messages]
    lines = (_SPEAKER.sub("", line.strip().lstrip("-* ")) for text in given for line in text.splitlines())
    return [line[:_LINE_CHARS] for line in lines if len(line) > 8 and not _is_framing(line)]


def _is_framing(line: str) -> bool:
    """What is no part of what was talked about: labels, and what the demo says of itself."""
    return bool(_LABEL.match(line) or OWN_LINE.match(line))


def _after_order(text: str) -> str:
    """What follows the last mention of the last section: there the conversation stands."""
    at = text.lower().rfind(SECTIONS[8].lower())
    return text[at + len(SECTIONS[8]) :]


def _section(number: int, lines: Sequence[str]) -> list[str]:
    if number == 0:
        return list(lines[:1])
    if number == 1:
        return [line for line in lines if "user" in line.lower()[:40]] or list(lines)
    if number in _SPEAKS_OF:
        return [line for line in lines if _SPEAKS_OF[number].search(line)]
    return list(lines[-2:] if number == 7 else lines[-1:])


def _fitting(lines: Sequence[str], room: int) -> str:
    """The newest lines that fit, in their order; a dash when there are none."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 3
        if room < 0:
            break
        kept.append(f"- {line}")
    return "\n".join(reversed(kept)) or "- None."
