"""Decisions, discoveries and notes in what an assistant says (D07, D08, D09), by tables of cue words.

English, like the sources'. Knows nothing of states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.core.notes.phrases import decides, discovers
from app.core.notes.sentences import sentences_of
from app.core.summary.working.clipping import clipped, clipped_line
from app.core.summary.working.limits import SlotLimits

_MARKUP = re.compile(r"\*\*|^[\s>#*•-]+(?=\S)|^\d+[.)]\s+")
_REASON = re.compile(r"\bbecause\b", re.IGNORECASE)
_FILLS = re.compile(
    r"(?:thanks?|hi|hello|hey|great|sure|ok|okay|certainly|sorry|glad|perfect|excellent|good|alright"
    r"|all right|absolutely|of course|understood|got it|noted|you['’]re (?:right|welcome)|happy to"
    r"|feel free|here (?:is|are|you go)|here['’]s"
    r"|(?:now |next,? |first,? |then,? )*(?:let me|i['’]?ll|i will|i['’]?m going to) "
    r"(?:now |first |just |quickly |also )*"
    r"(?:check|look|read|see|start|begin|take|run|help|know|view|examine|explore|search)"
    r"|let me know|is there anything|would you like|do you want|anything else)\b",
    re.IGNORECASE,
)
# Letters and digits; a shorter sentence says nothing of substance.
_LEAST_CHARS = 20
_LEAST_WORDS = 4
# A sentence with something exact in it is worth more than one without.
_EXACT = re.compile(r"\d|\w[/._]\w|[`\"]|[a-z][A-Z]|\b[A-Z]{2,}\b")


@dataclass(frozen=True, slots=True)
class Phrases:
    """What one text says, each in the order of the text."""

    decisions: tuple[str, ...]
    discoveries: tuple[str, ...]
    note: str


def phrases_of(text: str, limits: SlotLimits) -> Phrases:
    """The decisions, discoveries and substantive sentences of an assistant's text; code left out."""
    decisions: list[str] = []
    discoveries: list[str] = []
    others: list[str] = []
    for sentence in _plain(text):
        finds = _captured(sentence, discovers(sentence), limits.discovery_chars, limits)
        decides = "" if sentence.endswith("?") else _decision(sentence, limits)
        if finds:
            discoveries.append(finds)
        if decides:
            decisions.append(decides)
        if sentence not in (finds, decides) and _is_substantive(sentence):
            others.append(sentence)
    return Phrases(tuple(decisions), tuple(discoveries), _note(others, limits))


def _plain(text: str) -> Iterator[str]:
    for sentence in sentences_of(text):
        plain = " ".join(_MARKUP.sub("", sentence).split())
        if plain:
            yield plain


def _decision(sentence: str, limits: SlotLimits) -> str:
    cue = decides(sentence)
    if cue:
        return _captured(sentence, cue, limits.decision_chars, limits)
    reason = _REASON.search(sentence)
    if reason is None:
        return ""
    # A reason alone says nothing: as much of what it is for as there is room for.
    start = max(0, reason.start() - limits.decision_chars // 2)
    blank = sentence.find(" ", start) + 1 if start else 0
    return _captured(
        sentence[blank:], _REASON.search(sentence[blank:]), limits.decision_chars, limits, whole=True
    )


def _captured(
    sentence: str, cue: re.Match[str] | None, most: int, limits: SlotLimits, whole: bool = False
) -> str:
    """The sentence, or when it is too long what begins at the cue; "" when too little is said."""
    if cue is None or len(sentence[cue.end() :].strip(" .!,;:")) < limits.least_capture_chars:
        return ""
    return clipped(sentence if whole or len(sentence) <= most else sentence[cue.start() :], most)


def _is_substantive(sentence: str) -> bool:
    words = sentence.split()
    return len(sentence) >= _LEAST_CHARS and len(words) >= _LEAST_WORDS and not _FILLS.match(sentence)


def _note(found: list[str], limits: SlotLimits) -> str:
    """The sentences that say most, in their order: exact ones before others, later before earlier."""
    places = sorted(range(len(found)), key=lambda place: (not _EXACT.search(found[place]), -place))
    chosen: list[int] = []
    room = limits.note_chars
    for place in places:
        if len(chosen) < limits.note_sentences and len(found[place]) + 1 <= room:
            chosen.append(place)
            room -= len(found[place]) + 1
    if found and not chosen:
        return clipped_line(found[places[0]], limits.note_chars)
    return " ".join(found[place] for place in sorted(chosen))
