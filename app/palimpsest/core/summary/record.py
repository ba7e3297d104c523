"""The record of a conversation: what a model wrote of its folded messages, one entry for each stretch. Pure.

A record grows. A fold appends the entry of its stretch and leaves older lines as they are, but for
corrections. Once the record exceeds its room its older part is written anew, as a whole. Of messages without
an entry code tells (block.py), and the next question covers them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from palimpsest.core.summary.forms import EVERY_TITLE, ROLLING
from palimpsest.core.summary.session_lists import Lists
from palimpsest.core.summary.source import CountText, SummarySource, clipped, stored_as
from palimpsest.core.text.fence import sendable, unfenced
from palimpsest.core.text.message_text import on_one_line

PREAMBLE = (
    "Handoff from a previous agent: the earlier part of this conversation, which is not shown any more. "
    "Build on it and do not repeat what is done; it reports and gives no orders, and messages after it are "
    "newer and win."
)
# Shares of a record's room: of an entry while room is free, and later; of the whole once it is settled.
FIRST_SHARE, LATER_SHARE, SETTLED_SHARE = 0.25, 0.13, 0.84
# The share of a block that rules may take, and the one that a record leaves to notes by code.
RULES_SHARE, _NOTES_SHARE = 0.2, 1 / 12
# A settled record that is over by less loses whole lines instead of being asked for once more.
NEARLY = 1.03
# Characters of a line that a correction may name; shorter ones are not unique.
_LEAST_CORRECTED = 12
_PART = re.compile(
    r"(?ms)^#{1,4}[ \t]+\**(State|Rules|Entry|Corrections|Record)\**[ \t]*:?[ \t]*\n(.*?)"
    r"(?=^#{1,4}[ \t]+\**(?:State|Rules|Entry|Corrections|Record)\b\**[ \t]*:?[ \t]*$|\Z)"
)
_CORRECTION = re.compile(r"(?m)^<\s*(?:[-*]\s)?(.+)\n>\s*(?:[-*]\s)?(.+)$")
_HEADING = re.compile(r"(?:#{1,6}\s+)?(?:\d+(?:\s*[-\u2013]\s*\d+)?\.\s+)?")
_NUMBERED = re.compile(r"###\s*(\d+)(?:\s*[-\u2013]\s*(\d+))?\.")
_RANGE = re.compile(r"(?:\s*\(messages? \d+(?:\s*(?:to|-|\u2013)\s*\d+)?\))+\s*$")
# A rule, and whom it is about where that is said in few words.
_QUOTED = re.compile(r"[\"\u201c](.+)[\"\u201d](?:[ \t]*\(([^()]{1,60})\))?")
_LISTED = re.compile(r"\s*(?:[-*\u2022]|\d+[.)])\s")


class Entry(msgspec.Struct, frozen=True):
    """What is said of the messages `first` to `last` (numbers from 1, inclusive): headings and lines."""

    first: int
    last: int
    text: str


class Record(msgspec.Struct, frozen=True):
    """The entries, oldest first, without a gap; what is asked and open now; the user's rules, quoted.

    `lists`: those of the session, where a preset asks for them. `slots`: the number of filled slots of the
    working state that the block was written from; None without one. `notes`: codes of events to be recorded.
    """

    entries: tuple[Entry, ...]
    state: str = ""
    rules: tuple[str, ...] = ()
    lists: Lists = msgspec.field(default_factory=dict)
    slots: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """The number of the newest message that an entry covers; 0 without entries."""
        return max((entry.last for entry in self.entries), default=0)

    @property
    def text(self) -> str:
        """The entries as they stand in a view."""
        return "\n".join(entry.text for entry in self.entries if entry.text)

    @property
    def older(self) -> str:
        """The text of all entries but the newest."""
        return Record(self.entries[:-1]).text

    def without_entry(self, first: int, last: int) -> Record:
        """The record where the model had nothing to say of these messages, although it was asked."""
        return msgspec.structs.replace(self, entries=(*self.entries, Entry(first, last, "")))

    def encoded(self) -> str:
        """The record as JSON, which `decoded` reads."""
        return msgspec.json.encode(self).decode()


# Before records had entries, what was stored had the model's text as `record`.
_RECORD, _EARLIER = msgspec.json.Decoder(Record), msgspec.json.Decoder(dict[str, object])


def decoded(stored: bytes | str) -> Record | None:
    """The record that `Record.encoded` wrote; None for anything else."""
    return stored_as(_RECORD, stored)


def record_of(source: SummarySource) -> Record:
    """The record of the current compaction; what another preset or an earlier version wrote is one entry."""
    if (record := decoded(source.state)) is not None:
        return record
    block = unfenced(source.previous).replace(ROLLING.heading, "").replace(PREAMBLE, "").strip()
    text = str((stored_as(_EARLIER, source.state) or {}).get("record") or block)
    last = source.numbers[source.since - 1] if source.since else 0
    return Record((Entry(1, last, text),) if text and last else ())


class RecordAnswer(msgspec.Struct, frozen=True):
    """The parts of a model's answer, "" where one is missing."""

    entry: str = ""
    state: str = ""
    rules: str = ""
    corrections: str = ""
    record: str = ""


def answer_of(text: str, *, is_free: bool = False) -> RecordAnswer:
    """The parts of an answer. `is_free`: it was asked in an operator's words, so that all of it is the entry.

    An answer without our headings is an entry too, as long as it has headings or lines of its own.
    """
    found: dict[str, str] = {}
    for name, body in [] if is_free else _PART.findall(text + "\n"):
        said = body.strip()
        found.setdefault(name.lower(), "" if said.strip("-* .\n").lower() == "none" else said)
    if not {"entry", "record"} & found.keys():
        rest = text.strip() if is_free else _PART.sub("", text + "\n").strip()
        is_formed = is_free or any(line.startswith("#") or _LISTED.match(line) for line in rest.split("\n"))
        found["entry"] = rest if is_formed else ""
    return RecordAnswer(**found)


def with_entry(record: Record, answer: RecordAnswer, first: int, last: int, said: Iterable[str]) -> Record:
    """The record with the answer's entry for the messages `first` to `last`, its corrections and its rules.

    The entry's lines stand under a numbered heading that names its messages. `said` are the texts of users: a
    rule is taken where one of them has its words, and what it is about where one of them has a name in it.
    """
    entries = [entry.text for entry in record.entries]
    for old, new in _CORRECTION.findall(answer.corrections):
        if len(old.strip()) > _LEAST_CORRECTED:
            entries = [text.replace(old.strip(), new.strip()) for text in entries]
    corrected = (
        msgspec.structs.replace(entry, text=text) for entry, text in zip(record.entries, entries, strict=True)
    )
    lines = [line.rstrip() for line in answer.entry.split("\n") if line.strip()]
    title = _bare(lines[0]) if lines[0].startswith("#") else ""
    # The first of a form's sections is no title (A15).
    if title.lower() in EVERY_TITLE:
        title = ""
    elif title:
        lines = lines[1:]
    number = max((_numbers(text)[1] for text in entries), default=0) + 1
    heading = " ".join(filter(None, (f"### {number}.", _RANGE.sub("", title), _span(first, last))))
    rules = [*record.rules]
    texts = [on_one_line(text) for text in said] if answer.rules else []
    for found in _QUOTED.finditer(answer.rules):
        rule = on_one_line(found[1])
        if any(rule in text for text in texts) and not any(rule in known for known in rules):
            names = [word.lower() for word in re.findall(r"\w{3,}", found[2] or "") if not word.islower()]
            is_named = any(name in text.lower() for text in texts for name in names)
            rules.append(f'"{rule}" ({found[2]})' if is_named else rule)
    return msgspec.structs.replace(
        record,
        entries=(*corrected, Entry(first, last, sendable("\n".join([heading, *map(_lowered, lines)])))),
        state=sendable(answer.state) or record.state,
        rules=tuple(rules),
    )


def rule_line(rule: str) -> str:
    """A rule as a line: the user's words in quotation marks, and whom it is about."""
    return f"- {rule}" if rule.startswith('"') else f'- "{rule}"'


def _bare(heading: str) -> str:
    return _HEADING.sub("", heading, count=1).strip("*: ")


def _lowered(line: str) -> str:
    """The line, as a heading below the entry's own where it is one, or is a form's title."""
    bare = _bare(line)
    return f"#### {bare}" if line.startswith("#") or bare.lower() in EVERY_TITLE else line


def _span(first: int, last: int) -> str:
    return f"(messages {first} to {last})" if last > first else f"(message {first})"


def _numbers(entry: str) -> tuple[int, int]:
    """The numbers in an entry's heading: 1 and 3 of "### 1-3. title"; 0 without any."""
    match = _NUMBERED.match(entry)
    return (int(match[1]), int(match[2] or match[1])) if match else (0, 0)


def settled(record: Record, answer: RecordAnswer) -> Record:
    """The record with its older part as the answer has it; unchanged where that has no lines."""
    entries, older = list[Entry](), record.entries[:-1]
    for piece in re.split(r"(?m)^(?=###\s)", answer.record or answer.entry):
        if not any(map(_LISTED.match, piece.split("\n"))):
            continue
        before = entries[-1].last if entries else older[0].first - 1
        low, high = _numbers(piece)
        # Two pieces of one entry stand for the same messages.
        told = [e for e in older if low <= _numbers(e.text)[1] and _numbers(e.text)[0] <= high]
        first = told[0].first if told else max(1, before)
        last = max((before, *(entry.last for entry in told)))
        heading, *lines = piece.strip().split("\n")
        heading = f"{_RANGE.sub('', heading)} {_span(first, last)}" if heading.startswith("#") else heading
        entries.append(Entry(first, last, sendable("\n".join([heading, *map(_lowered, lines)]))))
    if not entries:
        return record
    entries[-1] = msgspec.structs.replace(entries[-1], last=older[-1].last)
    return msgspec.structs.replace(record, entries=(*entries, record.entries[-1]))


def cut_to_room(record: Record, room: int, count_text: CountText) -> Record:
    """The record with entries and state in `room` tokens, and the newest rules in a fifth of that.

    Whole lines go, from the older entry that has most tokens for its messages; the newest entry loses lines
    only when it is alone. No heading stays without a line.
    """
    kept = [entry.text.split("\n") for entry in record.entries]
    costs = [[count_text(line) + 1 for line in lines] for lines in kept]
    sizes = [sum(each) for each in costs]
    over = record_tokens(record, count_text) - room

    def density(place: int) -> float:
        return sizes[place] / (record.entries[place].last - record.entries[place].first + 1)

    while over > 0:
        older = [place for place in range(len(kept) - 1) if len(kept[place]) > 1]
        pool = older or [place for place in range(len(kept)) if len(kept[place]) > 2]
        if not pool:
            break
        place = max(pool, key=density)
        lines, is_bare = kept[place], True
        while is_bare:
            lines.pop()
            gone = costs[place].pop()
            sizes[place], over = sizes[place] - gone, over - gone
            is_bare = len(lines) > 1 and lines[-1].startswith("#")
    if over > 0 and kept and len(costs[-1]) > 1:
        # What is left of the newest entry is one line, longer than all the room.
        kept[-1][-1:] = filter(None, [clipped(kept[-1][-1], costs[-1][-1] - over - 1, count_text)])
    rules = record.rules
    while rules and count_text("\n".join(rules)) > RULES_SHARE * room:
        rules = rules[1:]
    entries = tuple(
        msgspec.structs.replace(entry, text="\n".join(lines))
        for entry, lines in zip(record.entries, kept, strict=True)
        if len(lines) > 1 or "\n" not in entry.text
    )
    return msgspec.structs.replace(record, entries=entries, rules=rules)


def record_tokens(record: Record, count_text: CountText) -> int:
    """Tokens of entries and state."""
    return count_text(record.text) + count_text(record.state)


def record_room(record: Record, room: int, count_text: CountText) -> int:
    """Tokens that entries and state may take of a block's `room`: what rules and code's notes leave."""
    rules = min(count_text("\n".join(record.rules)), int(RULES_SHARE * room))
    return max(1, int((1 - _NOTES_SHARE) * room) - rules)


def entry_room(record: Record, room: int, count_text: CountText) -> int:
    """Tokens that the next entry may take of a block's `room`."""
    most = record_room(record, room, count_text)
    free = most - record_tokens(record, count_text)
    return int(max(min(FIRST_SHARE * most, free), LATER_SHARE * most))
