"""Wires compaction, recall and the journal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache, partial

from palimpsest.core.budget.economy import Prices
from palimpsest.core.policy import Policy
from palimpsest.core.summary.prompt import Instructions
from palimpsest.errors import SettingsError
from palimpsest.main.ground import new_id
from palimpsest.main.parts import Parts
from palimpsest.proxy.compacting.breaker import Breaker, LoopBreaker, SummaryGuard
from palimpsest.proxy.compacting.compactor import Adoption, Compactor
from palimpsest.proxy.compacting.context_loader import ContextLoader, ModelFacts
from palimpsest.proxy.compacting.costs import ModelCosts, SpendingLimit
from palimpsest.proxy.compacting.leases import Leases, LeaseTerms
from palimpsest.proxy.compacting.questions import Prompts
from palimpsest.proxy.compacting.summaries import JobRules, SummaryJobs, SummaryMeans
from palimpsest.proxy.compacting.summary_writer import SummarizerChoice, SummaryWriter
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.journal.checkpoints import Writing
from palimpsest.proxy.journal.runtime import Readings
from palimpsest.proxy.journal.session_journal import SessionJournal
from palimpsest.proxy.kept_answers import RefusalMemory
from palimpsest.proxy.lookups.executing import MixedTurns, ToolExecutor
from palimpsest.proxy.lookups.hidden_rounds import Replays
from palimpsest.proxy.lookups.offering import ToolOfferPolicy
from palimpsest.proxy.lookups.rounds import RecallRounds, RoundMeans
from palimpsest.proxy.lookups.streaming import RoundLimits
from palimpsest.proxy.quotas import Quotas
from palimpsest.proxy.recall.describing import Describer
from palimpsest.proxy.recall.indexing import IndexCatchUp, Indexer, RecallSwitch
from palimpsest.proxy.recall.searching import Searcher
from palimpsest.proxy.recall.tools import RecallTools
from palimpsest.proxy.recall.vectors import VectorMeans, Vectors
from palimpsest.proxy.token_counts import REMEMBERED_MODELS
from palimpsest.settings.session import recall_enabled, session_policy, session_recalls
from palimpsest.settings.settings import (
    Settings,
    asked_name,
    cache_seconds,
    configured_prices,
    merged,
    model_settings,
)
from palimpsest.settings.upstreams import SummarizerSettings
from palimpsest.upstream.models import prices_from_model_data


@dataclass(frozen=True, slots=True)
class RecallParts:
    """The parts of recall, one of each."""

    indexing: Indexer
    searching: Searcher
    tools: RecallTools
    recalling: RecallRounds
    mixed: MixedTurns
    replays: Replays


def recall_of(parts: Parts) -> RecallParts:
    """The index, search, the recall tools, and the parts that offer them to models and run their calls."""
    settings, stopping = parts.settings, parts.stopping
    how, limits = settings.recall, settings.limits
    switch = RecallSwitch(parts.store.journal, partial(recall_enabled, settings))
    vectors = None
    if parts.ground.embedder is not None:
        means = VectorMeans(parts.store.search, parts.jobs, stopping, switch)
        vectors = Vectors(means, parts.ground.embedder)
    then = vectors.later if vectors is not None else None
    indexing = Indexer(parts.store.search, parts.jobs, parts.ground.background, stopping, switch, then)
    catching_up = IndexCatchUp(parts.store.search, indexing, switch, how.search_wait_seconds)
    searching = Searcher(parts.store.search, catching_up, switch, how, vectors)
    describing = Describer(parts.store, how.large_payload_tokens)
    tools = RecallTools(parts.store, searching, describing, switch, new_id)
    refusing = RefusalMemory()
    offering = ToolOfferPolicy(
        refusing,
        partial(recall_enabled, settings),
        session_recalls,
        by_default=how.tools,
        without_tools=how.tools_for_all,
    )
    executing = ToolExecutor(
        tools, lambda model: parts.tokens.counter_of(model).count_message, how.result_chars
    )
    bounds = RoundLimits(how.max_rounds, limits.frame_bytes, limits.answer_bytes)
    # A search waits for the store and for the word index.
    wait_seconds = settings.database.store_deadline_seconds + how.search_wait_seconds
    return RecallParts(
        indexing=indexing,
        searching=searching,
        tools=tools,
        recalling=RecallRounds(RoundMeans(parts.destinations, executing, refusing, bounds)),
        mixed=MixedTurns(parts.store.exchanges, parts.jobs, executing, wait_seconds, parts.ground.lookups),
        replays=Replays(parts.store.exchanges, parts.tokens, offering, how.result_chars, how.tools_share),
    )


# A background summary may take this many times as long as a request would wait for one.
PATIENCE = 3


class Policies:
    """The policy of a model in a session; cached, since every request needs it."""

    def __init__(self, settings: Settings) -> None:
        # Bounded, since callers choose the models' names.
        self._kept = lru_cache(REMEMBERED_MODELS)(partial(session_policy, settings))

    def of(self, model: str, stored: bytes | None) -> Policy:
        """The policy of the model in a session with these stored settings."""
        return self._kept(model, stored)

    def forget(self) -> None:
        """Forget the settings of sessions."""
        self._kept.cache_clear()


def context_loader_of(parts: Parts, policies: Policies, replays: Replays) -> ContextLoader:
    """The loader of compaction contexts."""
    costs = costs_of(parts.settings, parts.jobs)
    facts = ModelFacts(parts.windows, parts.calibrations, parts.tokens, costs)
    share = parts.settings.compaction.text_pins_share
    return ContextLoader(
        parts.store, facts, policies.of, parts.destinations.headers, replays, text_pins_share=share
    )


def costs_of(settings: Settings, jobs: Jobs) -> ModelCosts:
    """The costs of conversations."""
    how = settings.compaction
    return ModelCosts(
        jobs,
        partial(configured_prices, settings),
        lambda model: prices_from_model_data(asked_name(settings, model)),
        lru_cache(REMEMBERED_MODELS)(partial(cache_seconds, settings)),
        asks_model=how.deadline_seconds > 0 or how.background,
    )


def quotas_of(parts: Parts) -> Quotas:
    """The daily quotas of callers."""
    costs = costs_of(parts.settings, parts.jobs)

    async def prices(model: str) -> Prices | None:
        entry = model_settings(parts.settings, model)
        if entry is not None and entry.prices.input == 0:
            return None
        found = await costs.known(model)
        is_stated = configured_prices(parts.settings, model) is not None
        # What is published as free has the default ratios, which are no dollars.
        return found if is_stated or found != Prices() else None

    return Quotas(parts.store.accounts, parts.jobs, prices)


def journal_of(parts: Parts) -> SessionJournal:
    """The writer of checkpoints, events and memories."""
    ground, journal = parts.ground, parts.store.journal
    writing = Writing(journal, parts.jobs, ground.background, time.time, new_id, parts.daily_log)
    return SessionJournal(writing, Readings(parts.store, parts.reader, parts.tokens), ground.usages)


def writer_of(parts: Parts) -> SummaryWriter:
    """The writer of summaries."""
    how = parts.settings.compaction
    chosen = parts.settings.summarizer
    choice = SummarizerChoice(
        model=chosen.model,
        window_tokens=chosen.window_tokens,
        may_reuse_prompt=chosen.base_url is None and chosen.model is None,
        call_seconds=max(1.0, PATIENCE * how.deadline_seconds),
        instructions=instructions_of(chosen),
    )
    restraint = SummaryGuard(
        Breaker(merged([parts.settings.policy]).breaker_failures, how.breaker_seconds, time.monotonic),
        LoopBreaker(how.breaker_seconds, time.monotonic),
        SpendingLimit(parts.store.journal, how.summary_tokens_per_day, time.time, new_id()),
    )
    prompts = Prompts(parts.kept, choice.instructions)
    return SummaryWriter(parts.summarizers, parts.worker, prompts, choice, restraint, new_id)


def instructions_of(chosen: SummarizerSettings) -> Instructions:
    """The instructions of summary prompts. SettingsError when the operator's prompt file cannot be read."""
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
    """The leases on sessions' summaries, where several servers share the database."""
    # A SQLite file has one server, which takes over the leases of a killed one at its restart.
    holder = parts.store.journal.server or "sole"
    seconds = parts.settings.compaction.summary_lease_seconds
    terms = LeaseTerms(holder, seconds, time.time)
    return Leases(parts.store.journal, parts.jobs, terms, parts.ground.leases)


def compactor_of(parts: Parts, writer: SummaryWriter, journal: SessionJournal) -> Compactor:
    """The executor of compaction plans."""
    how, counts = parts.settings.compaction, parts.ground.counts
    # Keys are kept at least as long as a request may wait for a summary.
    rules = JobRules(
        concurrent=how.concurrent_summaries,
        key_seconds=max(how.key_ttl_seconds, how.deadline_seconds),
        attempts=how.summary_attempts,
        backoff_seconds=how.summary_backoff_seconds,
    )
    means = SummaryMeans(
        writer, parts.store, parts.jobs, leases_of(parts), journal.failed, parts.ground.erasure.gone
    )
    summaries = SummaryJobs(means, rules, new_id)
    return Compactor(
        Adoption(parts.store, parts.jobs, journal, counts.compacted if counts else None),
        summaries,
        deadline_seconds=how.deadline_seconds,
        background=how.background and how.key_ttl_seconds > 0,
        new_id=new_id,
    )
