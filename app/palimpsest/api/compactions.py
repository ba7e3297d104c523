"""Endpoints of a session's compactions: their list, one beside its originals, and what followed each."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

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
from palimpsest.proxy.compaction_views import CompactionViews, Folding, Followed
from palimpsest.proxy.exchange_views import ExchangeViews
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


class FollowedCompaction(TypedDict):
    """What followed a compaction; `repeated_cost` and `saved` are estimates, null without a price."""

    compaction: str
    since: Annotated[int, described("Number of the first turn under it.")]
    turns: int
    calls: int
    calls_until_change: Annotated[int | None, described("Until the first that changed something.")]
    repeated_calls: int
    repeated_cost: float | None
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


class CompactionPages:
    """Compactions of a session, each beside its originals, and what followed them."""

    def __init__(
        self, archive: Archive, store: Store, views: CompactionViews, exchanges: ExchangeViews
    ) -> None:
        self._archive = archive
        self._store = store
        self._views = views
        self._exchanges = exchanges

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/compactions", self.list_compactions, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/report", self.get_report, methods=["GET"])
        api.add_api_route(
            "/sessions/{name:path}/compactions/{compaction}", self.get_compaction, methods=["GET"]
        )

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

    async def get_report(self, caller: Admitted, name: SessionName) -> Reply[SessionReport]:
        """Report what followed each compaction of the default branch.

        Also what makes the session dearer than need be.
        """
        row = await self._archive.session(caller.namespace, name)
        followed = await self._views.followed(caller.namespace, row)
        findings = await self._exchanges.findings(caller.namespace, row)
        return reply(
            {
                "session": row.id,
                "compactions": [followed_fields(one) for one in followed],
                "findings": [
                    {"kind": one.kind, "names": list(one.names), "times": one.times, "tokens": one.tokens}
                    for one in findings
                ],
            }
        )

    async def get_compaction(
        self, caller: Admitted, name: SessionName, compaction: CompactionId
    ) -> Reply[WholeCompaction]:
        """Get a compaction beside its originals.

        What it folded, and each line of its summary with the messages it comes from.
        """
        row = await self._archive.session(caller.namespace, name)
        found = await self._views.folding(caller.namespace, row, compaction)
        cost = await self._views.cost_of(found.stored.compaction)
        return reply({"session": row.id, **folding_fields(found, cost)})


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


def followed_fields(one: Followed) -> FollowedCompaction:
    """What followed a compaction."""
    return {
        "compaction": one.compaction.id,
        "since": one.since,
        "turns": one.turns,
        "calls": one.after.all_calls,
        "calls_until_change": one.after.calls,
        "repeated_calls": one.after.repeated,
        "repeated_cost": one.repeated_cost,
        "lookups": one.lookups,
        "cost": one.cost,
        "saved": one.saved,
        "waited_seconds": one.waited_seconds,
    }


def folding_fields(found: Folding, cost: float | None) -> FoldingFields:
    """A compaction with what it folded. `cost` is of its text."""
    ids = [] if found.talk is None else [context_id(name) for name in found.talk.names]
    return {
        **stored_fields(found.stored),
        "cost": cost,
        "folded": [ids[at] for at in found.folded],
        "newly_folded": sum(at >= found.since for at in found.folded),
        "lines": [
            {"text": line.text, "is_heading": line.is_heading, "sources": [ids[at] for at in line.sources]}
            for line in found.lines
        ],
    }
