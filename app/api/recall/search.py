"""Search in a session: exact quotes of what was said, best first, with what stands beside them.

Knows nothing of how hits are found or ranked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from app.api.callers import Admitted
from app.api.replies import reply
from app.core.recall.filters import Filters, Holding, Speaker
from app.core.recall.quotes import Hit, Quote
from app.core.recall.tools.results import month_of, reference, time_of
from app.proxy.archive import Archive
from app.proxy.recall.searching import Scope, Searching, Where
from app.storage.recall.contract import RecallRow

# C04.
_MOST_HITS = 50
_QUERY_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How many hits are wanted, and of what."""

    limit: int
    only: Filters


def _wanted(limit: int = 10, role: Speaker | None = None, kind: Holding | None = None) -> _Wanted:
    return _Wanted(max(1, min(limit, _MOST_HITS)), Filters(role, kind))


class SearchPages:
    """The endpoint that finds what was said."""

    def __init__(self, archive: Archive, searching: Searching) -> None:
        self._archive = archive
        self._searching = searching

    def on(self, api: APIRouter) -> None:
        """The route is registered."""
        api.add_api_route("/sessions/{name:path}/search", self.search, methods=["GET"])

    async def search(
        self,
        caller: Admitted,
        name: str,
        q: Annotated[str, Query(max_length=_QUERY_CHARS)],
        wanted: Annotated[_Wanted, Depends(_wanted)],
        branch: str | None = None,
        scope: Scope = "branch",
    ) -> Response:
        """The hits for `q`, a question in any words. At least one is given and at most 50 (C04).

        What a client has edited away is found with `scope=session` only, other sessions with
        `scope=namespace` only (rule 5). `role` and `kind` keep it to some of them.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        where = Where(caller.namespace, place.row.id, place.chain, scope)
        answer = await self._searching.search(where, q, wanted.limit, wanted.only)
        is_elsewhere = scope == "namespace"
        return reply(
            {
                "session": place.row.id,
                "branch": place.chain.hex() or None,
                "scope": scope,
                "total_found": answer.found,
                "total_is_counted": answer.is_counted,
                "is_current": answer.is_current,
                "results": [
                    _fields(hit, answer.rows[hit.quote.entry.id], is_elsewhere) for hit in answer.hits
                ],
            }
        )


def _fields(hit: Hit, row: RecallRow, is_elsewhere: bool) -> dict[str, Any]:
    entry = hit.quote.entry
    fields = {
        "id": entry.id,
        "kind": entry.kind,
        "role": entry.role,
        "time": time_of(entry.at),
        "month": month_of(entry.at),
        "depth": entry.place,
        "text": hit.quote.text,
        "start": hit.quote.start,
        "chars": len(entry.text),
        "before": [_beside(quote) for quote in hit.before],
        "after": [_beside(quote) for quote in hit.after],
    }
    if entry.kind == "payload":
        large = reference(entry, row.tokens)
        fields |= {"tokens": large["tokens"], "summary": large["summary"]}
    return fields | ({"session": row.session} if is_elsewhere else {})


def _beside(quote: Quote) -> dict[str, Any]:
    return {"role": quote.entry.role, "text": quote.text}
