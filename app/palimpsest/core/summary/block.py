"""The block of a record: the user's rules, the entries, what code adds from the messages, and the state.

Code tells what no entry covers, and what must stand whatever a model wrote, unless the entries say it. Its
notes are read from the messages anew at every fold, never from the text of an earlier block. The same input
gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from palimpsest.core.notes.choice import Choice, NoteBudget, chosen_notes, line_of
from palimpsest.core.notes.note import Kind, Note
from palimpsest.core.notes.reader import notes_of_fold
from palimpsest.core.summary.forms import EVERY_TITLE, Form
from palimpsest.core.summary.record import (
    PREAMBLE,
    RULES_SHARE,
    Record,
    cut_to_room,
    record_tokens,
    rule_line,
)
from palimpsest.core.summary.source import CountText, SummarySource
from palimpsest.core.text.fence import fenced
from palimpsest.core.text.message_text import text_with_calls

_LEFT_OUT = "- {} more such lines had no room here."
_RULES = "Rules of the user, word for word"
_SAID = "Said and done, by the number of the message"
# The parts by code: title and kinds of notes, the rules first, what is open last.
_PARTS: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    (_RULES, ("rule",)),
    (_SAID, ("request", "fact", "picture", "change", "command", "failure", "read")),
    ("Open", ("open",)),
    ("Task list as last written", ("task",)),
)
_STATE, _RECORD = "State", "Record"
# The least shares of a block: of code beside a model's record, and of a record beside code's notes.
_FLOORS_SHARE, _RECORD_SHARE = 1 / 6, 1 / 12
# Words of a run, runs that are enough to judge, and the shares of copied runs from which on code has more
# room, and most of it.
_RUN, _FEW_RUNS, _WRITTEN, _COPIED = 7, 8, 0.15, 0.5
# The share of a block that rules by code may take.
_CODE_RULES_SHARE = 0.6
# The factor by which the room shrinks where the frame takes more, and a record's where notes take more.
_SHRINKING = 0.9
# A word with a capital inside a sentence, or any other; a name has a digit or a mark inside, and not too
# many characters. Nothing here looks ahead: a word may be a megabyte.
_WORD = re.compile(r"((?<=[a-z,] )[A-Z][a-z]{2,}\b)|\w(?:[\w.:/-]*\w)?")
_MARKED, _NAME_CHARS = re.compile(r"[\d_./:-]"), range(3, 200)
# Rare words of a line: values (numbers, paths) and long words.
_LEAST_WORDS, _VALUE, _LONG = 2, re.compile(r"[\d_./]"), re.compile(r"[^\W\d_]{5,}")
# Ids and numbers: words with a digit, or in capitals. Characters of a call's verb: "cancel" of "cancelled".
_VERB_CHARS = 5
_ID = re.compile(r"-?\b(?=\w*\d)\w+\b|\b[A-Z]{3,}\b")
_STATES = {"created": "creat", "edited": "edit", "deleted": "delet", "moved": "mov"}


@dataclass(frozen=True, slots=True)
class Frame:
    """The bounds of a block: at most `tokens` by `count_text`, between tags `tag`."""

    tokens: int
    count_text: CountText
    tag: str


def record_block(
    source: SummarySource, record: Record, frame: Frame, form: Form, own: Sequence[tuple[str, str]] = ()
) -> str:
    """The fenced block in at most `frame.tokens`, in a preset's form; `own`: its own lines (title, line)."""
    count = frame.count_text
    notes = notes_of_fold(source.folded, source.tail, turns=1 if source.task else 0)
    by_code = _share_of_code(record, source) if record.entries else 1.0
    record = cut_to_room(record, frame.tokens, count)
    empty = _fenced(record, Choice(count, line_of), frame.tag, form, own)
    room = frame.tokens - count(empty) + record_tokens(record, count)
    for_record = room * (1 - by_code)
    while room > 0:
        shown = cut_to_room(record, int(for_record), count)
        # What a record loses to the user's rules is not for other notes.
        most = cut_to_room(record, int(room * (1 - by_code)), count)
        said = RecordLines("\n".join((shown.text, shown.state, *record.rules)), source.task)
        free = max(0, room - record_tokens(record, count))
        rest = max(int(room * by_code), room - record_tokens(most, count))
        # A record that is not copied keeps its room: only floors may take some of it. None loses all of it.
        pieces = free if by_code <= _FLOORS_SHARE else max(free, by_code * room)
        whole = room - min(record_tokens(record, count), int(_RECORD_SHARE * room))
        rules = int(max(RULES_SHARE, _CODE_RULES_SHARE * by_code) * room)
        choice = chosen_notes(
            notes,
            range(len(source.folded)),
            NoteBudget(min(rest, whole), rules, pieces, whole),
            count,
            said.says,
            lambda note: _numbered(note, source.numbers),
        )
        if for_record >= 1 and choice.tokens + record_tokens(shown, count) > room:
            # Lines that notes were left out for have no room: they are told by the notes.
            for_record = min(room - choice.tokens, _SHRINKING * for_record)
            continue
        shown = replace(cut_to_room(record, room - choice.tokens, count), rules=record.rules)
        text = _fenced(shown, choice, frame.tag, form, own)
        over = count(text) - frame.tokens
        if over <= 0:
            return text
        room = min(room - over, int(room * _SHRINKING))
        for_record = room * (1 - by_code)
    return fenced(PREAMBLE, frame.tag)


def _share_of_code(record: Record, source: SummarySource) -> float:
    """The share of a block for code's notes: a sixth, and more the more of the record is copied.

    Who copies lines of the messages tells no more than code does, which chooses among all of them. Compared
    are runs of seven words.
    """
    said = _plain("\n".join(text_with_calls(message) for _, message in source.folded))
    lines = (_plain(line).split() for line in record.text.split("\n"))
    runs = [
        " ".join(words[at : at + _RUN]) for words in lines for at in range(1, len(words) - _RUN + 1, _RUN)
    ]
    copied = sum(run in said for run in runs) / max(_FEW_RUNS, len(runs))
    share = (copied - _WRITTEN) / (_COPIED - _WRITTEN)
    return max(_FLOORS_SHARE, min(1.0, share) * (1 - _FLOORS_SHARE))


def _fenced(record: Record, choice: Choice, tag: str, form: Form, own: Sequence[tuple[str, str]] = ()) -> str:
    """The block: rules, record, what code adds, state; or the form's sections."""
    rules = [*map(rule_line, record.rules)]
    if form.sections:
        parts = _sectioned(record, choice, rules, form, own)
    else:
        parts = {
            title: [_guarded(choice.line(note)) for note in choice.of(*kinds)] for title, kinds in _PARTS
        }
        parts = {_RULES: [*rules, *parts.pop(_RULES)], _RECORD: [record.text], **parts}
    if choice.left_out:
        parts["More"] = [_LEFT_OUT.format(choice.left_out)]
    if not form.sections:
        parts[_STATE] = [_guarded(record.state)]
    body = "\n".join(f"## {title}\n" + "\n".join(lines) for title, lines in parts.items() if any(lines))
    return fenced(f"{form.heading}{PREAMBLE}\n\n{body}", tag)


def _numbered(note: Note, numbers: Sequence[int]) -> str:
    """The note's line; what was said and done has the number of its message."""
    line = line_of(note)
    return f"- {numbers[note.place]} {line.removeprefix('- ')}" if note.kind in _PARTS[1][1] else line


def _sectioned(
    record: Record, choice: Choice, rules: Sequence[str], form: Form, own: Sequence[tuple[str, str]]
) -> dict[str, list[str]]:
    """The sections: lines of entries where they belong, unless code alone writes there, then code's notes.

    All words of the user stand in one section, in order: a newer value comes later.
    """
    shown = form.titles
    by_heading = {name.lower(): title for title, full in shown.items() for name in (title, full)}
    by_model = {section.title for section in form.sections if section.content}
    parts: dict[str, list[str]] = {title: [] for title in shown}
    for entry in record.entries:
        title = form.rest
        for line in entry.text.split("\n"):
            if line.startswith("#"):
                name = line.strip("# ").lower()
                # A heading of another preset's form is none of this one.
                title = by_heading.get(name, form.rest if name in EVERY_TITLE else title)
            elif title in by_model:
                parts[title].append(line)
    parts[form.title_with("rule")] += rules
    parts[form.state] += [_guarded(record.state)] if record.state else []
    first = choice.of("request")[:1] if not (form.is_numbered and record.entries) else []
    for note in sorted(choice.notes, key=lambda note: (note.kind != "rule", note.place)):
        title = form.title_with("first") if note in first else form.title_of(note)
        parts[title].append(_guarded(choice.line(note)))
    for title, line in own:
        if not any(line.removeprefix("- ") in each for each in parts[title]):
            parts[title].append(_guarded(line))
    return {shown[title]: lines for title, lines in parts.items()}


def _guarded(text: str) -> str:
    """`text` with a backslash before each line that would read as a heading of the block."""
    return re.sub(r"(?m)^(?=\\*#{1,3} )", r"\\", text)


class RecordLines:
    """The lines of a record, and the task that every view shows, to compare notes with."""

    def __init__(self, record: str, task: str = "") -> None:
        self._task = _plain(task)
        self._lines = [_plain(line) for line in record.split("\n") if line.strip()]
        self._text = "\n".join(self._lines)
        self._ids = {each.lstrip("-").lower() for each in _ID.findall(record)}

    def says(self, note: Note) -> bool:
        """True when one line has all rare words of the note; rules, tasks and commands must be verbatim.

        Of a call that changed something its first id is enough, with half of what came of it or its verb.
        """
        said = _plain(note.text)
        if note.kind == "fact" and said in self._task:
            return True
        if not self._text or said in self._text or note.kind in ("rule", "task", "open", "command"):
            return self._text != "" and said in self._text
        words = [found[0] for found in _WORD.finditer(said)]
        wanted = {each for word in words for each in ([word] if _VALUE.search(word) else _LONG.findall(word))}
        if note.kind == "change" and note.subject:
            if (state := note.text.partition(" ")[0]) not in _STATES:
                call, _, outcome = note.text.partition(": ")
                key = next(iter(_ID.findall(call.removeprefix(note.subject))), "").lower()
                values = {value.lstrip("-").lower() for value in _ID.findall(outcome)}
                if not key or (values and key in self._text and 2 * len(values & self._ids) >= len(values)):
                    return key != ""
                verb = re.split(r"[_\W]", note.subject.lower())[0][:_VERB_CHARS]
                return any(key in line and verb in line for line in self._lines)
            wanted = {_plain(note.subject.rsplit("/", 1)[-1]), _STATES[state]}
        # One word tells nothing, and most notes have a word that no line has.
        if len(wanted) < _LEAST_WORDS or any(word not in self._text for word in wanted):
            return False
        return any(all(word in line for word in wanted) for line in self._lines)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
