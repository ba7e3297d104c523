"""What is known of each model's window, and from where: configured, learned, asked for, or guessed.

An overflow error of the upstream is the strongest evidence that a window is smaller than thought
(the window of a running server can shrink); an answer to a larger prompt is evidence against it. A server
that cuts prompts in silence is known by its counts: that is a guess, on which nothing is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.core.budget.budget import Window
from app.core.budget.window import window_from_name
from app.proxy.jobs import Jobs
from app.storage.contract import Store

# Asks the upstream: (model, caller's headers) -> its window in tokens, None when it does not say.
AskWindow = Callable[[str, "list[tuple[bytes, bytes]]"], Awaitable[int | None]]
# A look-up that failed is not repeated for this long: it costs a request and usually fails again.
RETRY_SECONDS = 60.0
# A window the upstream stated is asked for again after this long: servers restart with other settings.
FRESH_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class WindowSources:
    """Where windows are learned from.

    `upstream` names a model's server in the store; `configured` and `model_data` look a model up in the
    settings and in the price library; an urgent request waits `lookup_seconds` for the upstream's word.
    """

    upstream: Callable[[str], str]
    configured: Callable[[str], int | None]
    ask: AskWindow
    model_data: Callable[[str], int | None]
    default_tokens: int
    lookup_seconds: float


class Windows:
    """One per application. All answers come from memory except the first for a model."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        sources: WindowSources,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._upstream = sources.upstream
        self._configured = sources.configured
        self._ask_upstream = sources.ask
        self._model_data = sources.model_data
        self._default_tokens = sources.default_tokens
        self._lookup_seconds = sources.lookup_seconds
        self._overflowed: dict[str, int] = {}
        self._observed: dict[str, int] = {}
        self._stated: dict[str, int] = {}
        self._asked: dict[str, float] = {}
        self._guesses: dict[str, Window] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def load(self) -> None:
        """What earlier runs learned is known again."""
        for (upstream, model), (tokens, source) in (await self._store.windows()).items():
            if upstream == self._upstream(model):
                known = {"overflow": self._overflowed, "observed": self._observed}
                known.get(source, self._stated)[model] = tokens

    async def window_of(self, model: str, headers: list[tuple[bytes, bytes]], *, urgent: bool) -> Window:
        """The window now. `urgent`: the prompt is large enough to wait a moment for the upstream's word."""
        if self._configured(model) is None and self._is_stale(model):
            task = self._ask(model, headers)
            if urgent and model not in self._stated and model not in self._overflowed:
                await asyncio.wait({task}, timeout=self._lookup_seconds)
        return self.known(model)

    def known(self, model: str) -> Window:
        """The best knowledge at hand, without asking anybody."""
        configured = self._configured(model)
        overflowed = self._overflowed.get(model)
        if overflowed is not None and (configured is None or overflowed < configured):
            return Window(overflowed, "overflow")
        if configured is not None:
            return Window(configured, "configured")
        if (observed := self._observed.get(model)) is not None:
            return Window(observed, "observed")
        if (stated := self._stated.get(model)) is not None:
            return Window(stated, "upstream")
        return self._guess(model)

    async def overflowed(self, model: str, tokens: int) -> None:
        """The upstream refused a prompt and said this is its window."""
        self._overflowed[model] = tokens
        await self._store.learn_window(self._upstream(model), model, tokens, "overflow", time.time())

    async def observed(self, model: str, tokens: int) -> bool:
        """The upstream cuts what is longer than this, as its counts tell; False where we knew as much."""
        if self._configured(model) is not None or self.known(model).tokens <= tokens:
            return False
        self._observed[model] = tokens
        await self._store.learn_window(self._upstream(model), model, tokens, "observed", time.time())
        return True

    def answered(self, model: str, prompt_tokens: int) -> None:
        """A prompt of this size was answered: a smaller window that was learned no longer holds."""
        for learned in (self._overflowed, self._observed):
            if prompt_tokens > learned.get(model, prompt_tokens):
                del learned[model]

    def _guess(self, model: str) -> Window:
        guess = self._guesses.get(model)
        if guess is None:
            guess = self._guesses[model] = self._guessed(model)
        return guess

    def _guessed(self, model: str) -> Window:
        if (tokens := self._model_data(model)) is not None:
            return Window(tokens, "model_data")
        if (tokens := window_from_name(model)) is not None:
            return Window(tokens, "name")
        return Window(self._default_tokens, "default")

    def _is_stale(self, model: str) -> bool:
        age = time.monotonic() - self._asked.get(model, float("-inf"))
        return age > (FRESH_SECONDS if model in self._stated else RETRY_SECONDS)

    def _ask(self, model: str, headers: list[tuple[bytes, bytes]]) -> asyncio.Task[None]:
        running = self._asking.get(model)
        if running is None or running.done():
            running = self._asking[model] = self._jobs.start(self._look_up(model, headers))
        return running

    async def _look_up(self, model: str, headers: list[tuple[bytes, bytes]]) -> None:
        tokens = await self._ask_upstream(model, headers)
        self._asked[model] = time.monotonic()
        if tokens is not None and tokens != self._stated.get(model):
            self._stated[model] = tokens
            await self._store.learn_window(self._upstream(model), model, tokens, "upstream", time.time())
