"""What is known of models: how their tokens are counted, the window of each and its source, and prices.

A token counter is made once for each model. Calibrations between our counts and the upstream's are learned
for each namespace from its own prompts, so that one caller's unusual prompts (one letter a thousand times,
pictures, fields that a server ignores) do not affect the counts of others.

A window is configured, learned, stated by the upstream, or guessed. Settings take precedence. A window
learned from a caller's requests (an overflow, prompts cut silently) applies to that caller, and to all
callers once a second one has confirmed it. It is forgotten after a day, when a larger prompt is answered, or
when the upstream states another window. Models that have never answered are kept in memory only, and few of
them, because callers can invent names.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import structlog

from palimpsest.core.budget.budget import Window
from palimpsest.core.budget.upstream_counts import Counted, Measure, Measures, Prices, PromptGrowth, taught
from palimpsest.core.budget.window import LIFE_SECONDS, LearnedTokens, confirmed, window_from_name
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import ChatRequest
from palimpsest.proxy.jobs import Jobs, logged
from palimpsest.storage.accounts import UPSTREAM_NAMESPACE, Accounts, Calibration, LearnedWindow
from palimpsest.storage.database import Recent
from palimpsest.tokenizer.counting import Counter
from palimpsest.upstream.models import published

# Callers choose model names, so that what is remembered is bounded.
REMEMBERED_COUNTERS = 500
REMEMBERED_TOOLS = 1_000
# Every prompt ends with the start of the answer: three tokens in OpenAI's framing.
PRIMING_TOKENS = 3


class ModelTokens:
    """Token counters; `counter_for` makes a model's counter."""

    def __init__(self, counter_for: Callable[[str], Counter]) -> None:
        self._counter_for = counter_for
        self._counters: Recent[str, Counter] = Recent(REMEMBERED_COUNTERS)
        # By sha256: a schema may be as large as a request.
        self._tools: Recent[tuple[str, bytes], int] = Recent(REMEMBERED_TOOLS)

    def counter_of(self, model: str) -> Counter:
        """The model's counter."""
        counter = self._counters.get(model)
        if counter is None:
            counter = self._counters[model] = self._counter_for(model)
        return counter

    def knows(self, model: str) -> bool:
        """True when the model's counter exists; making one may load an encoding (0.3 s)."""
        return model in self._counters

    def fixed_tokens(self, request: ChatRequest) -> int:
        """Tokens of every view besides messages: tool schemas, instructions, the start of the answer."""
        tokens = PRIMING_TOKENS
        for schema in (request.tools, request.response_format):
            if schema is not None:
                tokens += self.schema_tokens(request.model, schema)
        if request.instructions is not None:
            # Counted as one more message.
            count = self.counter_of(request.model).count_message
            tokens += self._counted(
                request.model,
                request.instructions,
                lambda raw: count({"role": "system", "content": decoded(raw)}),
            )
        return tokens

    def forget_tools(self) -> None:
        """Forget all tool schemas: callers wrote them, and their sessions are not known."""
        self._tools.clear()

    def schema_tokens(self, model: str, raw: bytes | None) -> int:
        """Tokens that a list of tool schemas adds to the model's prompts; cached."""
        return self._counted(model, raw, self.counter_of(model).count_tools)

    def _counted(self, model: str, raw: bytes | None, count: Callable[[bytes], int]) -> int:
        if raw is None:
            return 0
        key = (model, sha256(raw).digest())
        tokens = self._tools.get(key)
        if tokens is None:
            tokens = self._tools[key] = count(raw)
        return tokens


# A ratio is stored again when it has changed by this much: it is an optimisation, not a record.
WORTH_STORING = 0.005
# Namespaces and models remembered; callers create both.
REMEMBERED = 10_000
_UNKNOWN = Measures()


class Calibrations:
    """How models count compared with us, by namespace and model."""

    def __init__(self, accounts: Accounts, jobs: Jobs, tokens: ModelTokens) -> None:
        self._accounts = accounts
        self._jobs = jobs
        self._tokens = tokens
        # By namespace and model: the current measures, and those stored last.
        self._known: Recent[tuple[str, str], tuple[Measures, Measures]] = Recent(REMEMBERED)

    async def load(self) -> None:
        """Read what earlier runs have learned."""
        for row in reversed(await self._accounts.calibrations()):
            measures = Measures(Measure(row.ratio, row.samples), Measure(row.fixed_ratio, row.fixed_samples))
            self._known[row.namespace, row.model] = measures, measures

    def measures_of(self, namespace: str, model: str) -> Measures:
        """The model's measures for the namespace's prompts, with their numbers of samples."""
        known = self._known.get((namespace, model))
        return known[0] if known else _UNKNOWN

    def ratio_of(self, namespace: str, model: str) -> float:
        """The model's tokens for one of ours; 1.0 while nothing is known."""
        return self.measures_of(namespace, model).text.ratio

    def ratio_in(self, namespace: str, model: str, counted: int | None, ours: int | None) -> float:
        """As `ratio_of`, by what the upstream `counted` in a prompt of `ours` where both are known."""
        return counted / ours if counted and ours else self.ratio_of(namespace, model)

    def fixed_tokens(self, namespace: str, request: ChatRequest) -> int:
        """Tokens of every view besides messages, scaled by what the upstream counts for them."""
        share = self.measures_of(namespace, request.model).fixed_share
        return math.ceil(self.uncalibrated(request) * share)

    def uncalibrated(self, request: ChatRequest) -> int:
        """As `fixed_tokens`, by our own count alone."""
        return self._tokens.fixed_tokens(request)

    def observe(self, namespace: str, model: str, now: Counted, growth: PromptGrowth | None) -> None:
        """Learn from a prompt that was not cut, counted by both; `growth` is its conversation's."""
        known, stored = self._known.get((namespace, model), (_UNKNOWN, _UNKNOWN))
        after = taught(known, now, growth)
        if after == known:
            return
        numbers = [(after.text, stored.text), (after.fixed, stored.fixed)]
        is_first = any(min(one.samples, 1) != min(other.samples, 1) for one, other in numbers)
        is_worth_storing = is_first or max(abs(a.ratio - b.ratio) for a, b in numbers) >= WORTH_STORING
        self._known[namespace, model] = after, after if is_worth_storing else stored
        if is_worth_storing:
            row = Calibration(
                namespace, model, after.text.ratio, after.text.samples, after.fixed.ratio, after.fixed.samples
            )
            self._jobs.start(self._accounts.save_calibration(row, time.time()))


# The headers of a question to the upstream, made from a caller's where one is put.
OwnHeaders = Callable[[], "list[tuple[bytes, bytes]]"]
# Asks the upstream: (model, caller's headers) -> its window in tokens, None when it does not say.
AskWindow = Callable[[str, "list[tuple[bytes, bytes]]"], Awaitable[int | None]]
# The prices in a minute since 1970.
PricesIn: TypeAlias = Callable[[int], Prices | None]
# A failed look-up is not repeated for this long: it costs a request and usually fails again.
RETRY_SECONDS = 60.0
# A stated window is asked for again after this long: servers restart with other settings.
FRESH_SECONDS = 600.0
# Interval at which learned windows are read again: other servers learn, operators delete.
READ_SECONDS = 60.0
# Models remembered: those that have answered, and those that have not. Callers choose the names.
REMEMBERED_MODELS = 1_000
REMEMBERED_NAMES = 100
# Callers who have learned a window of one model.
REMEMBERED_CALLERS = 1_000
_log = structlog.get_logger("palimpsest.windows")
_COSTS = structlog.get_logger("palimpsest.costs")


@dataclass(slots=True)
class _Model:
    """What is known of one model. `doubted`: a prompt was refused since the upstream was asked."""

    stated: int | None = None
    is_stored: bool = False
    asked_at: float = float("-inf")
    doubted: bool = False
    answered: int = 0
    answered_at: float = float("-inf")
    learned: Recent[str, LearnedTokens] = field(default_factory=lambda: Recent(REMEMBERED_CALLERS))
    guess: Window | None = None
    asking: asyncio.Task[None] | None = None

    def confirmed(self) -> LearnedTokens | None:
        """What two callers have learned within a day."""
        if len(self.learned) < 2:
            return None
        now = time.time()
        return confirmed(one for one in self.learned.values() if one.is_fresh(now))


@dataclass(eq=False)
class Windows:
    """The windows of models. Answers come from memory, except the first one for a model.

    `upstream` names a model's server in the store; `configured` and `model_data` look a model up in the
    settings and in the price library; an urgent request waits `lookup_seconds` for the upstream.
    """

    _accounts: Accounts
    _jobs: Jobs
    upstream: Callable[[str], str]
    configured: Callable[[str], int | None]
    ask: AskWindow
    model_data: Callable[[str], int | None]
    default_tokens: int
    lookup_seconds: float

    def __post_init__(self) -> None:
        # By name; kept apart, so that invented names do not evict models that have answered.
        self._answering: Recent[str, _Model] = Recent(REMEMBERED_MODELS)
        self._named: Recent[str, _Model] = Recent(REMEMBERED_NAMES)
        self._read_at = time.monotonic()
        # Incremented by each change, so that rows read before it are discarded.
        self._changes = 0

    async def load(self) -> None:
        """Read what earlier runs and other servers have learned. StoreError."""
        self._read_at, changes = time.monotonic(), self._changes
        rows = await self._accounts.learned_windows(time.time() - LIFE_SECONDS)
        if changes != self._changes:
            return
        for model in self._answering.values():
            model.learned.clear()
        # Newest last, so that the oldest are evicted first.
        for row in reversed(rows):
            if row.upstream != self.upstream(row.model):
                continue
            kept = self._answers(row.model)
            if row.namespace and row.source != "upstream":
                kept.learned[row.namespace] = LearnedTokens(row.tokens, row.source, row.learned_at)
            elif kept.stated is None:
                kept.stated, kept.is_stored = row.tokens, True

    async def window_of(self, model: str, namespace: str, headers: OwnHeaders, *, urgent: bool) -> Window:
        """The window now. `urgent`: the prompt is large enough to wait for the upstream's answer."""
        now = time.monotonic()
        if now - self._read_at > READ_SECONDS:
            self._read_at = now

            async def read_again() -> None:
                with logged(_log, "windows_not_read"):
                    await self.load()

            self._jobs.start(read_again())
        if not self.is_configured(model):
            kept = self._of(model)
            fresh_seconds = FRESH_SECONDS if kept.stated is not None else RETRY_SECONDS
            if kept.doubted or now - kept.asked_at > fresh_seconds:
                is_new = kept.stated is None and namespace not in kept.learned
                if kept.asking is None or kept.asking.done():
                    kept.asking = self._jobs.start(self._look_up(model, kept, headers()))
                if urgent and (kept.doubted or is_new):
                    await asyncio.wait({kept.asking}, timeout=self.lookup_seconds)
        return self.known(model, namespace)

    def known(self, model: str, namespace: str) -> Window:
        """The window as far as it is known, without a request."""
        configured = self.configured(model)
        if configured is not None:
            return Window(configured, "configured")
        kept = self._of(model)
        learned = kept.learned.get(namespace)
        if learned is None or not learned.is_fresh(time.time()):
            learned = kept.confirmed()
        if learned is not None:
            return Window(learned.tokens, learned.source)
        if kept.stated is not None:
            return Window(kept.stated, "upstream")
        if kept.guess is None:
            if (tokens := self.model_data(model)) is not None:
                kept.guess = Window(tokens, "model_data")
            elif (tokens := window_from_name(model)) is not None:
                kept.guess = Window(tokens, "name")
            else:
                kept.guess = Window(self.default_tokens, "default")
        return kept.guess

    def is_configured(self, model: str) -> bool:
        """True when the settings state the window: nothing is learned then."""
        return self.configured(model) is not None

    def largest_answered(self, model: str) -> int:
        """The largest prompt that the model has answered in the last day, of any caller, in its tokens."""
        kept = self._answering.get(model)
        is_old = kept is None or time.time() - kept.answered_at >= LIFE_SECONDS
        return 0 if kept is None or is_old else kept.answered

    def doubt(self, model: str) -> None:
        """The upstream has refused a prompt as too long: ask for its window again."""
        if not self.is_configured(model):
            self._of(model).doubted = True

    async def overflowed(self, model: str, namespace: str, tokens: int) -> None:
        """Learn a window from a refused prompt, after a smaller one was answered."""
        if not self.is_configured(model):
            await self._learn(model, namespace, LearnedTokens(tokens, "overflow", time.time()))

    async def observed(self, model: str, namespace: str, tokens: int) -> bool:
        """Learn a window from silent cuts; False when one as small is known already, or one is configured."""
        known = self.known(model, namespace)
        # A default is a guess, and a policy may assume a larger one.
        if known.source == "configured" or (known.source != "default" and known.tokens <= tokens):
            return False
        await self._learn(model, namespace, LearnedTokens(tokens, "observed", time.time()))
        return True

    def answered(self, model: str, prompt_tokens: int) -> None:
        """A prompt of this size was answered: smaller learned windows are forgotten."""
        kept, now = self._answers(model), time.time()
        if prompt_tokens >= self.largest_answered(model):
            kept.answered, kept.answered_at = prompt_tokens, now
        for namespace in [name for name, learned in kept.learned.items() if learned.tokens < prompt_tokens]:
            del kept.learned[namespace]
            self._jobs.start(self.forget(model, namespace))
        if kept.stated is not None and not kept.is_stored:
            kept.is_stored = True
            self._jobs.start(self._store(model, UPSTREAM_NAMESPACE, kept.stated, "upstream", now))

    def learned_by(self, namespace: str) -> Sequence[LearnedWindow]:
        """What the namespace has learned and not forgotten, sorted by model."""
        now = time.time()
        found = (
            LearnedWindow(namespace, self.upstream(model), model, own.tokens, own.source, own.at)
            for model, kept in self._answering.items()
            if (own := kept.learned.get(namespace)) is not None and own.is_fresh(now)
        )
        return sorted(found, key=lambda row: row.model)

    def is_for_all(self, model: str, namespace: str) -> bool:
        """True when a second caller has confirmed what the namespace has learned."""
        kept = self._of(model)
        own, shared = kept.learned.get(namespace), kept.confirmed()
        return own is not None and shared is not None and confirmed((own, shared)) is not None

    async def forget(self, model: str, namespace: str) -> bool:
        """Forget what the namespace has learned of the model; False when there was nothing. StoreError."""
        self._changes += 1
        own = self._of(model).learned.pop(namespace, None)
        return bool(await self._accounts.forget_windows(model, namespace)) or own is not None

    async def _learn(self, model: str, namespace: str, learned: LearnedTokens) -> None:
        """Store a learned window; the model has answered a smaller prompt."""
        self._changes += 1
        self._answers(model).learned[namespace] = learned
        await self._store(model, namespace, learned.tokens, learned.source, learned.at)

    async def _store(
        self,
        model: str,
        namespace: str,
        tokens: int,
        source: Literal["overflow", "observed", "upstream"],
        at: float,
    ) -> None:
        row = LearnedWindow(namespace, self.upstream(model), model, tokens, source, at)
        await self._accounts.learn_window(row, at - LIFE_SECONDS)

    def _of(self, model: str) -> _Model:
        kept = self._answering.get(model) or self._named.get(model)
        if kept is None:
            kept = self._named[model] = _Model()
        return kept

    def _answers(self, model: str) -> _Model:
        """What is known of a model that has answered."""
        kept = self._of(model)
        self._named.pop(model, None)
        self._answering[model] = kept
        return kept

    async def _look_up(self, model: str, kept: _Model, headers: list[tuple[bytes, bytes]]) -> None:
        tokens = await self.ask(model, headers)
        kept.asked_at, kept.doubted = time.monotonic(), False
        if tokens is None or tokens == kept.stated:
            return
        was_stated = kept.stated is not None
        kept.stated, kept.is_stored = tokens, False
        if was_stated:
            # The server was restarted with another window: what was learned before no longer holds.
            for namespace in tuple(kept.learned):
                await self.forget(model, namespace)
        if model in self._answering:
            kept.is_stored = True
            await self._store(model, UPSTREAM_NAMESPACE, tokens, "upstream", time.time())


class ModelPrices:
    """Prices by model: those that `configured` returns, else those that `published` returns for a minute.

    Both return None for a model without any.
    """

    def __init__(
        self,
        jobs: Jobs,
        configured: Callable[[str], Prices | None],
        published: Callable[[str], PricesIn | None],
    ) -> None:
        self._jobs = jobs
        self._configured = configured
        self._published = published
        self._found: Recent[str, asyncio.Task[PricesIn | None]] = Recent(REMEMBERED_MODELS)

    async def of(self, model: str, *, urgent: bool = True) -> Prices | None:
        """The model's prices now; None when nobody has stated them.

        The first time they are looked up, which only `urgent` work waits for.
        """
        found = self._found.get(model)
        if found is None:
            found = self._found[model] = self._jobs.start(self._look_up(model))
        if urgent and not found.done():
            await asyncio.wait({found})
        prices_in = found.result() if found.done() and not found.cancelled() else None
        return prices_in and prices_in(int(time.time()) // 60)

    async def _look_up(self, model: str) -> PricesIn | None:
        if (configured := self._configured(model)) is not None:
            return lambda _: configured
        try:
            return await asyncio.to_thread(self._published, model)
        except (ImportError, ValueError, AttributeError) as error:
            _COSTS.warning("no_price_data", error=type(error).__name__, model=model)
            return None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of models: windows, calibrations, our token counters, prices."""

    windows: Windows
    calibrations: Calibrations
    tokens: ModelTokens
    prices: ModelPrices


def prices_from_model_data(model: str) -> PricesIn | None:
    """The published prices of `model`; some change at a date, or with the time of day. None without data."""
    found = published(model)
    if found is None:
        return None
    return lru_cache(1)(lambda minute: _prices(found.get_prices(datetime.fromtimestamp(60 * minute, UTC))))


def _prices(stated: Any) -> Prices | None:
    """The prices as stated; tokens without a price of their own cost what others of their direction cost."""
    read, said = stated.input_mtok, stated.output_mtok
    if read is None or said is None:
        return None
    cached, written, thought = stated.cache_read_mtok, stated.cache_write_mtok, stated.output_reasoning_mtok
    own = ((read, read), (cached, read), (written, read), (said, said), (thought, said))
    kinds = [usual if price is None else price for price, usual in own]

    def above(tokens: int, *steps: object) -> Iterator[Any]:
        """The prices of prompts of more than so many tokens."""
        for price in kinds:
            tiers = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= tokens]
            yield float(tiers[-1] if tiers else getattr(price, "base", price))
        yield float(stated.requests_kcount or 0) / 1000
        yield from steps

    starts = sorted({tier.start for price in kinds for tier in getattr(price, "tiers", ())})
    return Prices(*above(-1, tuple([(start, Prices(*above(start))) for start in starts])))
