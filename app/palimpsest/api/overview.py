"""Endpoints about all of a caller's turns: their sums, and the windows of models learned from them."""

from __future__ import annotations

import time
from typing import Annotated, Any, TypedDict

from fastapi import Path, Query

from palimpsest.api.callers import Admitted, api_router
from palimpsest.api.replies import (
    Day,
    Reply,
    UtcTime,
    described,
    reply,
    shape_of,
    utc_time,
    utc_time_or_none,
)
from palimpsest.core.budget.window import LIFE_SECONDS
from palimpsest.core.view.compaction import Author
from palimpsest.proxy.overviews import Durations, Sums
from palimpsest.settings.fields import value_at
from palimpsest.settings.settings import Settings, known_keys

_SHOWN = ("window", "sessions", "policy", "compaction", "recall", "limits")
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

    day: Day


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


class LearnedWindowFields(TypedDict):
    """The window of a model, learned from the caller's requests."""

    model: str
    tokens: int
    source: Annotated[str, described("`overflow` or `observed`.")]
    learned_at: UtcTime
    expires_at: UtcTime
    for_all: Annotated[bool, described("It counts for all callers.")]


class WindowList(TypedDict):
    """Learned windows, by model."""

    windows: list[LearnedWindowFields]


class ForgottenWindow(TypedDict):
    """`forgotten` is false when nothing was known."""

    model: str
    forgotten: bool


api = api_router()


@api.get("/overview")
async def get_overview(caller: Admitted, days: DaysOrAll = 7) -> Reply[OverviewFields]:
    """Sum up the turns of the last days.

    Of all turns, by day (UTC), by model; failures with their cures. `days=0`: since the beginning, with
    what is stored.
    """
    found = await caller.parts.overviews.of(caller.namespace, days, time.time())
    stored: StoredFields | None = None
    if found.stored is not None:
        first, last = found.stored.created_at, found.stored.updated_at
        times = {"first_at": utc_time_or_none(first), "last_at": utc_time_or_none(last)}
        stored = shape_of(StoredFields, found.stored, **times)
    return reply(
        {
            "days": found.days,
            "total": _sums(found.whole),
            "by_day": [{"day": day, **_sums(sums)} for day, sums in found.by_day.items()],
            "by_model": [{"model": model, **_sums(sums)} for model, sums in found.by_model.items()],
            "summaries": dict(found.summaries),
            "summary_calls": shape_of(SummaryCalls, found.spent),
            "failures": [shape_of(FailureFields, failure) for failure in found.failures],
            "stored": stored,
        }
    )


@api.get("/windows")
async def list_windows(caller: Admitted) -> Reply[WindowList]:
    """List the windows of models that were learned from the caller's requests."""
    windows = caller.parts.windows
    shown = [
        shape_of(
            LearnedWindowFields,
            one,
            learned_at=utc_time(one.learned_at),
            expires_at=utc_time(one.learned_at + LIFE_SECONDS),
            for_all=windows.is_for_all(one.model, one.namespace),
        )
        for one in windows.learned_by(caller.namespace)
    ]
    return reply({"windows": shown})


@api.delete("/windows/{model:path}")
async def forget_window(
    caller: Admitted, model: Annotated[str, Path(description="Name of a model.")]
) -> Reply[ForgottenWindow]:
    """Forget the learned window of a model."""
    forgotten = await caller.parts.windows.forget(model, caller.namespace)
    return reply({"model": model, "forgotten": forgotten})


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


def _sums(sums: Sums) -> TurnSumsFields:
    overhead, waits = _duration(sums.overhead), _duration(sums.compaction_waits)
    return shape_of(TurnSumsFields, sums, overhead=overhead, compaction_waits=waits)


def _duration(took: Durations) -> DurationFields:
    longest = took.longest if took.times else None
    return {"turns": took.times, "mean_seconds": took.mean, "longest_seconds": longest}
