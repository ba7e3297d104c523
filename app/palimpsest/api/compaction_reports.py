"""Endpoints that show what compactions did: one beside its originals, and what followed each."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from fastapi import APIRouter

from palimpsest.api.callers import Admitted, SessionName
from palimpsest.api.compactions import CompactionId, StoredCompactionFields, stored_fields
from palimpsest.api.replies import MessageId, Reply, Tokens, described, reply
from palimpsest.core.view.compaction import context_id
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compaction_views import CompactionViews, Folding, Followed
from palimpsest.proxy.exchange_views import ExchangeViews


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


class CompactionReports:
    """A compaction beside its originals, and what followed the compactions of a session."""

    def __init__(self, archive: Archive, views: CompactionViews, exchanges: ExchangeViews) -> None:
        self._archive = archive
        self._views = views
        self._exchanges = exchanges

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/report", self.get_report, methods=["GET"])
        api.add_api_route(
            "/sessions/{name:path}/compactions/{compaction}", self.get_compaction, methods=["GET"]
        )

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
