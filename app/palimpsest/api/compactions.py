"""Endpoints of a session's compactions: they list, show, compare and undo them."""

from __future__ import annotations

import time
from typing import Annotated, Literal, TypedDict

from fastapi import Path, Query

from palimpsest.api.callers import AskedSession, Branch, CallersSession, api_router, at_most
from palimpsest.api.replies import (
    MessageId,
    NextId,
    Reply,
    Tokens,
    UtcTime,
    described,
    page_of,
    reply,
    shape_of,
    utc_time,
    utc_time_or_none,
)
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.view.compaction import (
    Author,
    Compaction,
    CompactionKind,
    Trigger,
    builders,
    context_id,
    restored,
)
from palimpsest.core.view.view import applicable, applies
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import NotUndoable
from palimpsest.proxy.archive import Folding, Followed, missing
from palimpsest.storage.history import SessionRow
from palimpsest.storage.journal import EventRow, StoredCompaction

CompactionId = Annotated[str, Path(description="Id of a compaction of the session.")]
CheckpointId = Annotated[str, Path(description="Id of a checkpoint of the session.")]


class SummaryTokensFields(TypedDict):
    """Tokens that the calls for a summary took."""

    prompt_tokens: int
    cached_tokens: Annotated[int, described("Of these, served from the upstream's cache.")]
    completion_tokens: int


class MaskFields(TypedDict):
    """A tool result that is shown shortened."""

    message: MessageId
    limit_chars: int


class MadeCompaction(TypedDict):
    """The record of a compaction: what was folded and kept, and who wrote the summary.

    `spent` is null when code wrote it, or where it was not kept.
    """

    id: str
    kind: CompactionKind
    trigger: Trigger
    reason: str
    policy: str
    author: Author
    model: str | None
    passes: Annotated[int, described("Model calls that wrote the summary.")]
    parents: Annotated[list[str], described("The compactions that it was made from.")]
    tokens_before: Tokens
    tokens_after: Tokens
    tokens_freed: Tokens
    spent: SummaryTokensFields | None
    messages_folded: int
    watermark: Annotated[MessageId | None, described("The newest folded message.")]
    kept: Annotated[list[MessageId], described("Messages before the watermark that stay word for word.")]
    masks: list[MaskFields]
    summary: str
    memory: Annotated[str, described("The session's memory behind the summary.")]


class StoredCompactionFields(MadeCompaction):
    """A compaction with its times."""

    created_at: UtcTime
    undone_at: UtcTime | None


class CompactionPage(TypedDict):
    """Compactions of a session, oldest first."""

    session: str
    compactions: list[StoredCompactionFields]
    next: NextId


class FollowedCompaction(TypedDict):
    """What followed a compaction; `saved` is an estimate, null without a price."""

    compaction: str
    since: Annotated[int, described("Number of the first turn under it.")]
    turns: int
    calls: int
    calls_until_change: Annotated[int | None, described("Until the first that changed something.")]
    repeated_calls: int
    repeated_tokens: Annotated[int, described("Of their results.")]
    lookups: int
    cost: float | None
    saved: float | None
    waited_seconds: float | None


class FindingFields(TypedDict):
    """What makes a session dearer than need be."""

    kind: Literal["large_result", "unused_tools", "cold_cache"]
    names: list[str]
    times: int
    tokens: Tokens


class SessionReport(TypedDict):
    """What followed each compaction of the default branch, and findings."""

    session: str
    compactions: list[FollowedCompaction]
    findings: list[FindingFields]


class SummaryLineFields(TypedDict):
    """A line of a summary, and the messages it comes from."""

    text: str
    is_heading: bool
    sources: list[MessageId]


class FoldingFields(StoredCompactionFields):
    """A compaction with what it folded."""

    cost: Annotated[float | None, described("Of its text; null without a known price.")]
    folded: list[MessageId]
    newly_folded: Annotated[int, described("How many of them were not folded before.")]
    lines: list[SummaryLineFields]


class WholeCompaction(FoldingFields):
    """A compaction of a session, beside its originals."""

    session: str


class UndoneCompaction(TypedDict):
    """What was undone, and the compaction that is in force again."""

    session: str
    compaction: str
    undone_at: UtcTime
    restored: str | None


class RestoredCheckpoint(PlaceFields):
    """The compactions that were undone, and the one that is in force now."""

    checkpoint: str
    undone: list[str]
    restored: str | None


api = api_router()


@api.get("/sessions/{name:path}/compactions")
async def list_compactions(
    session: AskedSession,
    limit: Annotated[int, at_most(500)] = 100,
    after: Annotated[str, Query(max_length=100, description="The `next` of the page before.")] = "",
) -> Reply[CompactionPage]:
    """List the compactions of a session, oldest first."""
    row = await session.row()
    stored = await session.parts.store.compactions.of_session(session.namespace, row.id)
    start = 1 + next((at for at, one in enumerate(stored) if one.compaction.id == after), -1)
    page, more = page_of(stored[start:], limit, "compaction.id")
    return reply({"session": row.id, "compactions": [stored_fields(one) for one in page], "next": more})


@api.get("/sessions/{name:path}/report")
async def get_report(session: AskedSession) -> Reply[SessionReport]:
    """Report what followed each compaction of the default branch.

    Also what makes the session dearer than need be.
    """
    row, parts = await session.row(), session.parts
    followed = await parts.exchanges.followed(session.namespace, row)
    findings = await parts.exchanges.findings(session.namespace, row)
    return reply(
        {
            "session": row.id,
            "compactions": [followed_fields(one) for one in followed],
            "findings": [shape_of(FindingFields, one, names=list(one.names)) for one in findings],
        }
    )


@api.get("/sessions/{name:path}/compactions/{compaction}")
async def get_compaction(session: AskedSession, compaction: CompactionId) -> Reply[WholeCompaction]:
    """Get a compaction beside its originals.

    What it folded, and each line of its summary with the messages it comes from.
    """
    row, views = await session.row(), session.parts.exchanges
    found = await views.folding(session.namespace, row, compaction)
    return reply({"session": row.id, **folding_fields(found)})


@api.post("/sessions/{name:path}/compactions/{compaction}/undo")
async def undo_compaction(session: AskedSession, compaction: CompactionId) -> Reply[UndoneCompaction]:
    """Undo a compaction.

    From the next request on the one it was made from is in force again. 409 when it was undone before, or
    when another one in force was made from it.
    """
    row = await session.row()
    stored = await session.parts.store.compactions.of_session(session.namespace, row.id)
    everything = [one.compaction for one in stored]
    standing = [one.compaction for one in stored if one.undone_at is None]
    found = next((one for one in everything if one.id == compaction), None)
    if found is None:
        raise missing()
    if newer := builders(found, standing):
        raise NotUndoable(f"The compaction {newer[-1].id} was made from it: undo that one first.")
    now = time.time()
    back = restored(found, everything, [one for one in standing if one is not found])
    if not await _undone(session, row, found, back, now):
        raise NotUndoable("The compaction has been undone before.")
    return reply(
        {
            "session": row.id,
            "compaction": found.id,
            "undone_at": utc_time(now),
            "restored": back.id if back else None,
        }
    )


@api.post("/sessions/{name:path}/checkpoints/{checkpoint}/restore")
async def restore_checkpoint(
    session: AskedSession, checkpoint: CheckpointId, branch: Branch = None
) -> Reply[RestoredCheckpoint]:
    """Undo the compactions since a checkpoint.

    Messages since then stay. 409, and nothing undone, when a compaction in force on another branch was
    made from one of them.
    """
    place, store = await session.place(branch), session.parts.store
    at = session.namespace, place.row.id
    found = await store.journal.checkpoint(*at, checkpoint)
    talk = (await session.branch(place)).conversation
    if found is None or found.point not in (*talk.names, *talk.chains):
        raise missing()
    stored = await store.compactions.of_session(*at)
    everything = [one.compaction for one in stored]
    left = [one.compaction for one in stored if one.undone_at is None]
    since = [one.compaction for one in stored if one.arrival > found.arrival]
    gone = [one for one in reversed(since) if one in left and applies(one, talk)]
    if above := [other for one in gone for other in builders(one, left) if other not in gone]:
        raise NotUndoable(f"The compaction {above[-1].id} of another branch was made from it.")
    now = time.time()
    for one in gone:
        left.remove(one)
        await _undone(session, place.row, one, restored(one, everything, left), now)
    force = applicable(left, talk)
    return reply(
        {
            **place_fields(place),
            "checkpoint": checkpoint,
            "undone": [one.id for one in gone],
            "restored": force.id if force else None,
        }
    )


async def _undone(
    session: CallersSession, row: SessionRow, compaction: Compaction, back: Compaction | None, now: float
) -> bool:
    """Undo it and record an event; False when it was undone before."""
    store, at = session.parts.store, (session.namespace, row.id)
    if not await store.compactions.undo(*at, compaction.id, now):
        return False
    payload = {"compactionId": compaction.id, "restoredId": back.id if back else None}
    # The id makes repeated calls record a single event.
    event = EventRow(f"{compaction.id}:undone", "compaction_undone", encoded(payload), now)
    await store.journal.add_events(*at, [event])
    return True


def compaction_fields(compaction: Compaction) -> MadeCompaction:
    """A compaction's record."""
    names, spent = compaction.names(), compaction.spent
    return shape_of(
        MadeCompaction,
        compaction,
        parents=list(compaction.parents),
        tokens_freed=compaction.tokens_before - compaction.tokens_after,
        spent=spent
        and {
            "prompt_tokens": spent.prompt,
            "cached_tokens": spent.cached,
            "completion_tokens": spent.completion,
        },
        watermark=context_id(compaction.watermark) if compaction.watermark else None,
        kept=[context_id(chain) for chain in compaction.kept],
        masks=[{"message": names[one.chain], "limit_chars": one.limit_chars} for one in compaction.masks],
    )


def stored_fields(stored: StoredCompaction) -> StoredCompactionFields:
    """A compaction's record with its times."""
    return {
        **compaction_fields(stored.compaction),
        "created_at": utc_time(stored.created_at),
        "undone_at": utc_time_or_none(stored.undone_at),
    }


def followed_fields(one: Followed) -> FollowedCompaction:
    """What followed a compaction."""
    return shape_of(
        FollowedCompaction,
        one,
        compaction=one.compaction.id,
        calls=one.after.all_calls,
        calls_until_change=one.after.calls,
        repeated_calls=one.after.repeated,
        cost=one.compaction.cost,
    )


def folding_fields(found: Folding) -> FoldingFields:
    """A compaction with what it folded."""
    ids = [] if found.talk is None else [context_id(name) for name in found.talk.names]
    return {
        **stored_fields(found.stored),
        "cost": found.stored.compaction.cost,
        "folded": [ids[at] for at in found.folded],
        "newly_folded": sum(at >= found.since for at in found.folded),
        "lines": [
            {"text": line.text, "is_heading": line.is_heading, "sources": [ids[at] for at in line.sources]}
            for line in found.lines
        ],
    }
