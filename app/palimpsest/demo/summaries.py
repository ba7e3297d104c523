"""The demo model's summaries, under the headings that a request for one names.

They contain only lines of the text to be summarized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from palimpsest.core.summary.forms import TITLES
from palimpsest.core.summary.record import PREAMBLE
from palimpsest.demo.model import ERROR, OWN_LINE, ShownMessage

_REQUEST, _USER, _WORK, _ERRORS, _DETAILS, _DECISIONS, _PENDING, _STATE, _NEXT = range(len(TITLES))
# Which of these a heading means, by its words; the first that matches counts.
_HEADINGS = (
    (re.compile(r"intent|\btask", re.I), (_REQUEST,)),
    (re.compile(r"user|requirement", re.I), (_USER,)),
    (re.compile(r"key facts", re.I), (_DECISIONS, _ERRORS, _DETAILS)),
    (re.compile(r"flow", re.I), (_USER, _WORK)),
    (re.compile(r"thread|pending", re.I), (_PENDING,)),
    (re.compile(r"work", re.I), (_WORK,)),
    (re.compile(r"error", re.I), (_ERRORS,)),
    (re.compile(r"technical|environment", re.I), (_DETAILS,)),
    (re.compile(r"decision", re.I), (_DECISIONS,)),
    (re.compile(r"state", re.I), (_STATE,)),
    (re.compile(r"next step", re.I), (_NEXT,)),
)
# A summary without headings has lines of these.
_ALL = (_REQUEST, _USER, _WORK, _ERRORS, _DETAILS, _DECISIONS, _PENDING)
_ANYBODY = ("user", "assistant", "tool")
# The words of lines that belong to a section, and whose lines they are; the first that matches has the line.
_SECTION_WORDS = (
    (
        _DECISIONS,
        _ANYBODY,
        re.compile(r"\b(decision|decided|choose|chose|will use|going to|because|prefer)\b", re.I),
    ),
    (
        _PENDING,
        _ANYBODY,
        re.compile(r"\b(todo|pending|later|still|next|remaining|must|waits?|until)\b", re.I),
    ),
    (_USER, ("user",), re.compile("")),
    (_ERRORS, _ANYBODY, re.compile(rf"{ERROR.pattern}|\bfix\b", re.I)),
    (
        _WORK,
        _ANYBODY,
        re.compile(
            r"\b(done|created|wrote|added|finished|completed|fixed|replaced|pass(ed)?|deployed)\b", re.I
        ),
    ),
    # What only a tool said is left out, as a terse model would: it is there to be looked up.
    (_DETAILS, ("assistant",), re.compile(r"\b\d[\w.,:-]*\b|[\w-]+/[\w./-]+|`[^`]+`")),
)
# Questions for a record; those of `worker`, of the memory block.
_ORDER = re.compile(
    r"## Entry.*## Corrections|heading ## Record|summar.*(?:data about the past|both are data)", re.I | re.S
)
# Lines of the request around the conversation: headings, fences, names of parts, the final instruction.
_LABEL = re.compile(r"[<#`>]|[A-Z_]+$|none\b|-?> calls |summar", re.I)
# The beginning of a part of the request.
_PART = re.compile(r"(PREVIOUS_SUMMARY|CONVERSATION)(?: \(|$)|</?[\w-]+>(?:$| \()|Both are data")
_HEADING = re.compile(r"#{2,4} (?:\d\. )?(.+)")
# What asks for an entry of a record, and for its older part anew.
_ENTRY, _SETTLED = "## Entry", "heading ## Record"
# The headings that a request names for the lines of an entry.
_TITLES = re.compile(r"^#### (.+?) \(", re.MULTILINE)
# The label with role and number before the first line of each message.
_SPEAKER = re.compile(r"^([A-Z]+) \[\d+(?:, continued)?\]: ", re.MULTILINE)
_DIGITS = re.compile(r"\d+")
_NOTHING = "- None."
_LINE_CHARS = 240
# A cautious estimate for English.
_CHARS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the conversation; the role is empty where it is not known."""

    role: str
    text: str
    section: int | None = None
    """Where an earlier summary had it."""

    @property
    def likeness(self) -> str:
        """Equal for lines of a listing, which differ in their numbers only, and for equal lines."""
        return _DIGITS.sub("0", self.text) if self.role == "tool" else self.text

    @property
    def place(self) -> int | None:
        """The section that it belongs to, if it belongs to any."""
        if self.section is not None:
            return self.section
        matching = (
            number
            for number, roles, words in _SECTION_WORDS
            if self.role in roles and words.search(self.text)
        )
        return next(matching, None)


def asks_for_summary(messages: Sequence[ShownMessage]) -> bool:
    """True when the first or last message asks for a summary; elsewhere it is history."""
    return _order_in(messages) is not None


def summary_of(messages: Sequence[ShownMessage], max_tokens: int) -> str:
    """The sections that the request names within `max_tokens`; newer lines take precedence."""
    order = _order_in(messages)
    asked = order.text if order else ""
    # Of a listing the last line stands for all.
    last = {line.likeness: line for line in _lines(messages, order)}
    lines = list({line.text: line for line in last.values()}.values())
    if _SETTLED in asked:
        older = re.findall("(?m)^- (.+)", asked.partition("</older-part>")[0])
        return f"## Record\n### 1. Until then\n{_newest_that_fit(older, max_tokens * _CHARS_PER_TOKEN // 2)}"
    form = asked.rpartition(_ENTRY)[2]
    if _ENTRY in asked:
        return _entry(lines, _TITLES.findall(form), "## Changes" in form, max_tokens * _CHARS_PER_TOKEN)
    texts = [line.text for line in lines if line.place in _ALL]
    return _newest_that_fit(texts, max_tokens * _CHARS_PER_TOKEN)


def _entry(lines: Sequence[_Line], titles: Sequence[str], has_lists: bool, room: int) -> str:
    """The parts of a record's answer: what is asked and done now, and lines of the new messages."""
    state = _newest_that_fit([*_section((_STATE,), lines), *_section((_NEXT,), lines)], room // 4)
    about = next((line.text for line in lines if line.role == "user"), "The conversation")
    each = room // 2 // max(1, len(titles))
    said = [f"#### {title}\n{_newest_that_fit(_section(_kinds(title), lines), each)}" for title in titles]
    said = said or [_newest_that_fit([line.text for line in lines if line.place in _ALL], each)]
    entry = "\n".join((f"### {' '.join(about.split()[:8])}", *said))
    # `rolling` also asks for the changes of the session's lists: none.
    changes = "\n## Changes\n```json\n{}\n```" if has_lists else ""
    return f"## State\n{state}\n## Rules\nnone\n## Entry\n{entry}\n## Corrections\nnone{changes}"


def _order_in(messages: Sequence[ShownMessage]) -> ShownMessage | None:
    # A summary among the messages begins with its tag, and is data about the past too.
    asking = (m for m in (*messages[:1], *messages[-1:]) if _ORDER.search(m.text))
    return next((m for m in asking if not m.text.startswith("<palimpsest")), None)


def _kinds(title: str) -> tuple[int, ...]:
    return next((kinds for words, kinds in _HEADINGS if words.search(title)), ())


def _lines(messages: Sequence[ShownMessage], order: ShownMessage | None) -> Iterator[_Line]:
    """Lines of the conversation itself, without the instruction to summarize, headings and labels."""
    # What an earlier record says stands in the record already.
    for message in messages:
        is_asked = message is order and len(messages) > 1 and "</new-messages>" not in message.text
        if is_asked or PREAMBLE[:30] in message.text[:200]:
            continue
        # A prompt that contains the conversation names who speaks; elsewhere the message's role does.
        contains = message is order or bool(_SPEAKER.search(message.text))
        role, section = "system" if contains else message.role, None
        for whole in message.text.splitlines():
            line = whole.strip().lstrip("-* ")
            if heading := _HEADING.match(line):
                section = next(iter(_kinds(heading[1])), None)
            elif _PART.match(line):
                role, section = "system", None
            elif speaker := _SPEAKER.match(line):
                role, section, line = speaker[1].lower(), None, line[speaker.end() :]
            # Labels and the demo's own lines are not part of the conversation.
            is_said = len(line) > 8 and not _LABEL.match(line) and not OWN_LINE.match(line)
            if is_said and (role != "system" or section is not None):
                yield _Line("" if section is not None else role, line[:_LINE_CHARS], section)


def _section(kinds: Sequence[int], lines: Sequence[_Line]) -> list[str]:
    """The lines of a section: the first one has the first request, the last two are told anew each time."""
    there = [line.text for line in lines if line.place in kinds]
    new = [line for line in lines if line.section is None]
    said = [line.text for line in new if line.role == "user"]
    match tuple(kinds):
        case (0,):
            return (there or said or [line.text for line in lines])[:1]
        case (7,):
            return [line.text for line in new if line.role != "user"][-1:] or there
        case (8,):
            return said[-1:] or there
    return there


def _newest_that_fit(lines: Sequence[str], room: int) -> str:
    """The newest lines that fit, in their order; a dash when there are none."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 3
        if room < 0:
            break
        kept.append(f"- {line}")
    return "\n".join(reversed(kept)) or _NOTHING
