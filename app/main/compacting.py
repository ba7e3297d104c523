"""The parts that decide and carry out compactions.

Knows nothing of how requests and answers travel.
"""

from __future__ import annotations

import time
from functools import _lru_cache_wrapper, lru_cache, partial
from typing import TypeAlias

from app.core.summary.prompt import Instructions
from app.core.view.policy import Policy
from app.errors import SettingsError
from app.main.parts import Parts, new_id
from app.proxy.chronicle.adoption import Adoption
from app.proxy.chronicle.chronicle import Chronicle, Writing
from app.proxy.chronicle.readings import Readings
from app.proxy.compacting.breaker import Breaker, LoopBreaker
from app.proxy.compacting.compactor import Compactor
from app.proxy.compacting.costs import ModelCosts
from app.proxy.compacting.leases import Leases, Tenure
from app.proxy.compacting.model_tokens import REMEMBERED_MODELS
from app.proxy.compacting.questions import Prompts
from app.proxy.compacting.restraint import Restraint
from app.proxy.compacting.scenes import ModelFacts, Scenes
from app.proxy.compacting.spending import Spending
from app.proxy.compacting.summaries import JobRules, Means, Summaries
from app.proxy.compacting.summary_writer import SummarizerChoice, SummaryWriter
from app.proxy.hidden.replaying import Replays
from app.settings.models import SummarizerSettings
from app.settings.session import session_policy
from app.settings.settings import (
    asked_name,
    cache_seconds,
    configured_prices,
)
from app.upstream.prices import prices_from_model_data

# A model and a session's own settings to the policy; a cache, for it is asked at every request.
Policies: TypeAlias = "_lru_cache_wrapper[Policy]"
# A background summary may take this many times as long as a request would wait for one.
PATIENCE = 3


def policies_of(parts: Parts) -> Policies:
    """How sessions are compacted. Models are the caller's to name: what is remembered of them is bounded."""
    return lru_cache(REMEMBERED_MODELS)(partial(session_policy, parts.settings))


def scenes_of(parts: Parts, policies: Policies, replays: Replays) -> Scenes:
    """Who gathers what a turn is judged by."""
    facts = ModelFacts(parts.windows, parts.calibrations, parts.tokens, costs_of(parts))
    share = parts.settings.compaction.text_pins_share
    return Scenes(parts.store, facts, policies, parts.destinations.headers, replays, text_pins_share=share)


def costs_of(parts: Parts) -> ModelCosts:
    """What conversations cost."""
    how = parts.settings.compaction
    return ModelCosts(
        parts.jobs,
        partial(configured_prices, parts.settings),
        lambda model: prices_from_model_data(asked_name(parts.settings, model)),
        partial(cache_seconds, parts.settings),
        asks_model=how.deadline_seconds > 0 or how.background,
    )


def chronicle_of(parts: Parts) -> Chronicle:
    """Who keeps checkpoints, events and memories of sessions."""
    writing = Writing(parts.store, parts.jobs, time.time, new_id, parts.erasure.log)
    return Chronicle(writing, Readings(parts.store, parts.reader, parts.tokens))


def writer_of(parts: Parts) -> SummaryWriter:
    """Who asks models for summaries."""
    how, policy = parts.settings.compaction, parts.settings.policy
    chosen = parts.settings.summarizer
    choice = SummarizerChoice(
        model=chosen.model,
        window_tokens=chosen.window_tokens,
        may_ride=chosen.base_url is None and chosen.model is None,
        call_seconds=max(1.0, PATIENCE * how.deadline_seconds),
        instructions=instructions_of(chosen),
    )
    restraint = Restraint(
        Breaker(policy.breaker_failures, how.breaker_seconds, time.monotonic),
        LoopBreaker(how.breaker_seconds, time.monotonic),
        Spending(parts.store, how.summary_tokens_per_day, time.time, new_id()),
    )
    prompts = Prompts(parts.kept, choice.instructions)
    return SummaryWriter(parts.summarizers, parts.worker, prompts, choice, restraint, new_id)


def instructions_of(chosen: SummarizerSettings) -> Instructions:
    """How summaries in sections are asked for. SettingsError when the operator's prompt cannot be read."""
    form = ""
    if chosen.prompt_file is not None:
        try:
            form = chosen.prompt_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = "it is not UTF-8" if isinstance(error, ValueError) else str(error.strerror)
            raise SettingsError(
                f"summarizer.prompt_file: {chosen.prompt_file} cannot be read: {why}."
            ) from error
        if not form:
            raise SettingsError(f"summarizer.prompt_file: {chosen.prompt_file} is empty.")
    return Instructions(form, chosen.extra_instructions.strip())


def leases_of(parts: Parts) -> Leases:
    """Who writes for which session, where several servers share the database."""
    # A SQLite file has one server: what a killed one held is its own again after a restart.
    holder = parts.store.server or "sole"
    seconds = parts.settings.compaction.summary_lease_seconds
    return Leases(parts.store, parts.jobs, Tenure(holder, seconds, time.time))


def compactor_of(parts: Parts, writer: SummaryWriter, chronicle: Chronicle) -> Compactor:
    """Who carries plans out."""
    how = parts.settings.compaction
    # A request that waits for a summary is open so long at most; its key is not kept for less.
    rules = JobRules(
        concurrent=how.concurrent_summaries,
        key_seconds=max(how.key_ttl_seconds, how.deadline_seconds),
        attempts=how.summary_attempts,
        backoff_seconds=how.summary_backoff_seconds,
    )
    means = Means(writer, parts.store, parts.jobs, leases_of(parts), chronicle.failed, parts.erasure.gone)
    summaries = Summaries(means, rules, new_id)
    return Compactor(
        Adoption(parts.store, parts.jobs, chronicle),
        summaries,
        deadline_seconds=how.deadline_seconds,
        background=how.background and how.key_ttl_seconds > 0,
        new_id=new_id,
    )
