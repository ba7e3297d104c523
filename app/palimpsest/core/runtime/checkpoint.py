"""Checkpoints: when one is due and its content; the flush before a compaction (A43); the gist of a span.

Code writes gist and flush from the notes that summary blocks are made of; no model is asked (A39, A43). Kinds
of checkpoints: before a compaction (always, A36), every twelve meaningful exchanges (A37), at completion
(A38).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from palimpsest.core.notes.facts import Information
from palimpsest.core.notes.note import Note
from palimpsest.core.notes.reader import notes_of
from palimpsest.core.notes.sentences import decides, discovers
from palimpsest.core.recall.searchable_text import without_recall_output
from palimpsest.core.runtime.evidence import (
    ArchivedMessage,
    Span,
    evidence_of,
    exchange_ends,
    span_hash,
    texts_of,
)
from palimpsest.core.runtime.snapshot import RuntimeSnapshot
from palimpsest.core.summary.source import CountText
from palimpsest.core.text.fence import sendable
from palimpsest.core.text.message_text import cut_to, headline, on_one_line
from palimpsest.core.text.secrets import without_secrets

# Lines of one list, newest last: short enough for people and models to read.
LINES_KEPT = 8
# Characters of a line.
_LINE_CHARS = 480
# Lines of one list in an entry of a memory; fifteen entries share a block.
_ENTRY_LINES = 3
# A line with fewer words cannot be understood alone.
_ENTRY_WORDS = 4
_ENTRY_CHARS = 160
# Least worth of a finding per character (see `facts.Information`): 0.12 a token.
_LEAST_WORTH = 0.03
# Beginnings of tasks that are neither done nor dropped.
_TO_DO = ("[ ] ", "[in progress] ")


class Gist(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The essentials of a span, a line an item, oldest first. Free of secrets, sendable as UTF-8."""

    decisions: tuple[str, ...] = ()
    open_loops: tuple[str, ...] = ()
    next_actions: tuple[str, ...] = ()
    key_findings: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when it has no line."""
        return not (self.decisions or self.open_loops or self.next_actions or self.key_findings)


def memory_entry_of(gist: Gist) -> str:
    """The decisions and findings of a span as one entry of a session's memory (B16); "" where there are none.

    Open items are left out: nothing would remove them later.
    """
    entry = []
    for title, lines in (("Decided", gist.decisions), ("Found", gist.key_findings)):
        kept = [line for line in lines if len(line.split()) >= _ENTRY_WORDS][-_ENTRY_LINES:]
        if kept:
            entry.append(f"{title}: {' '.join(headline(line, _ENTRY_CHARS) for line in kept)}")
    return "\n".join(entry)


def gist_of(entries: Sequence[ArchivedMessage], lines_kept: int = LINES_KEPT) -> Gist:
    """The gist of `entries`, oldest first, at most `lines_kept` (>= 1) lines a list.

    Decisions are the user's rules and what either speaker states as decided; open loops what failed, what was
    asked and what is being worked on; next actions the tasks that are not done; findings what was changed,
    and the sentences with most information. A sentence whose value a later one replaced is left out.
    """
    notes = notes_of([without_recall_output(entry.message) for entry in entries])
    facts = notes.of("fact")
    rules = {note.text for note in notes.of("rule")}
    deciding = [note for note in facts if decides(note.text) and note.text not in rules]
    decisions = sorted((*notes.of("rule"), *deciding), key=lambda note: note.place)
    others = [note for note in facts if note not in deciding and note.text not in rules]
    changed = notes.of("change")[-(lines_kept // 2) :]
    findings = sorted((*changed, *_best(others, lines_kept - len(changed))), key=lambda note: note.place)
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
    """At most `most` sentences: reported discoveries, the newest first, then those with most information."""
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
    """The newest `most` lines, each once and cut to its maximum."""
    lines = dict.fromkeys(cut_to(on_one_line(sendable(text)), _LINE_CHARS) for text in texts)
    return tuple(line for line in lines if line)[-most:]


TITLES = ("Decisions", "Open loops", "Next actions", "Key findings")
_NOTHING = "None."
# Lines of one section that are considered, newest first, and characters of a line.
_FLUSHED_LINES = 6
_FLUSHED_CHARS = 200


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """When a flush is made, and how large it may be."""

    # Tokens left in the window; below it a flush is made.
    slack_tokens: int = 1_200
    # Messages that are neither pinned nor a summary.
    least_messages: int = 4
    # Least time between two flushes of one branch.
    cooldown_seconds: float = 120.0
    # Least growth since the last flush.
    growth_tokens: int = 250
    # The whole note, headings included.
    output_tokens: int = 220


@dataclass(frozen=True, slots=True)
class LastFlush:
    """The previous flush: UTC seconds, and the tokens of the path then."""

    at: float
    path_tokens: int


@dataclass(frozen=True, slots=True)
class Pressure:
    """The current state: UTC seconds, tokens left in the window, and tokens of the whole path.

    `path_tokens` counts the messages as stored, not as shown, so that it does not fall when the view is
    compacted. `slack_tokens` may be negative.
    """

    at: float
    slack_tokens: int
    path_tokens: int


def flushable(entries: Sequence[ArchivedMessage], ignored: frozenset[bytes]) -> list[ArchivedMessage]:
    """The entries that a flush reads: no instructions, and none of `ignored`, chains of pins and blocks."""
    return [e for e in entries if e.chain not in ignored and not e.message.is_instruction]


def flush_due(messages: int, pressure: Pressure, last: LastFlush | None, limits: FlushLimits) -> bool:
    """True when a flush is to be made; `messages` are the flushable ones.

    All must hold: slack below the limit, enough messages, the cooldown over, enough growth. The cooldown is
    over at exactly its length; growth suffices at exactly its size.
    """
    if pressure.slack_tokens >= limits.slack_tokens or messages < limits.least_messages:
        return False
    if last is None:
        return True
    rested = pressure.at - last.at >= limits.cooldown_seconds
    return rested and pressure.path_tokens - last.path_tokens >= limits.growth_tokens


def flush_of(entries: Sequence[ArchivedMessage], limits: FlushLimits, count_text: CountText) -> str:
    """The note of flushable `entries`, at most `limits.output_tokens` tokens; "" when nothing fits.

    Four sections, each with its newest lines. They are filled in turn, so that no section takes the room of
    another. `entries` need not reach back beyond the last flush. The same entries give the same note; it
    contains no key-shaped string.
    """
    gist = gist_of(entries, _FLUSHED_LINES)
    columns = _columns(gist)
    kept: tuple[list[str], ...] = ([], [], [], [])
    for row in zip_longest(*(reversed(column) for column in columns)):
        for section, line in zip(kept, row, strict=True):
            if line is not None:
                section.insert(0, headline(line, _FLUSHED_CHARS))
                if count_text(_rendered(kept)) > limits.output_tokens:
                    section.pop(0)
    return _rendered(kept) if any(kept) else ""


def _columns(gist: Gist) -> tuple[tuple[str, ...], ...]:
    return gist.decisions, gist.open_loops, gist.next_actions, gist.key_findings


def _rendered(sections: Sequence[Sequence[str]]) -> str:
    blocks = (
        "\n".join([f"## {title}", *(f"- {line}" for line in lines)] if lines else [f"## {title}", _NOTHING])
        for title, lines in zip(TITLES, sections, strict=True)
    )
    return "\n".join(blocks)


CheckpointKind = Literal["pre_compaction", "periodic", "completion"]

SCHEMA: Literal["session_checkpoint_v2"] = "session_checkpoint_v2"
VERSION: Literal[2] = 2
# Meaningful exchanges between two periodic checkpoints (A37).
EXCHANGES = 12
# An output of this many characters is never trivial (A38).
LONG_CHARS = 160

# An output of these words alone is trivial.
_ASIDES_TEXT = """
    ok okay k yes yep yeah no nope sure thanks thank thx ty done finished complete completed ready great
    good perfect nice cool fine alright right got it understood noted will do bye goodbye hello hi hey
    welcome you're youre anytime glad to help helped sounds so much very all is that's thats a lot the
    task i'm im i of course problem np lgtm ack acknowledged roger y n please and we are there everything
    set here now sir well cheers happy job work works for me you let know if need anything else
"""
_ASIDES = frozenset(_ASIDES_TEXT.split())
_WORD = re.compile(r"[\w'’-]+")
_CODE = re.compile(r"```|^\s{4,}\S|\|.+\|", re.MULTILINE)


class CheckpointSpan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The messages covered, both ends included; `seq` as in the store, `messages` how many."""

    from_id: str
    to_id: str
    from_seq: int
    to_seq: int
    messages: int


class CheckpointPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload of a `checkpoint` event. `created_at`: milliseconds of UTC.

    `runtime` is what a session is restored from (A40); without it a checkpoint is evidence only.
    """

    schema: Literal["session_checkpoint_v2"]
    version: Literal[2]
    kind: CheckpointKind
    created_at: int
    span: CheckpointSpan
    span_hash: str
    summary: Gist
    evidence: tuple[Span, ...]
    runtime: RuntimeSnapshot | None = None


CHECKPOINT_SCHEMA: dict[str, Any] = msgspec.json.schema(CheckpointPayload)
"""The JSON Schema (2020-12) of the payload."""


def checkpoint_of(
    kind: CheckpointKind,
    entries: Sequence[ArchivedMessage],
    at: float,
    runtime: RuntimeSnapshot | None = None,
) -> CheckpointPayload:
    """The checkpoint of `entries` (oldest first, not empty: ValueError), made `at` (UTC seconds).

    Depends on its arguments alone: the same messages have the same `span_hash`, whenever and for whatever
    reason they are checkpointed.
    """
    if not entries:
        raise ValueError("a checkpoint covers at least one message")
    evidence = evidence_of(entries)
    return CheckpointPayload(
        schema=SCHEMA,
        version=VERSION,
        kind=kind,
        created_at=round(at * 1_000),
        span=_span_of(entries),
        span_hash=span_hash(evidence or _uncited(entries)),
        summary=gist_of(entries),
        evidence=evidence,
        runtime=runtime,
    )


def periodic_spans(
    entries: Sequence[ArchivedMessage], every: int = EXCHANGES
) -> list[Sequence[ArchivedMessage]]:
    """The spans due for a checkpoint: one for each `every` (>= 1) meaningful exchanges, oldest first.

    `entries` are the path's, from its beginning or from the end of any earlier periodic span on it. The spans
    are the same either way, so that checkpoints already written are recognised.
    """
    ends = exchange_ends(entries)[every - 1 :: every]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [entries[start : end + 1] for start, end in zip(starts, ends, strict=False)]


def is_new(checkpoint: CheckpointPayload, known: Collection[str]) -> bool:
    """True when it must be written; `known` are span hashes of the session's periodic and final ones.

    One before a compaction always is (A36): the compaction removes messages from the view.
    """
    return checkpoint.kind == "pre_compaction" or checkpoint.span_hash not in known


def completion_due(entries: Sequence[ArchivedMessage], marker: str = "") -> bool:
    """True when what was completed is worth a checkpoint (A38); `entries` since the last one.

    Either `marker`, what the completing caller says, or the newest answer is not trivial, or something was
    changed or decided.
    """
    if not entries:
        return False
    answer = next((text for text in map(_said, reversed(entries)) if text), "")
    if not is_trivial(marker) or not is_trivial(answer):
        return True
    # Work with tools may end in "Done." although it changed something.
    made = notes_of([without_recall_output(entry.message) for entry in entries]).of("change")
    return bool(made) or bool(gist_of(entries).decisions)


def is_trivial(text: str) -> bool:
    """True for an output without content: nothing, "ok", "thanks", "all done" and the like.

    Never for long text, code, a table, or any word outside the list: in doubt a checkpoint is written.
    """
    if not text.strip():
        return True
    if len(text.strip()) >= LONG_CHARS or _CODE.search(text):
        return False
    words = [word.strip("'’-").lower() for word in _WORD.findall(text)]
    return all(word in _ASIDES for word in words)


def encoded(checkpoint: CheckpointPayload) -> bytes:
    """The payload as JSON, in UTF-8."""
    return msgspec.json.encode(checkpoint)


def _said(entry: ArchivedMessage) -> str:
    if entry.message.role != "assistant":
        return ""
    return without_secrets("\n".join(texts_of(without_recall_output(entry.message)))).strip()


def _span_of(entries: Sequence[ArchivedMessage]) -> CheckpointSpan:
    first, last = entries[0], entries[-1]
    return CheckpointSpan(
        from_id=first.id, to_id=last.id, from_seq=first.seq, to_seq=last.seq, messages=len(entries)
    )


def _uncited(entries: Sequence[ArchivedMessage]) -> tuple[Span, ...]:
    """Spans without excerpts, which distinguish spans of messages without citable text."""
    return tuple(Span(id=e.id, timestamp=e.milliseconds, type=e.type, seq=e.seq, excerpt="") for e in entries)
