"""Wires what operators watch: counts and their page, traces. What is off is neither imported nor called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from palimpsest.api.metrics import MetricsPage
from palimpsest.errors import SettingsError
from palimpsest.main.features import costs_of
from palimpsest.main.parts import Parts
from palimpsest.proxy.reports import Observer
from palimpsest.proxy.telemetry.metrics import Metrics, ModelLookups
from palimpsest.proxy.telemetry.siblings import Siblings
from palimpsest.settings.settings import Settings, asked_name, model_settings
from palimpsest.upstream.models import prices_from_model_data, window_from_model_data

if TYPE_CHECKING:
    from palimpsest.proxy.telemetry.tracing import Tracer


async def observers_of(parts: Parts, stack: AsyncExitStack) -> list[Observer]:
    """What is called with every request that has ended."""
    observers: list[Observer] = []
    if parts.counts is not None:
        observers.append(parts.counts.ended)
    if parts.settings.telemetry.otlp_url is not None:
        observers.append(await _tracer(parts, stack))
    return observers


async def _tracer(parts: Parts, stack: AsyncExitStack) -> Observer:
    how = parts.settings.telemetry
    # On a thread: it takes 70 ms.
    tracer_of = await asyncio.to_thread(tracer_code)
    tracer = tracer_of(how.otlp_url or "", content=how.trace_content)
    stack.push_async_callback(tracer.close)
    return tracer.ended


def tracer_code() -> type[Tracer]:
    """SettingsError when the extra is not installed."""
    try:
        from palimpsest.proxy.telemetry.tracing import Tracer
    except ModuleNotFoundError:
        raise SettingsError(
            "telemetry.otlp_url: this needs an extra: pip install 'palimpsest[otel]'."
        ) from None
    return Tracer


def metrics_page_of(
    parts: Parts, in_progress: Callable[[], int], siblings: Siblings | None, stack: AsyncExitStack
) -> MetricsPage | None:
    """The page of the numbers; None where they are off. With `siblings`, those of all workers."""
    if parts.counts is None:
        return None
    settings = parts.settings
    facts = ModelLookups(
        partial(_is_named, settings), partial(_is_published, settings), costs_of(parts).known
    )
    metrics = Metrics(parts.counts, facts, parts.store, parts.jobs, in_progress)
    if siblings is not None:
        stack.callback(siblings.answer_with(metrics.packed, parts.jobs))
    key = settings.telemetry.metrics_key
    return MetricsPage(metrics, siblings, key.get_secret_value() if key else None)


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
