"""The structured summary of a span, taken by code: decisions, open loops, next actions, key findings.

Deterministic, no model is asked (A39, A43). Made of the notes that summary blocks are made of; knows nothing
of checkpoints, budgets or times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from app.core.notes.facts import Information
from app.core.notes.note import Note
from app.core.notes.phrases import decides, discovers
from app.core.notes.reader import notes_of
from app.core.recall.echo import without_echoes
from app.core.runtime.entry import Entry
from app.core.text.fence import sendable
from app.core.text.wording import cut_to, headline, on_one_line

# Lines of one list, newest last; a checkpoint is read by people and by models.
LINES_KEPT = 8
# Characters of a line.
_LINE_CHARS = 480
# Lines of one list in an entry of a memory, and characters of each: fifteen of them share a block.
_ENTRY_LINES = 3
# Fewer words than this cannot be understood alone.
_ENTRY_WORDS = 4
_ENTRY_CHARS = 160
# A finding must say at least so much a character (see `facts.Information`): 0.12 a token.
_LEAST_WORTH = 0.03
# How tasks open that are neither done nor dropped.
_TO_DO = ("[ ] ", "[in progress] ")


class Gist(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a span came to, a line an item, oldest first. Free of secrets, sendable as UTF-8."""

    decisions: tuple[str, ...] = ()
    open_loops: tuple[str, ...] = ()
    next_actions: tuple[str, ...] = ()
    key_findings: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to tell."""
        return not (self.decisions or self.open_loops or self.next_actions or self.key_findings)


def memory_entry_of(gist: Gist) -> str:
    """What a span decided and found as one entry of a session's memory (B16); "" where it did neither.

    What was open then is left out: nobody would take it back.
    """
    told = []
    for title, lines in (("Decided", gist.decisions), ("Found", gist.key_findings)):
        said = [line for line in lines if len(line.split()) >= _ENTRY_WORDS][-_ENTRY_LINES:]
        if said:
            told.append(f"{title}: {' '.join(headline(line, _ENTRY_CHARS) for line in said)}")
    return "\n".join(told)


def gist_of(entries: Sequence[Entry], lines_kept: int = LINES_KEPT) -> Gist:
    """The gist of `entries`, oldest first, at most `lines_kept` (>= 1) lines a list.

    Decisions are the user's rules and what either speaker says to have decided; open loops what failed, what
    was asked and what is being worked on; next actions the tasks that are not done; findings what was changed
    and the sentences that say most. A sentence whose value a later one replaced is left out.
    """
    notes = notes_of([without_echoes(entry.message) for entry in entries])
    said = notes.of("fact")
    rules = {note.text for note in notes.of("rule")}
    deciding = [note for note in said if decides(note.text) and note.text not in rules]
    decisions = sorted((*notes.of("rule"), *deciding), key=lambda note: note.place)
    told = [note for note in said if note not in deciding and note.text not in rules]
    changed = notes.of("change")[-(lines_kept // 2) :]
    findings = sorted((*changed, *_best(told, lines_kept - len(changed))), key=lambda note: note.place)
    running = [note for note in notes.of("request") if note.place == notes.running]
    failed = [note for note in notes.of("failure", "command") if note.binds]
    tasks = [note.text for note in notes.of("task") if note.text.startswith(_TO_DO)]
    return Gist(
        decisions=_lines((note.text for note in decisions), lines_kept),
        open_loops=_lines((note.text for note in (*failed, *notes.of("open"), *running)), lines_kept),
        next_actions=_lines((*tasks, *(f"Answer: {note.text}" for note in running)), lines_kept),
        key_findings=_lines((note.text for note in findings), lines_kept),
    )


def _best(facts: Sequence[Note], most: int) -> list[Note]:
    """At most `most` sentences: reported discoveries, the newest first, then those that say most."""
    found = [note for note in facts if discovers(note.text)][-most:]
    others = [note for note in facts if not discovers(note.text)]
    best = Information([note.text for note in others]).best(
        lambda place: not others[place].text.endswith("?"),
        lambda place: len(others[place].text),
        most * _LINE_CHARS,
        _LEAST_WORTH,
    )
    return [*found, *(others[place] for place in best[: most - len(found)])]


def _lines(texts: Iterable[str], most: int) -> tuple[str, ...]:
    """The newest `most`, each once, on one line and short."""
    lines = dict.fromkeys(cut_to(on_one_line(sendable(text)), _LINE_CHARS) for text in texts)
    return tuple(line for line in lines if line)[-most:]
