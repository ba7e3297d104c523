"""The endpoint that sums up a caller's turns: tokens, money, caches, waiting, failures."""

from __future__ import annotations

import time
from typing import Annotated, Any, TypedDict

from fastapi import APIRouter, Query

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import Reply, UtcTime, described, reply, utc_time
from palimpsest.core.view.compaction import Author
from palimpsest.proxy.overview import Durations, FailureCount, Overviews, Sums
from palimpsest.settings.fields import value_at
from palimpsest.settings.settings import Settings, known_keys
from palimpsest.storage.journal import TokensSpent
from palimpsest.storage.namespaces import Stored

_SHOWN = ("window", "sessions", "policy", "compaction", "recall", "limits")
Days = Annotated[int, Query(ge=1, le=90, description="How many days, today (UTC) included.")]
DaysOrAll = Annotated[
    int, Query(ge=0, le=90, description="How many days, today (UTC) included; 0: since the beginning.")
]


class DurationFields(TypedDict):
    """How long something took; null without any turn."""

    turns: int
    mean_seconds: float | None
    longest_seconds: float | None


class TurnSumsFields(TypedDict):
    """Sums over turns. Tokens are the model's; null is unknown, and `saved` an estimate."""

    turns: int
    compacted: int
    failed: int
    tokens_full: Annotated[int, described("Of the whole prompts.")]
    tokens: Annotated[int, described("Of the prompts that were sent.")]
    prompt_tokens: Annotated[int, described("As the upstream counted them, like the other three.")]
    completion_tokens: int
    cached_tokens: int
    written_tokens: int
    cost: float | None
    saved: float | None
    overhead: Annotated[DurationFields, described("Until the upstream was asked, without compactions.")]
    compaction_waits: DurationFields
    first_byte_seconds: float | None
    cached_share: float | None


class DaySums(TurnSumsFields):
    """The sums of a day (UTC)."""

    day: Annotated[str, described("", format="date")]


class ModelSums(TurnSumsFields):
    """The sums of a model."""

    model: str


class SummaryCalls(TypedDict):
    """Calls for summaries, failed ones included."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class FailureFields(TypedDict):
    """How often turns ended with one error, by whose fault, and how that is cured."""

    cause: str
    code: str
    status: int | None
    turns: int
    cure: str


class StoredFields(TypedDict):
    """All that the caller has stored; times are null without any session."""

    sessions: int
    messages: int
    first_at: UtcTime | None
    last_at: UtcTime | None


class OverviewFields(TypedDict):
    """The caller's turns of the last days, summed up."""

    days: int
    total: TurnSumsFields
    by_day: Annotated[list[DaySums], described("Newest first; empty where `days` is 0.")]
    by_model: list[ModelSums]
    summaries: Annotated[dict[Author, int], described("Compactions by the author of their summary.")]
    summary_calls: SummaryCalls
    failures: list[FailureFields]
    stored: Annotated[StoredFields | None, described("Where `days` is 0.")]


class SettingFields(TypedDict):
    """A setting in force, and where it comes from."""

    key: str
    value: Any
    source: str


class OverviewPages:
    """`/overview`."""

    def __init__(self, overviews: Overviews) -> None:
        self._overviews = overviews

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/overview", self.get_overview, methods=["GET"])

    async def get_overview(self, caller: Admitted, days: DaysOrAll = 7) -> Reply[OverviewFields]:
        """Sum up the turns of the last days.

        Of all turns, by day (UTC), by model; failures with their cures. `days=0`: since the beginning, with
        what is stored.
        """
        found = await self._overviews.of(caller.namespace, days, time.time())
        return reply(
            {
                "days": found.days,
                "total": sums_fields(found.whole),
                "by_day": [{"day": day, **sums_fields(sums)} for day, sums in found.by_day.items()],
                "by_model": [{"model": model, **sums_fields(sums)} for model, sums in found.by_model.items()],
                "summaries": dict(found.summaries),
                "summary_calls": _calls(found.spent),
                "failures": [_failure(failure) for failure in found.failures],
                "stored": None if found.stored is None else _stored(found.stored),
            }
        )


def configuration_of(settings: Settings) -> list[SettingFields]:
    """The settings that decide what is sent, in order of declaration, each with its source.

    Those that name servers, keys and files are the operator's alone (`palimpsest config show`).
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


def sums_fields(sums: Sums) -> TurnSumsFields:
    """Sums over turns."""
    return {
        "turns": sums.turns,
        "compacted": sums.compacted,
        "failed": sums.failed,
        "tokens_full": sums.tokens_full,
        "tokens": sums.tokens,
        "prompt_tokens": sums.prompt_tokens,
        "completion_tokens": sums.completion_tokens,
        "cached_tokens": sums.cached_tokens,
        "written_tokens": sums.written_tokens,
        "cost": sums.cost,
        "saved": sums.saved,
        "overhead": _duration(sums.overhead),
        "compaction_waits": _duration(sums.compaction_waits),
        "first_byte_seconds": sums.first_byte_seconds,
        "cached_share": sums.cached_share,
    }


def _duration(took: Durations) -> DurationFields:
    longest = took.longest if took.times else None
    return {"turns": took.times, "mean_seconds": took.mean, "longest_seconds": longest}


def _stored(stored: Stored) -> StoredFields:
    return {
        "sessions": stored.sessions,
        "messages": stored.messages,
        "first_at": None if stored.created_at is None else utc_time(stored.created_at),
        "last_at": None if stored.updated_at is None else utc_time(stored.updated_at),
    }


def _calls(spent: TokensSpent) -> SummaryCalls:
    return {
        "calls": spent.calls,
        "prompt_tokens": spent.prompt_tokens,
        "completion_tokens": spent.completion_tokens,
        "cached_tokens": spent.cached_tokens,
    }


def _failure(failure: FailureCount) -> FailureFields:
    return {
        "cause": failure.cause,
        "code": failure.code,
        "status": failure.status,
        "turns": failure.turns,
        "cure": failure.cure,
    }
