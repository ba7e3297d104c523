"""The endpoint that sums up a caller's turns: tokens, money, caches, waiting, failures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import reply
from palimpsest.proxy.overview import Durations, Overviews, Sums

Days = Annotated[int, Query(ge=1, le=90)]


class OverviewPages:
    """`/overview`."""

    def __init__(self, overviews: Overviews) -> None:
        self._overviews = overviews

    def on(self, api: APIRouter) -> None:
        """Register the route."""
        api.add_api_route("/overview", self.overview, methods=["GET"])

    async def overview(self, caller: Admitted, days: Days = 7) -> Response:
        """The sums of the last days (UTC): of all turns, by day, by model; failures with their cures."""
        found = await self._overviews.of(caller.namespace, days, time.time())
        return reply(
            {
                "days": found.days,
                "total": sums_fields(found.whole),
                "by_day": _listed("day", found.by_day),
                "by_model": _listed("model", found.by_model),
                "summaries": found.summaries,
                "summary_calls": asdict(found.spent),
                "failures": [asdict(failure) for failure in found.failures],
            }
        )


def sums_fields(sums: Sums) -> dict[str, Any]:
    """Sums; null is unknown, and `saved` an estimate."""
    known = asdict(sums)
    known |= {"first_byte_seconds": sums.first_byte_seconds, "cached_share": sums.cached_share}
    known |= {"overhead": _duration(sums.overhead), "compaction_waits": _duration(sums.compaction_waits)}
    return {name: value for name, value in known.items() if name not in ("first_byte", "stated_cache")}


def _duration(took: Durations) -> dict[str, float | None]:
    """Seconds; null without any turn."""
    longest = took.longest if took.times else None
    return {"turns": took.times, "mean_seconds": took.mean, "longest_seconds": longest}


def _listed(name: str, by: Mapping[str, Sums]) -> list[dict[str, Any]]:
    return [{name: key, **sums_fields(sums)} for key, sums in by.items()]
