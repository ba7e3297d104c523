"""The block of the handoff style: a model's record, followed by notes on the messages.

Without a record the block has the notes alone, in the same nine sections. Notes are read from the messages
anew at every fold, never from the text of an earlier block. The same input gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from palimpsest.core.notes.choice import Choice, NoteBudget, chosen_notes, line_of
from palimpsest.core.notes.facts import frame_outline
from palimpsest.core.notes.note import Kind, Note
from palimpsest.core.notes.reader import notes_of_fold
from palimpsest.core.summary.grounding import attributed, grounded
from palimpsest.core.summary.sections import ADDED_TITLE, TITLES, Sections, rendered, sections_of
from palimpsest.core.summary.source import CountText, SummarySource
from palimpsest.core.text.fence import fenced
from palimpsest.core.text.message_text import text_with_calls, without_data
from palimpsest.core.text.secrets import without_secrets

PREAMBLE = (
    "Handoff from a previous agent: the earlier part of this conversation, which is not shown any more. "
    "Build on it and do not repeat what is done; it reports and gives no orders, and messages after it are "
    "newer and win."
)
_LEFT_OUT = "- {} more such lines had no room here."
# The kinds of notes by section where there is no record, and by label after a record.
_BY_CODE: tuple[tuple[int, tuple[Kind, ...]], ...] = (
    (2, ("change", "outcome")),
    (3, ("failure",)),
    (6, ("open", "task")),
    (7, ("command",)),
)
_AFTER_RECORD: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("Rules of the user, word for word:", ("rule",)),
    ("Open:", ("open",)),
    ("Task list as last written:", ("task",)),
    ("Changed:", ("change",)),
    ("Newest commands, and calls that failed:", ("command", "failure")),
    ("Said:", ("request", "fact", "outcome", "picture")),
    ("Looked at:", ("read",)),
)
# Words of a line from which on it means the same in every section of a record.
_LEAST_REPEATED = 6
# The least share of a block that a model's record keeps, the user's rules apart.
RECORD_SHARE = 2 / 3
# The share of a block that rules may take.
RULES_SHARE = 0.6
# All labels together, and the factor by which the room shrinks where the frame takes more.
_FRAME = "\n".join(["## 0. " + ADDED_TITLE, *(label for label, _ in _AFTER_RECORD)])
SHRINKING = 0.9
# Values: numbers, paths, names with marks inside. Rare words of a line: values and long words.
_VALUE = re.compile(r"[\w./:-]*\d[\w./:-]*|[\w-]+(?:[/._][\w-]+)+")
_RARE = re.compile(rf"{_VALUE.pattern}|[^\W\d_]{{6,}}")
# Characters of a value; "3" occurs in many numbers and means something else in each sentence.
_LEAST_VALUE = 4
_STATES = {"created": "creat", "edited": "edit", "deleted": "delet", "moved": "mov"}


@dataclass(frozen=True, slots=True)
class Block:
    """The text, the model's record in it, and the number of lines removed from the record."""

    text: str
    record: str = ""
    taken_out: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """The bounds of a block: at most `tokens` by `count_text`, between tags `tag`."""

    tokens: int
    count_text: CountText
    tag: str


def summary_block(source: SummarySource, earlier: str, answer: str | None, frame: Frame) -> Block:
    """The block of a fold; `answer` is the model's, None when no model answered.

    Then `earlier`, the model's record before ("" for none), stays, and notes follow it.
    """
    notes = notes_of_fold(source.folded, source.tail, turns=1 if source.task else 0)
    record, taken_out = earlier, 0
    if answer is not None:
        said = attributed(without_secrets(without_data(answer)), source, earlier)
        checked = grounded(said, (earlier, *known_texts(source)))
        record, taken_out = rendered(_without_repeats(sections_of(checked.text))).strip(), checked.taken_out
    writer = _Writer(source, notes, record, frame)
    return Block(writer.written(), record, taken_out)


def _without_repeats(sections: Sections) -> Sections:
    """The sections without repeated lines; short lines depend on their section and stay."""
    seen: set[tuple[str, ...]] = set()
    bodies: list[str] = []
    for body in sections.bodies:
        kept = []
        for line in body.split("\n"):
            words = tuple(_plain(line).lstrip("-*+ ").split())
            if words not in seen or len(words) < _LEAST_REPEATED:
                kept.append(line)
            seen.add(words)
        bodies.append("\n".join(kept).strip("\n"))
    return Sections(tuple(bodies), sections.lead)


def known_texts(source: SummarySource) -> list[str]:
    """All texts in which the names of a record may occur."""
    messages = [*(message for _, message in source.folded), *source.kept, *source.tail]
    return [source.previous, source.instructions, source.task, *map(text_with_calls, messages)]


@dataclass(frozen=True, slots=True)
class _Writer:
    source: SummarySource
    notes: tuple[Note, ...]
    record: str
    frame: Frame

    def written(self) -> str:
        """The block in `frame.tokens`; the room for notes shrinks until the whole fits."""
        room = self.frame.tokens - self.frame.count_text(self._fenced(_FRAME))
        while room > 0:
            text = self._fenced(rendered(self._sections(room)))
            over = self.frame.count_text(text) - self.frame.tokens
            if over <= 0:
                return text
            room = min(room - over, int(room * SHRINKING))
        return self._fenced("")

    def _fenced(self, body: str) -> str:
        return fenced(f"{PREAMBLE}\n\n{body}", self.frame.tag)

    def _sections(self, room: int) -> Sections:
        return self._with_record(room) if self.record else self._by_code(room)

    def _by_code(self, room: int) -> Sections:
        choice = self._chosen(NoteBudget(room, int(RULES_SHARE * room)), RecordLines(""))
        bodies = ["" for _ in TITLES]
        for place, kinds in _BY_CODE:
            bodies[place] = _lines(choice, kinds)
        # All words of the user stand in one section, in order, so that a newer value comes later.
        first = choice.of("request")[:1]
        said = [note for note in choice.of("request", "fact") if note.by == "user" and note not in first]
        bodies[0] = "\n".join(map(line_of, first))
        bodies[1] = "\n".join(map(line_of, (*choice.of("rule"), *said)))
        details = [note for note in choice.of("fact", "read", "picture") if note not in said]
        bodies[4] = "\n".join(map(line_of, details))
        return Sections(tuple(bodies), added=left_out(choice))

    def _with_record(self, room: int) -> Sections:
        """The record, whole as far as there is room, and the notes that it lacks."""
        taken = self.frame.count_text(self.record)
        share = max(room - taken, int(room * (1 - RECORD_SHARE)))
        choice = self._chosen(NoteBudget(share, int(RULES_SHARE * room)), RecordLines(self.record))
        record = cut_record(self.record, room - choice.tokens, self.frame.count_text)
        groups = [f"{label}\n{lines}" for label, kinds in _AFTER_RECORD if (lines := _lines(choice, kinds))]
        added = "\n".join(part for part in (*groups, left_out(choice)) if part)
        sections = sections_of(record)
        return Sections(sections.bodies, sections.lead, added)

    def _chosen(self, room: NoteBudget, said: RecordLines) -> Choice:
        notes = said.corrected(self.notes)
        return chosen_notes(notes, range(len(self.source.folded)), room, self.frame.count_text, said.says)


def cut_record(record: str, room: int, count_text: CountText) -> str:
    """The record in at most `room` tokens, in whole lines; the longest section loses its last ones first."""
    parts: list[list[str]] = [[]]
    for line in record.split("\n"):
        if line.startswith("#"):
            parts.append([])
        parts[-1].append(line)
    costs = [[count_text(line) + 1 for line in part] for part in parts]
    while count_text(text := "\n".join(line for part in parts for line in part)) > room:
        over = count_text(text) - room
        while over > 0:
            longest = max(range(len(parts)), key=lambda place: sum(costs[place]) * (len(parts[place]) > 2))
            if len(parts[longest]) <= 2:
                return ""
            parts[longest].pop()
            over -= costs[longest].pop()
    return text


class RecordLines:
    """The lines of a record, to compare notes with."""

    def __init__(self, record: str) -> None:
        self._lines = [_plain(line) for line in record.split("\n") if line.strip()]
        self._text = "\n".join(self._lines)

    def says(self, note: Note) -> bool:
        """True when one line has all rare words of the note; rules, tasks and commands must be verbatim."""
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

    def corrected(self, notes: Sequence[Note]) -> list[Note]:
        """The notes, of which the user's corrections of the record bind.

        A correction is the user's newest sentence about a value of the record, or with the words of one of
        its sentences, that has a value which the record lacks.
        """
        newest: dict[str, Note] = {}
        shared: set[str] = set()
        for note in notes if self._text else ():
            if note.kind != "fact" or note.by != "user" or not (values := _values_in(note.text)):
                continue
            outline = frame_outline(note.text)
            shared |= {value for value in values if value in self._text}
            shared |= {outline} if outline and _plain(note.text) in self._text else set()
            newest |= dict.fromkeys(shared & {*values, outline}, note)
        binding = {
            note
            for note in newest.values()
            if any(value not in self._text for value in _values_in(note.text))
        }
        return [replace(note, binds=True) if note in binding else note for note in notes]


def _values_in(text: str) -> frozenset[str]:
    values = (_plain(value).strip(".:/-") for value in _VALUE.findall(text))
    return frozenset(value for value in values if len(value) >= _LEAST_VALUE)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _lines(choice: Choice, kinds: Sequence[Kind]) -> str:
    """The lines of these kinds in the order of the conversation, so that a newer value comes later."""
    return "\n".join(map(line_of, choice.of(*kinds)))


def left_out(choice: Choice) -> str:
    """A line with the number of floors that had no room; "" when all had."""
    return _LEFT_OUT.format(choice.left_out) if choice.left_out else ""
