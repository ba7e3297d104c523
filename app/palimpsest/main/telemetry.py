"""Wires what operators watch: counts and their page, traces. What is off is neither imported nor called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from palimpsest.api.metrics import MetricsPage
from palimpsest.errors import SettingsError
from palimpsest.main.features import costs_of
from palimpsest.main.ground import Ground
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.reports import Observer
from palimpsest.proxy.telemetry.metrics import Metrics, ModelLookups
from palimpsest.proxy.telemetry.siblings import Siblings
from palimpsest.settings.settings import Settings, asked_name, model_settings
from palimpsest.upstream.models import prices_from_model_data, window_from_model_data

if TYPE_CHECKING:
    from palimpsest.proxy.telemetry.tracing import Tracer


async def observers_of(settings: Settings, stack: AsyncExitStack) -> list[Observer]:
    """What a generation calls with every request that has ended. SettingsError: an extra is missing."""
    how = settings.telemetry
    if how.otlp_url is None:
        return []
    # On a thread: the import takes 70 ms.
    tracer = (await asyncio.to_thread(tracer_class))(how.otlp_url, content=how.trace_content)
    stack.push_async_callback(tracer.close)
    return [tracer.ended]


def tracer_class() -> type[Tracer]:
    """The tracer, imported. SettingsError when the extra is not installed."""
    try:
        from palimpsest.proxy.telemetry.tracing import Tracer
    except ModuleNotFoundError:
        raise SettingsError(
            "telemetry.otlp_url: this needs an extra: pip install 'palimpsest[otel]'."
        ) from None
    return Tracer


@dataclass(frozen=True, slots=True)
class Scraped:
    """The numbers of this process, and the `siblings` whose numbers a scrape reads, too."""

    metrics: Metrics
    siblings: Siblings | None

    def renew(self, settings: Settings, jobs: Jobs) -> None:
        """From here on models are looked up in these settings."""
        self.metrics.renew(_lookups(settings, jobs))

    def page(self, settings: Settings) -> MetricsPage:
        """The page of the numbers, as these settings let it be read."""
        key = settings.telemetry.metrics_key
        return MetricsPage(self.metrics, self.siblings, key.get_secret_value() if key else None)


def scraped_of(
    ground: Ground,
    settings: Settings,
    open_jobs: Callable[[], int],
    siblings: Siblings | None,
    stack: AsyncExitStack,
) -> Scraped | None:
    """The numbers of this process, for `siblings` too until `stack` is closed; None if they are off."""
    if ground.counts is None:
        return None
    lookups = _lookups(settings, ground.jobs)
    metrics = Metrics(ground.counts, lookups, ground.store, lambda: ground.log.open, open_jobs)
    if siblings is not None:
        stack.callback(siblings.answer_with(metrics.packed, ground.jobs))
    return Scraped(metrics, siblings)


def _lookups(settings: Settings, jobs: Jobs) -> ModelLookups:
    """What the numbers look up about models."""
    known = costs_of(settings, jobs).known
    return ModelLookups(partial(_is_named, settings), partial(_is_published, settings), known)


def _is_named(settings: Settings, model: str) -> bool:
    """True when an entry of `models` or `routes` names the model; one that matches all names none."""
    entry = model_settings(settings, model)
    if entry is not None and entry.match != "*":
        return True
    return any(route.match != "*" and route.models.means(model) for route in settings.routes)


def _is_published(settings: Settings, model: str) -> bool:
    """True when the price library has the model; imports it (0.17 s, 30 MB)."""
    name = asked_name(settings, model)
    try:
        return prices_from_model_data(name) is not None or window_from_model_data(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False
