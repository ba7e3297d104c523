"""The writer of blocks in titled sections: under each title what a model wrote, then what notes say.

A preset's form is a table: its opening, its titles, and which notes stand under which. The notes are read
from the messages anew at every fold, as the handoff's are. Knows no preset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
from app.core.summary.fitting import clipped, newest_within
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
OWN_SHARE, SECTION_SHARE = 0.5, 0.3


@dataclass(frozen=True, slots=True)
class Form:
    """`opening`: what the block is, in front; behind it its `sections`.

    `nothing` stands in a section without content; "" leaves the section out, as one always is that has lines
    of the preset's alone. What is being worked on is said in the last section. `task`: the title under which
    the first request stands apart, "" for none.
    """

    opening: str
    sections: Sections
    nothing: str = ""
    task: str = ""

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles in their order."""
        return tuple(title for title, _ in self.sections)

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of notes that stand in it."""
        return frozenset(kind for _, kinds in self.sections for kind in kinds)

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
    shown = tuple(note for note in notes if note.kind in form.kinds)
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
        sections = (
            (title, bodies.get(title) or (kinds and self.form.nothing)) for title, kinds in self.form.sections
        )
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
        share = max(room - count(record), int(room * (1 - RECORD_SHARE)))
        said = Said(record)
        own = [
            (title, [line for line in lines if not said.says(_as_note(line))]) for title, lines in self.own
        ]
        noted = _noted(own, int(OWN_SHARE * share), count)
        rest = share - _cost(noted, count)
        notes = said.corrected(self.notes)
        choice = chosen(
            notes, range(len(self.source.folded)), Room(rest, int(RULES_SHARE * room)), count, said.says
        )
        noted = _noted(own, share - choice.tokens, count)
        told = self._cut(record, room - choice.tokens - _cost(noted, count))
        first = choice.of("request")[:1] if self.form.task else []
        bodies = {
            title: _joined(told.get(title, ""), _lines(choice, kinds, first), *noted.get(title, ()))
            for title, kinds in self.form.sections
        }
        if first:
            bodies[self.form.task] = line_of(first[0])
        last = self.form.titles[-1]
        running = RUNNING if self.source.is_running else ""
        return {**bodies, last: _joined(bodies[last], left_out(choice), running)}

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


def _as_note(line: str) -> Note:
    """The line as a note that a record says only word for word."""
    return Note("task", line.strip("- "), 0, 0)


def _noted(own: Sequence[Lines], room: int, count_text: CountText) -> dict[str, list[str]]:
    """Under each title its newest lines: a share of the room each, then what is left, in their order."""
    shown: dict[str, list[str]] = {}
    for share in (SECTION_SHARE, 1.0):
        for title, lines in own:
            left = room - _cost(shown, count_text)
            had = _cost({title: shown.pop(title, [])}, count_text)
            shown[title] = newest_within(lines, had + int(left * share), count_text)
    return shown


def _cost(shown: Mapping[str, Sequence[str]], count_text: CountText) -> int:
    return sum(count_text(line) + 1 for lines in shown.values() for line in lines)


def _lines(choice: Choice, kinds: tuple[Kind, ...], but: Sequence[Note]) -> str:
    return "\n".join(line_of(note) for kind in kinds for note in choice.of(kind) if note not in but)


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
