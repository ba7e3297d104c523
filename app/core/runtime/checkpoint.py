"""Checkpoints: when one is due, what it holds, and how it is told from one that was written already.

Kinds: before a compaction (always, A36), every twelve meaningful exchanges (A37), at completion (A38).
Pure: the store and the times are the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from app.core.notes.reader import notes_of
from app.core.recall.echo import without_echoes
from app.core.runtime.entry import Entry, exchange_ends, texts_of
from app.core.runtime.evidence import Span, evidence_of, span_hash
from app.core.runtime.gist import Gist, gist_of
from app.core.runtime.snapshot import RuntimeSnapshot
from app.core.text.secrets import without_secrets

CheckpointKind = Literal["pre_compaction", "periodic", "completion"]

SCHEMA: Literal["session_checkpoint_v2"] = "session_checkpoint_v2"
VERSION: Literal[2] = 2
# Meaningful exchanges between two periodic checkpoints (A37).
EXCHANGES = 12
# Characters from which an output says something, whatever it says (A38).
LONG_CHARS = 160

# An output of these words alone says nothing.
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


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


CHECKPOINT_SCHEMA: dict[str, Any] = msgspec.json.schema(Checkpoint)
"""The JSON Schema (2020-12) of the payload."""


def checkpoint_of(
    kind: CheckpointKind,
    entries: Sequence[Entry],
    at: float,
    runtime: RuntimeSnapshot | None = None,
) -> Checkpoint:
    """The checkpoint of `entries` (oldest first, not empty: ValueError), made `at` (UTC seconds).

    Depends on nothing but its arguments: the same messages have the same `span_hash`, whenever
    and for whatever reason they are checkpointed.
    """
    if not entries:
        raise ValueError("a checkpoint covers at least one message")
    evidence = evidence_of(entries)
    return Checkpoint(
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


def periodic_spans(entries: Sequence[Entry], every: int = EXCHANGES) -> list[Sequence[Entry]]:
    """The spans due a checkpoint: one for each `every` (>= 1) meaningful exchanges, oldest first.

    `entries` are the path's, from its beginning or from the end of any earlier periodic span on it:
    the spans are the same, so that looking again finds again what was checkpointed already.
    """
    ends = exchange_ends(entries)[every - 1 :: every]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [entries[start : end + 1] for start, end in zip(starts, ends, strict=False)]


def is_new(checkpoint: Checkpoint, known: Collection[str]) -> bool:
    """True when it must be written; `known` are span hashes of the session's periodic and final ones.

    One before a compaction always is (A36): what follows it removes messages from the view.
    """
    return checkpoint.kind == "pre_compaction" or checkpoint.span_hash not in known


def completion_due(entries: Sequence[Entry], marker: str = "") -> bool:
    """True when what was completed is worth a checkpoint (A38); `entries` since the last one.

    `marker`: what whoever completes the session says of it. Else its newest answer must say something, or
    something was changed or decided.
    """
    if not entries:
        return False
    answer = next((text for text in map(_said, reversed(entries)) if text), "")
    if not is_trivial(marker) or not is_trivial(answer):
        return True
    # Work with tools may end in "Done."; what it changed was produced all the same.
    made = notes_of([without_echoes(entry.message) for entry in entries]).of("change")
    return bool(made) or bool(gist_of(entries).decisions)


def is_trivial(text: str) -> bool:
    """True for an output without content: nothing, "ok", "thanks", "all done" and their like.

    Never for long text, code, a table, or a word that is no courtesy: in doubt a checkpoint is written.
    """
    if not text.strip():
        return True
    if len(text.strip()) >= LONG_CHARS or _CODE.search(text):
        return False
    words = [word.strip("'’-").lower() for word in _WORD.findall(text)]
    return all(word in _ASIDES for word in words)


def encoded(checkpoint: Checkpoint) -> bytes:
    """The payload as JSON, in UTF-8."""
    return msgspec.json.encode(checkpoint)


def payload_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The payload as plain JSON values, lists for tuples."""
    built: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(checkpoint))
    return built


def _said(entry: Entry) -> str:
    if entry.message.role != "assistant":
        return ""
    return without_secrets("\n".join(texts_of(without_echoes(entry.message)))).strip()


def _span_of(entries: Sequence[Entry]) -> CheckpointSpan:
    first, last = entries[0], entries[-1]
    return CheckpointSpan(
        from_id=first.id, to_id=last.id, from_seq=first.seq, to_seq=last.seq, messages=len(entries)
    )


def _uncited(entries: Sequence[Entry]) -> tuple[Span, ...]:
    """Spans without excerpts: what tells two spans apart of which nothing can be cited."""
    return tuple(Span(id=e.id, timestamp=e.milliseconds, type=e.type, seq=e.seq, excerpt="") for e in entries)
