"""The endpoint that lists a session's compactions."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import APIRouter, Path, Query

from palimpsest.api.callers import Admitted, SessionName
from palimpsest.api.replies import (
    MessageId,
    Reply,
    Tokens,
    UtcTime,
    described,
    reply,
    utc_time,
    utc_time_or_none,
)
from palimpsest.core.view.compaction import (
    Author,
    Compaction,
    CompactionKind,
    SpentTokens,
    Trigger,
    context_id,
)
from palimpsest.proxy.archive import Archive
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.store import Store

_MOST_COMPACTIONS = 500
CompactionId = Annotated[str, Path(description="Id of a compaction of the session.")]


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
    rebuilt: Annotated[int, described("Messages that it was rebuilt from, else 0.")]
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
    next: Annotated[str | None, described("The `after` of the next page; null on the last one.")]


class CompactionPages:
    """Compactions of a session."""

    def __init__(self, archive: Archive, store: Store) -> None:
        self._archive = archive
        self._store = store

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/compactions", self.list_compactions, methods=["GET"])

    async def list_compactions(
        self,
        caller: Admitted,
        name: SessionName,
        limit: Annotated[int, Query(ge=1, le=_MOST_COMPACTIONS, description="At most so many.")] = 100,
        after: Annotated[str, Query(max_length=100, description="The `next` of the page before.")] = "",
    ) -> Reply[CompactionPage]:
        """List the compactions of a session, oldest first."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._store.compactions.of_session(caller.namespace, row.id)
        start = 1 + next((at for at, one in enumerate(stored) if one.compaction.id == after), -1)
        page = stored[start : start + limit]
        more = page[-1].compaction.id if start + limit < len(stored) else None
        shown = [stored_fields(one) for one in page]
        return reply({"session": row.id, "compactions": shown, "next": more})


def compaction_fields(compaction: Compaction) -> MadeCompaction:
    """A compaction's record."""
    names = compaction.names()
    return {
        "id": compaction.id,
        "kind": compaction.kind,
        "trigger": compaction.trigger,
        "reason": compaction.reason,
        "policy": compaction.policy,
        "author": compaction.author,
        "model": compaction.model,
        "passes": compaction.passes,
        "rebuilt": compaction.rebuilt,
        "parents": list(compaction.parents),
        "tokens_before": compaction.tokens_before,
        "tokens_after": compaction.tokens_after,
        "tokens_freed": compaction.tokens_before - compaction.tokens_after,
        "spent": _spent_fields(compaction.spent),
        "messages_folded": compaction.messages_folded,
        "watermark": context_id(compaction.watermark) if compaction.watermark else None,
        "kept": [context_id(chain) for chain in compaction.kept],
        "masks": [
            {"message": names[mask.chain], "limit_chars": mask.limit_chars} for mask in compaction.masks
        ],
        "summary": compaction.summary,
        "memory": compaction.memory,
    }


def _spent_fields(spent: SpentTokens | None) -> SummaryTokensFields | None:
    if spent is None:
        return None
    return {
        "prompt_tokens": spent.prompt,
        "cached_tokens": spent.cached,
        "completion_tokens": spent.completion,
    }


def stored_fields(stored: StoredCompaction) -> StoredCompactionFields:
    """A compaction's record with its times."""
    return {
        **compaction_fields(stored.compaction),
        "created_at": utc_time(stored.created_at),
        "undone_at": utc_time_or_none(stored.undone_at),
    }
