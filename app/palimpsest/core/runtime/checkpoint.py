"""Checkpoints: when one is due, and their content; the flush before a compaction (A43); the gist of a span.

A checkpoint is a place and a time: its content is computed when it is asked for. Code writes gist and flush
from the notes that summary blocks are made of; no model is asked (A39, A43). Kinds of checkpoints: before a
compaction (always, A36), every twelve meaningful exchanges (A37), at completion (A38).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Literal

import msgspec

from palimpsest.core.history.message import Message
from palimpsest.core.notes.facts import Information
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


def gist_of(messages: Iterable[Message], lines_kept: int = LINES_KEPT) -> Gist:
    """The gist of `messages`, oldest first, at most `lines_kept` (>= 1) lines a list.

    Decisions are the user's rules and what either speaker states as decided; open loops what failed, what was
    asked and what is being worked on; next actions the tasks that are not done; findings what was changed,
    and the sentences with most information. A sentence whose value a later one replaced is left out.
    """
    notes = notes_of([without_recall_output(message) for message in messages])
    facts = notes.of("fact")
    rules = {note.text for note in notes.of("rule")}
    deciding = [note for note in facts if decides(note.text) and note.text not in rules]
    decisions = sorted((*notes.of("rule"), *deciding), key=lambda note: note.place)
    others = [note for note in facts if note not in deciding and note.text not in rules]
    changed = notes.of("change")[-(lines_kept // 2) :]
    # Reported discoveries, the newest first, then the sentences with most information.
    most = lines_kept - len(changed)
    found = [note for note in others if discovers(note.text)][-most:]
    rest = [note for note in others if not discovers(note.text) and not note.text.endswith("?")]
    best = Information([note.text for note in rest]).best(
        lambda place: len(rest[place].text), most * _LINE_CHARS, least=_LEAST_WORTH
    )
    told = (*changed, *found, *(rest[place] for place in best[: most - len(found)]))
    running = [note for note in notes.of("request") if note.place == notes.running]
    failed = [note for note in notes.of("failure", "command") if note.binds]
    tasks = [note.text for note in notes.of("task") if note.text.startswith(_TO_DO)]

    def lines(texts: Iterable[str]) -> tuple[str, ...]:
        """The newest ones, each once and cut to its maximum."""
        cut = dict.fromkeys(cut_to(on_one_line(sendable(text)), _LINE_CHARS) for text in texts)
        return tuple(filter(None, cut))[-lines_kept:]

    return Gist(
        decisions=lines(note.said for note in decisions),
        open_loops=lines(note.said for note in (*failed, *notes.of("open"), *running)),
        next_actions=lines((*tasks, *(f"Answer: {note.said}" for note in running))),
        key_findings=lines(note.said for note in sorted(told, key=lambda note: note.place)),
    )


TITLES = ("Decisions", "Open loops", "Next actions", "Key findings")
_NOTHING = "None."
# Lines of one section that are considered, newest first, and characters of a line.
_FLUSHED_LINES = 6
_FLUSHED_CHARS = 200


# A flush is made when fewer tokens are left in the window,
FLUSH_SLACK_TOKENS = 1_200
# so many messages that are neither pinned nor a summary are unfolded,
FLUSH_MESSAGES = 4
# the last one is so long ago,
FLUSH_SECONDS = 120.0
# and the path is by so many tokens another one than it was then.
FLUSH_GROWTH_TOKENS = 250
# The whole note, headings included.
FLUSH_TOKENS = 220


def flush_due(
    slack_tokens: int, messages: int, at: float, path_tokens: int, last: tuple[float, int] | None
) -> bool:
    """True when a flush is to be made `at` (UTC seconds); `last`: time and path of the one before.

    The cooldown is over at exactly its length; growth suffices at exactly its size. `slack_tokens` may be
    negative; `path_tokens` counts the messages as stored, so that it does not fall with a compaction.
    """
    if slack_tokens >= FLUSH_SLACK_TOKENS or messages < FLUSH_MESSAGES:
        return False
    return last is None or (
        at - last[0] >= FLUSH_SECONDS and abs(path_tokens - last[1]) >= FLUSH_GROWTH_TOKENS
    )


def flush_of(messages: Sequence[Message], count_text: CountText) -> str:
    """The note of `messages`, at most `FLUSH_TOKENS` tokens; "" when nothing fits.

    Four sections, each with its newest lines. They are filled in turn, so that no section takes the room of
    another. The same messages give the same note; it contains no key-shaped string.
    """
    gist = gist_of(messages, _FLUSHED_LINES)
    columns = (gist.decisions, gist.open_loops, gist.next_actions, gist.key_findings)
    kept: tuple[list[str], ...] = ([], [], [], [])

    def written() -> str:
        """The note with what is kept."""
        said = ("\n".join(f"- {line}" for line in lines) or _NOTHING for lines in kept)
        return "\n".join(f"## {title}\n{lines}" for title, lines in zip(TITLES, said, strict=True))

    for row in zip_longest(*(reversed(column) for column in columns)):
        for section, line in zip(kept, row, strict=True):
            if line is not None:
                section.insert(0, headline(line, _FLUSHED_CHARS))
                if count_text(written()) > FLUSH_TOKENS:
                    section.pop(0)
    return written() if any(kept) else ""


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
    """The content of a checkpoint. `created_at`: milliseconds of UTC.

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


def checkpoint_of(
    kind: CheckpointKind,
    entries: Sequence[ArchivedMessage],
    at: float,
    runtime: RuntimeSnapshot | None = None,
) -> CheckpointPayload:
    """The checkpoint of `entries` (oldest first, at least one), made `at` (UTC seconds).

    The same messages have the same `span_hash`, whenever and for whatever reason they are checkpointed.
    """
    first, last = entries[0], entries[-1]
    evidence = evidence_of(entries)
    # Spans of which nothing can be cited are still told apart.
    named = evidence or [
        Span(id=each.id, timestamp=each.milliseconds, type=each.type, seq=each.seq, excerpt="")
        for each in entries
    ]
    return CheckpointPayload(
        schema=SCHEMA,
        version=VERSION,
        kind=kind,
        created_at=round(at * 1_000),
        span=CheckpointSpan(
            from_id=first.id, to_id=last.id, from_seq=first.seq, to_seq=last.seq, messages=len(entries)
        ),
        span_hash=span_hash(named),
        summary=gist_of(entry.message for entry in entries),
        evidence=evidence,
        runtime=runtime,
    )


def periodic_spans(messages: Sequence[Message]) -> list[range]:
    """The spans that have a checkpoint: one for each twelve meaningful exchanges, oldest first (A37)."""
    ends = [end + 1 for end in exchange_ends(messages)[EXCHANGES - 1 :: EXCHANGES]]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def completion_due(messages: Sequence[Message], marker: str = "") -> bool:
    """True when what was completed is worth a checkpoint (A38); `messages` since the last one.

    Either `marker`, what the completing caller says, or the newest answer is not trivial, or something was
    changed or decided.
    """
    if not messages:
        return False
    said = (
        without_secrets("\n".join(texts_of(without_recall_output(message)))).strip()
        for message in reversed(messages)
        if message.role == "assistant"
    )
    if not is_trivial(marker) or not is_trivial(next(filter(None, said), "")):
        return True
    # Work with tools may end in "Done." although it changed something.
    made = notes_of([without_recall_output(message) for message in messages]).of("change")
    return bool(made) or bool(gist_of(messages).decisions)


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
