"""The writer of blocks in titled sections: under each title what a model wrote, then what notes say.

A preset's form is a table: its opening, its titles, and which notes stand under which. The notes are read
from the messages anew at every fold, as the handoff's are. Knows no preset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.core.notes.choosing import Choice, Room, chosen, line_of
from app.core.notes.note import Kind, Note
from app.core.notes.reader import notes_of_fold
from app.core.summary.block import (
    RECORD_SHARE,
    RULES_SHARE,
    RUNNING,
    SHRINKING,
    Frame,
    Said,
    cut_record,
    left_out,
    said_in,
)
from app.core.summary.fitting import clipped, lines_within
from app.core.summary.grounding import grounded
from app.core.summary.source import CountText, SummarySource
from app.core.summary.tool_voice import attributed
from app.core.text.fence import fenced
from app.core.text.secrets import clean

Lines = tuple[str, Sequence[str]]
"""A title, and lines that stand under it beside the notes, the oldest first."""

Sections = tuple[tuple[str, tuple[Kind, ...]], ...]
"""Titles in their order, and which notes stand under each."""

# Of what a model's record leaves, lines of the preset's may take so much before notes are chosen, those of
# one section so much of that; what nobody takes is theirs as well.
OWN_SHARE, SECTION_SHARE = 0.08, 0.5


@dataclass(frozen=True, slots=True)
class Form:
    """`opening`: what the block is, in front; behind it its `sections`.

    `nothing` stands in a section without content; "" leaves it out, as those that are `optional` always are.
    What is being worked on is said in the last section. `task`: the title under which
    the first request stands apart, "" for none. `by_words`: the title of a note whose words decide, else "".
    `told_share`: what a model wrote keeps so much of the block, the user's rules apart.
    """

    opening: str
    sections: Sections
    nothing: str = ""
    optional: tuple[str, ...] = ()
    task: str = ""
    by_words: Callable[[Note], str] = lambda _: ""
    told_share: float = RECORD_SHARE

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles in their order."""
        return tuple(title for title, _ in self.sections)

    def title_of(self, note: Note) -> str:
        """The title under which the note stands, "" for one that has no place."""
        by_kind = (title for title, kinds in self.sections if note.kind in kinds)
        return self.by_words(note) or next(by_kind, "")

    def bare(self, tag: str) -> str:
        """The opening and nothing else, fenced: what remains when nothing fits."""
        return fenced(self.opening, tag)


def checked(told: str, source: SummarySource, earlier: str) -> str:
    """What a model wrote, without secrets, data, inventions and orders; a tool's words as the tool's.

    `earlier` is the record that it continues.
    """
    own = attributed(clean(told), source, earlier)
    return grounded(own, (earlier, *said_in(source))).text.strip()


def written(
    form: Form, source: SummarySource, told: Mapping[str, str], frame: Frame, own: Sequence[Lines] = ()
) -> str:
    """The fenced block in at most `frame.tokens`; the bare opening, whatever it takes, where nothing fits.

    `told` is what a model wrote under the titles, `own` what the preset itself has noted, the sections that
    are worth most first.
    """
    notes = notes_of_fold(source.folded, source.tail, turns=1 if source.task else 0)
    shown = tuple(note for note in notes if form.title_of(note))
    return _Writer(form, source, shown, told, frame, own).written()


@dataclass(frozen=True, slots=True)
class _Writer:
    form: Form
    source: SummarySource
    notes: tuple[Note, ...]
    told: Mapping[str, str]
    frame: Frame
    own: Sequence[Lines]

    def written(self) -> str:
        count = self.frame.count_text
        titles = dict.fromkeys(self.form.titles, self.form.nothing or "-")
        room = self.frame.tokens - count(self._dressed({**titles, self.form.titles[-1]: RUNNING}))
        while room > 0:
            text = self._dressed(self._sections(room))
            over = count(text) - self.frame.tokens
            if over <= 0:
                return text
            room = min(room - over, int(room * SHRINKING))
        return self.form.bare(self.frame.tag)

    def _dressed(self, bodies: Mapping[str, str]) -> str:
        nothing = {title: self.form.nothing for title in self.form.titles if title not in self.form.optional}
        sections = ((title, bodies.get(title) or nothing.get(title)) for title in self.form.titles)
        shown = "\n".join(f"## {title}\n{self._guarded(body)}" for title, body in sections if body)
        return fenced(f"{self.form.opening}\n\n{shown}", self.frame.tag)

    def _guarded(self, body: str) -> str:
        """Nothing that somebody said can pass for a heading."""
        titles = "|".join(map(re.escape, self.form.titles))
        return re.sub(rf"^(?=\\*## (?:{titles})\s*$)", r"\\", body, flags=re.MULTILINE)

    def _sections(self, room: int) -> Mapping[str, str]:
        """What was told keeps its share, what the preset noted its own; notes are chosen for the rest."""
        count = self.frame.count_text
        record = "\n".join(f"## {title}\n{body}" for title, body in self.told.items() if body)
        share = max(room - count(record), int(room * (1 - self.form.told_share)))
        said = Said(record)
        rest = share - _cost(_noted(self.own, int(OWN_SHARE * share), count), count)
        notes, folded = said.corrected(self.notes), range(len(self.source.folded))
        choice = chosen(notes, folded, Room(rest, int(RULES_SHARE * room)), count, said.says)
        bodies = self._chosen(choice)
        noted = _noted(_unsaid(self.own, (record, *bodies.values())), share - choice.tokens, count)
        told = self._cut(record, room - choice.tokens - _cost(noted, count))
        for title, body in bodies.items():
            bodies[title] = _joined(told.get(title, ""), body, *noted.get(title, ()))
        last = self.form.titles[-1]
        running = RUNNING if self.source.is_running else ""
        return {**bodies, last: _joined(bodies[last], left_out(choice), running)}

    def _chosen(self, choice: Choice) -> dict[str, str]:
        """The notes under their titles, as they happened: the newer of two values stands behind."""
        first = choice.of("request")[:1] if self.form.task else []
        lines: dict[str, list[str]] = {title: [] for title in self.form.titles}
        for note in sorted(choice.notes, key=lambda note: note.place):
            lines[self.form.task if note in first else self.form.title_of(note)].append(line_of(note))
        return {title: "\n".join(each) for title, each in lines.items()}

    def _cut(self, record: str, room: int) -> dict[str, str]:
        """What was told in at most `room` tokens, in whole lines as far as that is possible."""
        shown = cut_record(record, room, self.frame.count_text)
        shown = shown or clipped(record, room, self.frame.count_text)
        bodies: dict[str, list[str]] = {}
        current = self.form.titles[0]
        for line in shown.split("\n"):
            if line.startswith("## ") and line[3:] in self.told:
                current = line[3:]
            else:
                bodies.setdefault(current, []).append(line)
        return {title: "\n".join(lines) for title, lines in bodies.items()}


def _unsaid(own: Sequence[Lines], said: Sequence[str]) -> list[Lines]:
    """The lines that nothing else says word for word."""
    text = "\n".join(said)
    return [(title, [line for line in lines if line.removeprefix("- ") not in text]) for title, lines in own]


def _noted(own: Sequence[Lines], room: int, count_text: CountText) -> dict[str, list[str]]:
    """Under each title its newest lines: a share of the room each, then what is left, in their order."""
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
    return "\n".join(part for part in parts if part)
