"""Blocks in titled sections: under each title what a model wrote, then the notes on the messages.

A preset's form is a table: its opening, its titles and the kinds of notes under each. The notes are read from
the messages anew at every fold, as the handoff's are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from palimpsest.core.notes.choice import Choice, NoteBudget, chosen_notes, line_of
from palimpsest.core.notes.note import Kind, Note
from palimpsest.core.notes.reader import notes_of_fold
from palimpsest.core.summary.block import (
    RULES_SHARE,
    SHRINKING,
    Frame,
    RecordLines,
    left_out,
)
from palimpsest.core.summary.fitting import clipped, lines_within
from palimpsest.core.summary.grounding import attributed, grounded
from palimpsest.core.summary.source import CountText, SummarySource
from palimpsest.core.text.fence import fenced
from palimpsest.core.text.message_text import text_with_calls
from palimpsest.core.text.secrets import clean

Lines = tuple[str, Sequence[str]]
"""A title and the lines under it beside the notes, oldest first."""

SectionTable = tuple[tuple[str, tuple[Kind, ...]], ...]
"""The titles in their order, and the kinds of notes under each."""

# Share of the room beside a model's record that the preset's own lines get before notes are chosen, and the
# share of that for one section. They also get what the notes leave.
OWN_SHARE, SECTION_SHARE = 0.08, 0.5


# The share of a block that a model's text keeps, the user's rules apart.
RECORD_SHARE = 2 / 3


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The layout of a block: `opening` says what the block is, `sections` follow it.

    `nothing` fills a section without content. Where it is "", and in `optional` sections, an empty section is
    left out. `task`: the title of the first
    request, "" for none of its own. `by_words`: the title of a note whose words decide on it, else "".
    `record_share`: the share of the block that a model's text keeps, the user's rules apart.
    """

    opening: str
    sections: SectionTable
    nothing: str = ""
    optional: tuple[str, ...] = ()
    task: str = ""
    by_words: Callable[[Note], str] = lambda _: ""
    record_share: float = RECORD_SHARE

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles in their order."""
        return tuple(title for title, _ in self.sections)

    def title_of(self, note: Note) -> str:
        """The title of the note's section, "" for a note that is not shown."""
        by_kind = (title for title, kinds in self.sections if note.kind in kinds)
        return self.by_words(note) or next(by_kind, "")

    def bare(self, tag: str) -> str:
        """The fenced opening alone, for when nothing else fits."""
        return fenced(self.opening, tag)


def known_texts(source: SummarySource) -> list[str]:
    """All texts in which the names of a record may occur."""
    messages = [*(message for _, message in source.folded), *source.kept, *source.tail]
    return [source.previous, source.instructions, source.task, *map(text_with_calls, messages)]


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


def checked_answer(answer: str, source: SummarySource, earlier: str) -> str:
    """A model's answer without secrets, data and orders; a tool's words and unknown names are marked.

    `earlier` is the record that the answer continues.
    """
    return grounded(attributed(clean(answer), source, earlier), (earlier, *known_texts(source))).text.strip()


def section_block(
    form: BlockForm, source: SummarySource, answer: Mapping[str, str], frame: Frame, own: Sequence[Lines] = ()
) -> str:
    """The fenced block in at most `frame.tokens`; where nothing fits the bare opening, whatever its size.

    `answer` is what a model wrote under the titles; `own` are lines of the preset, the most valuable
    sections first.
    """
    notes = notes_of_fold(source.folded, source.tail, turns=1 if source.task else 0)
    shown = tuple(note for note in notes if form.title_of(note))
    return _Writer(form, source, shown, answer, frame, own).written()


@dataclass(frozen=True, slots=True)
class _Writer:
    form: BlockForm
    source: SummarySource
    notes: tuple[Note, ...]
    answer: Mapping[str, str]
    frame: Frame
    own: Sequence[Lines]

    def written(self) -> str:
        count = self.frame.count_text
        titles = dict.fromkeys(self.form.titles, self.form.nothing or "-")
        room = self.frame.tokens - count(self._fenced(titles))
        while room > 0:
            text = self._fenced(self._sections(room))
            over = count(text) - self.frame.tokens
            if over <= 0:
                return text
            room = min(room - over, int(room * SHRINKING))
        return self.form.bare(self.frame.tag)

    def _fenced(self, bodies: Mapping[str, str]) -> str:
        nothing = {title: self.form.nothing for title in self.form.titles if title not in self.form.optional}
        sections = ((title, bodies.get(title) or nothing.get(title)) for title in self.form.titles)
        shown = "\n".join(f"## {title}\n{self._guarded(body)}" for title, body in sections if body)
        return fenced(f"{self.form.opening}\n\n{shown}", self.frame.tag)

    def _guarded(self, body: str) -> str:
        """`body` with each line escaped that would read as a heading of the block."""
        titles = "|".join(map(re.escape, self.form.titles))
        return re.sub(rf"^(?=\\*## (?:{titles})\s*$)", r"\\", body, flags=re.MULTILINE)

    def _sections(self, room: int) -> Mapping[str, str]:
        """The record and the preset's lines keep their shares; notes are chosen for the rest."""
        count = self.frame.count_text
        record = "\n".join(f"## {title}\n{body}" for title, body in self.answer.items() if body)
        share = max(room - count(record), int(room * (1 - self.form.record_share)))
        said = RecordLines(record)
        rest = share - _cost(_newest_lines(self.own, int(OWN_SHARE * share), count), count)
        folded = range(len(self.source.folded))
        choice = chosen_notes(self.notes, folded, NoteBudget(rest, int(RULES_SHARE * room)), count, said.says)
        bodies = self._chosen(choice)
        lines = _newest_lines(_unsaid(self.own, (record, *bodies.values())), share - choice.tokens, count)
        cut = self._cut(record, room - choice.tokens - _cost(lines, count))
        for title, body in bodies.items():
            bodies[title] = _joined(cut.get(title, ""), body, *lines.get(title, ()))
        last = self.form.titles[-1]
        return {**bodies, last: _joined(bodies[last], left_out(choice))}

    def _chosen(self, choice: Choice) -> dict[str, str]:
        """The notes under their titles, in the order of the conversation: a newer value comes later."""
        first = choice.of("request")[:1] if self.form.task else []
        lines: dict[str, list[str]] = {title: [] for title in self.form.titles}
        for note in sorted(choice.notes, key=lambda note: note.place):
            lines[self.form.task if note in first else self.form.title_of(note)].append(line_of(note))
        return {title: "\n".join(each) for title, each in lines.items()}

    def _cut(self, record: str, room: int) -> dict[str, str]:
        """The record in at most `room` tokens, in whole lines as far as possible."""
        shown = cut_record(record, room, self.frame.count_text)
        shown = shown or clipped(record, room, self.frame.count_text)
        bodies: dict[str, list[str]] = {}
        current = self.form.titles[0]
        for line in shown.split("\n"):
            if line.startswith("## ") and line[3:] in self.answer:
                current = line[3:]
            else:
                bodies.setdefault(current, []).append(line)
        return {title: "\n".join(lines) for title, lines in bodies.items()}


def _unsaid(own: Sequence[Lines], said: Sequence[str]) -> list[Lines]:
    """The lines that `said` does not contain word for word."""
    text = "\n".join(said)
    return [(title, [line for line in lines if line.removeprefix("- ") not in text]) for title, lines in own]


def _newest_lines(own: Sequence[Lines], room: int, count_text: CountText) -> dict[str, list[str]]:
    """The newest lines of each title: a share of the room each, then the rest in the order of titles."""
    shown: dict[str, list[str]] = {}
    for share in (SECTION_SHARE, 1.0):
        for title, lines in own:
            left = room - _cost(shown, count_text)
            had = _cost({title: shown.pop(title, [])}, count_text)
            shown[title] = lines_within(lines, had + int(left * share), count_text)
    return shown


def _cost(shown: Mapping[str, Sequence[str]], count_text: CountText) -> int:
    return sum(count_text(line) + 1 for lines in shown.values() for line in lines)


def _joined(*parts: str) -> str:
    return "\n".join(filter(None, parts))
