"""The block of a record: the user's rules, the entries, what code adds from the messages, and the state.

Code tells what no entry covers, and what must stand whatever a model wrote, unless the entries say it. Its
notes are read from the messages anew at every fold, never from the text of an earlier block. The same input
gives the same bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from palimpsest.core.notes.choice import Choice, NoteBudget, chosen_notes, line_of
from palimpsest.core.notes.note import Kind, Note
from palimpsest.core.notes.reader import notes_of_fold
from palimpsest.core.summary.record import PREAMBLE, Record, cut_to_room
from palimpsest.core.summary.sections import TITLES
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
# The same in nine sections (A15). All words of the user stand in one, in order: a newer value comes later.
_NINE: Mapping[Kind, int] = {
    **{"rule": 2, "request": 2, "change": 3, "outcome": 3, "failure": 4, "fact": 5, "read": 5, "picture": 5},
    **{"open": 7, "task": 7, "command": 8},
}
_STATE, _RECORD = "State", "Record"
# The least share of a block that code has beside a model's record.
_FLOORS_SHARE = 1 / 6
# Names of a record, relative to those of notes of its size, below and above which its room is least and most.
_WORTHLESS, _WORTHY = 0.25, 0.75
# The share of a block that rules may take.
RULES_SHARE = 0.6
SHRINKING = 0.9  # The factor by which the room shrinks where the frame takes more.
# Rare words of a line: values (numbers, paths, names with marks inside) and long words.
_RARE = re.compile(r"[\w./:-]*\d[\w./:-]*|[\w-]+(?:[/._][\w-]+)+|[^\W\d_]{6,}")
# Names: words with a capital inside a sentence, with a digit, or with a mark inside.
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b|(?=[\w.:/-]*\d)\w[\w.:/-]+\w|\w+(?:[/._-]\w+)+")
_STATES = {"created": "creat", "edited": "edit", "deleted": "delet", "moved": "mov"}


@dataclass(frozen=True, slots=True)
class Frame:
    """The bounds of a block: at most `tokens` by `count_text`, between tags `tag`."""

    tokens: int
    count_text: CountText
    tag: str


def record_block(source: SummarySource, record: Record, frame: Frame, *, has_sections: bool) -> str:
    """The fenced block in at most `frame.tokens`; `has_sections`: in nine sections (A15)."""
    count = frame.count_text
    notes = notes_of_fold(source.folded, source.tail, turns=1 if source.task else 0)
    by_code = _share_of_code(source, record, notes, count) if record.entries else 1.0
    record = cut_to_room(record, frame.tokens, count)
    empty = _fenced(record, Choice(count, line_of), frame.tag, has_sections=has_sections)
    room = frame.tokens - count(empty) + count(record.text) + count(record.state)
    while room > 0:
        shown = cut_to_room(record, int(room * (1 - by_code)), count)
        said = RecordLines("\n".join((shown.text, shown.state, *record.rules)), source.task)
        rest = max(int(room * by_code), room - count(shown.text) - count(shown.state))
        choice = chosen_notes(
            notes,
            range(len(source.folded)),
            NoteBudget(rest, int(RULES_SHARE * room), by_code * room),
            count,
            said.says,
            lambda note: _numbered(note, source.numbers),
        )
        shown = replace(cut_to_room(record, room - choice.tokens, count), rules=record.rules)
        text = _fenced(shown, choice, frame.tag, has_sections=has_sections)
        over = count(text) - frame.tokens
        if over <= 0:
            return text
        room = min(room - over, int(room * SHRINKING))
    return fenced(PREAMBLE, frame.tag)


def _share_of_code(
    source: SummarySource, record: Record, notes: Sequence[Note], count_text: CountText
) -> float:
    """The share of a block for code's notes: a sixth, and more the less the record names beside them.

    Compared are the names (ids, paths, amounts, people) that a user said or that occur twice, in the record
    and in notes of the same size: where the record has twice as many the share is the least.
    """
    said: Counter[str] = Counter()
    for _, message in source.folded:
        names = map(str.lower, _NAME.findall(text_with_calls(message)))
        said.update(dict.fromkeys(names, 1 + (message.role == "user")))
    wanted = [name for name, times in said.items() if times > 1]
    written = f"{record.text}\n{record.state}"
    room = NoteBudget(count_text(written), count_text(written))
    choice = chosen_notes(notes, range(len(source.folded)), room, count_text, lambda _: False)
    by_model, by_code = written.lower(), "\n".join(map(line_of, choice.notes)).lower()
    known = sum(name in by_code for name in wanted)
    worth = sum(name in by_model for name in wanted) / known if known else 1
    most = 1 - _FLOORS_SHARE
    return min(most, max(_FLOORS_SHARE, most - (worth - _WORTHLESS) / (_WORTHY - _WORTHLESS) * most))


def _fenced(record: Record, choice: Choice, tag: str, *, has_sections: bool) -> str:
    """The block: rules, record, what code adds, state; or nine sections."""
    rules = [f'- "{rule}"' for rule in record.rules]
    if has_sections:
        parts = _nine(record, choice, rules)
    else:
        parts = {
            title: [_guarded(choice.line(note)) for note in choice.of(*kinds)] for title, kinds in _PARTS
        }
        parts = {_RULES: [*rules, *parts.pop(_RULES)], _RECORD: [record.text], **parts}
    if choice.left_out:
        parts["More"] = [left_out(choice)]
    if not has_sections:
        parts[_STATE] = [_guarded(record.state)]
    body = "\n".join(f"## {title}\n" + "\n".join(lines) for title, lines in parts.items() if any(lines))
    return fenced(f"{PREAMBLE}\n\n{body}", tag)


def _numbered(note: Note, numbers: Sequence[int]) -> str:
    """The note's line; what was said and done has the number of its message."""
    line = line_of(note)
    return f"- {numbers[note.place]} {line.removeprefix('- ')}" if note.kind in _PARTS[1][1] else line


def _nine(record: Record, choice: Choice, rules: Sequence[str]) -> dict[str, list[str]]:
    """The nine sections: rules and words of the user in the second, lines of entries where they belong."""
    parts: dict[int, list[str]] = {number: [] for number in range(1, 10)}
    for entry in record.entries:
        number = _NINE["change"]
        for line in entry.text.split("\n"):
            title = line.removeprefix("#### ")
            if line.startswith("#"):
                number = TITLES.index(title) + 1 if title in TITLES else number
            else:
                parts[number].append(line)
    parts[_NINE["rule"]] += rules
    parts[_NINE["command"]] += [_guarded(record.state)] if record.state else []
    first = choice.of("request")[:1] if not record.entries else []
    for note in sorted(choice.notes, key=lambda note: (note.kind != "rule", note.place)):
        number = 1 if note in first else 2 if (note.by, note.kind) == ("user", "fact") else _NINE[note.kind]
        parts[number].append(_guarded(choice.line(note)))
    return {f"{number}. {TITLES[number - 1]}": lines for number, lines in parts.items()}


def _guarded(text: str) -> str:
    """`text` with a backslash before each line that would read as a heading of the block."""
    return re.sub(r"(?m)^(?=\\*#{1,3} )", r"\\", text)


class RecordLines:
    """The lines of a record, and the task that every view shows, to compare notes with."""

    def __init__(self, record: str, task: str = "") -> None:
        self._task = _plain(task)
        self._lines = [_plain(line) for line in record.split("\n") if line.strip()]
        self._text = "\n".join(self._lines)

    def says(self, note: Note) -> bool:
        """True when one line has all rare words of the note; rules, tasks and commands must be verbatim."""
        if note.kind == "fact" and _plain(note.text) in self._task:
            return True
        if not self._text:
            return False
        is_verbatim = _plain(note.text) in self._text
        if is_verbatim or note.kind in ("rule", "task", "open", "command"):
            return is_verbatim
        wanted = {_plain(word) for word in _RARE.findall(note.text)}
        if note.kind == "change" and note.subject:
            state = note.text.partition(" ")[0]
            wanted = (
                {_plain(note.subject.rsplit("/", 1)[-1]), _STATES.get(state, "")}
                if state in _STATES
                else wanted
            )
        # Most notes have a word that no line has.
        if not wanted or any(word not in self._text for word in wanted):
            return False
        return any(all(word in line for word in wanted) for line in self._lines)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def left_out(choice: Choice) -> str:
    """A line with the number of floors that had no room; "" when all had."""
    return _LEFT_OUT.format(choice.left_out) if choice.left_out else ""
