"""Token counters by model, and calibrations between our counts and the upstream's.

A counter is made once for each model. Calibrations are learned for each namespace from its own prompts, so
that one caller's unusual prompts (one letter a thousand times, pictures, fields that a server ignores) do not
affect the counts of others.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from palimpsest.core.budget.upstream_counts import Counted, Measure, Measures, PromptGrowth, taught
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import ChatRequest
from palimpsest.proxy.jobs import Jobs
from palimpsest.storage.accounts import Accounts, Calibration
from palimpsest.tokenizer.counting import Counter

# Callers choose model names, so that what is remembered is bounded.
REMEMBERED_MODELS = 500
REMEMBERED_TOOLS = 1_000
# Every prompt ends with the start of the answer: three tokens in OpenAI's framing.
PRIMING_TOKENS = 3


class ModelTokens:
    """Token counters; `counter_for` makes a model's counter."""

    def __init__(self, counter_for: Callable[[str], Counter]) -> None:
        self._counter_for = counter_for
        self._counters: OrderedDict[str, Counter] = OrderedDict()
        # By sha256: a schema may be as large as a request.
        self._tools: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def counter_of(self, model: str) -> Counter:
        """The model's counter."""
        counter = self._counters.get(model)
        if counter is None:
            counter = self._counter_for(model)
            self._counters[model] = counter
            if len(self._counters) > REMEMBERED_MODELS:
                self._counters.popitem(last=False)
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
            if len(self._tools) > REMEMBERED_TOOLS:
                self._tools.popitem(last=False)
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
        self._known: OrderedDict[tuple[str, str], tuple[Measures, Measures]] = OrderedDict()

    async def load(self) -> None:
        """Read what earlier runs have learned."""
        for row in reversed(await self._accounts.calibrations()):
            measures = Measures(Measure(row.ratio, row.samples), Measure(row.fixed_ratio, row.fixed_samples))
            self._remember((row.namespace, row.model), measures, measures)

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
        is_worth_storing = _distance(after, stored) >= WORTH_STORING
        self._remember((namespace, model), after, after if is_worth_storing else stored)
        if is_worth_storing:
            row = Calibration(
                namespace, model, after.text.ratio, after.text.samples, after.fixed.ratio, after.fixed.samples
            )
            self._jobs.start(self._accounts.save_calibration(row, time.time()))

    def _remember(self, place: tuple[str, str], measures: Measures, stored: Measures) -> None:
        self._known[place] = measures, stored
        self._known.move_to_end(place)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _distance(one: Measures, other: Measures) -> float:
    """The largest difference of the ratios; 1.0 between no sample and a first one."""
    if min(one.text.samples, 1) != min(other.text.samples, 1):
        return 1.0
    if min(one.fixed.samples, 1) != min(other.fixed.samples, 1):
        return 1.0
    return max(abs(one.text.ratio - other.text.ratio), abs(one.fixed.ratio - other.fixed.ratio))
