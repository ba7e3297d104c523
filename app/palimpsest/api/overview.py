"""The endpoint that sums up a caller's turns: tokens, money, caches, waiting, failures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import reply
from palimpsest.core.holdout import Estimate
from palimpsest.proxy.overview import Durations, Overviews, Sums
from palimpsest.proxy.policy_comparison import Compared, PolicyComparison
from palimpsest.settings.fields import value_at
from palimpsest.settings.settings import Settings, known_keys

_SHOWN = ("window", "sessions", "policy", "compaction", "recall", "limits")
Days = Annotated[int, Query(ge=1, le=90)]


class OverviewPages:
    """`/overview`, `/holdout` and `/configuration`."""

    def __init__(self, overviews: Overviews, comparison: PolicyComparison, settings: Settings) -> None:
        self._overviews = overviews
        self._comparison = comparison
        self._settings = settings

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/overview", self.overview, methods=["GET"])
        api.add_api_route("/holdout", self.holdout, methods=["GET"])
        api.add_api_route("/configuration", self.configuration, methods=["GET"])

    async def configuration(self, caller: Admitted) -> Response:
        """The settings in force that decide what is sent, each with its source."""
        del caller
        return reply({"settings": configuration_of(self._settings)})

    async def holdout(self, caller: Admitted, days: Days = 7) -> Response:
        """The policy against the older one that some sessions keep (`policy.holdout`), over the last days."""
        found = await self._comparison.of(caller.namespace, days, time.time())
        return reply(
            {
                "days": found.days,
                "share": found.share,
                "sessions": found.sessions,
                "read": found.read,
                "figures": [_figure(one) for one in found.figures],
            }
        )

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


def configuration_of(settings: Settings) -> list[dict[str, Any]]:
    """The settings that decide what is sent, in order of declaration, each with its source.

    Those that name servers, keys and files are the operator's alone (`palimpsest settings`).
    """
    shown = settings.model_dump(mode="json", include={*_SHOWN})
    return [
        {
            "key": key,
            "value": value_at(shown, key),
            # A file by its name alone.
            "source": settings.source_of(key).rpartition("/")[2],
        }
        for key in known_keys()
        if key.partition(".")[0] in _SHOWN
    ]


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


def _figure(one: Compared) -> dict[str, Any]:
    """A figure in both arms; null where nothing was counted."""
    told: dict[str, Any] = {"name": one.name, "label": one.label, "kind": one.kind}
    for side in ("policy", "holdout", "difference"):
        found: Estimate | None = getattr(one, side)
        told[side] = found and {"value": found.value, "interval": found.interval}
    return told


def _listed(name: str, by: Mapping[str, Sums]) -> list[dict[str, Any]]:
    return [{name: key, **sums_fields(sums)} for key, sums in by.items()]
