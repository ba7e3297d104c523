"""The writer of blocks in titled sections: under each title what a model wrote, then what notes say.

A preset's form is a table: its opening, its titles, and which notes stand under which. The notes are read
from the messages anew at every fold, as the handoff's are. Knows no preset.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from app.core.summary.fitting import clipped
from app.core.summary.grounding import grounded
from app.core.summary.source import SummarySource
from app.core.summary.tool_voice import attributed
from app.core.text.fence import fenced
from app.core.text.secrets import without_secrets
from app.core.text.wording import without_data


@dataclass(frozen=True, slots=True)
class Form:
    """`opening`: what the block is, in front. `sections`: the titles, and which notes stand under each.

    `nothing` stands in a section without content; "" leaves the section out. What is being worked on is said
    in the last section.
    """

    opening: str
    sections: tuple[tuple[str, tuple[Kind, ...]], ...]
    nothing: str = ""

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles in their order."""
        return tuple(title for title, _ in self.sections)

    def bare(self, tag: str) -> str:
        """The opening and nothing else, fenced: what remains when nothing fits."""
        return fenced(self.opening, tag)


def checked(told: str, source: SummarySource, earlier: str) -> str:
    """What a model wrote, without secrets, data, inventions and orders; a tool's words as the tool's.

    `earlier` is the record that it continues.
    """
    clean = attributed(without_secrets(without_data(told)), source, earlier)
    return grounded(clean, (earlier, *said_in(source))).text.strip()


def written(
    form: Form, source: SummarySource, told: Mapping[str, str], frame: Frame, lead: tuple[str, str] = ("", "")
) -> str:
    """The fenced block in at most `frame.tokens`; the bare opening, whatever it takes, where nothing fits.

    `told` is what a model wrote under the titles, `lead` a section that stands before them: title and text.
    """
    notes = notes_of_fold(source.folded, source.tail, turns=1 if source.task else 0)
    return _Writer(form, source, notes, told, frame, lead).written()


@dataclass(frozen=True, slots=True)
class _Writer:
    form: Form
    source: SummarySource
    notes: tuple[Note, ...]
    told: Mapping[str, str]
    frame: Frame
    lead: tuple[str, str]

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
        sections = [
            self.lead,
            *((title, bodies.get(title) or self.form.nothing) for title in self.form.titles),
        ]
        shown = "\n".join(f"## {title}\n{body}" for title, body in sections if body)
        return fenced(f"{self.form.opening}\n\n{shown}", self.frame.tag)

    def _sections(self, room: int) -> Mapping[str, str]:
        record = "\n".join(f"## {title}\n{body}" for title, body in self.told.items() if body)
        own = self.frame.count_text(record)
        share = max(room - own, int(room * (1 - RECORD_SHARE)))
        said = Said(record)
        choice = chosen(
            said.corrected(self.notes),
            range(len(self.source.folded)),
            Room(share, int(RULES_SHARE * room)),
            self.frame.count_text,
            said.says,
        )
        told = self._cut(record, room - choice.tokens)
        running = RUNNING if self.source.is_running else ""
        bodies = {
            title: _joined(told.get(title, ""), _lines(choice, kinds)) for title, kinds in self.form.sections
        }
        last = self.form.titles[-1]
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


def _lines(choice: Choice, kinds: tuple[Kind, ...]) -> str:
    return "\n".join(line_of(note) for kind in kinds for note in choice.of(kind))


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
