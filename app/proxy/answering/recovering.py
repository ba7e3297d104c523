"""What follows an upstream's "too long": a smaller view is made, and its window learned if that is answered
(A29).

Knows nothing of how requests travel. Each step leaves an event in the session's journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

import structlog

from app.core.budget.learned import LEAST_TOKENS, is_credible
from app.errors import RequestError, StoreError
from app.proxy.chronicle.chronicle import Chronicle
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.viewing import Viewing
from app.proxy.compacting.windows import Windows
from app.proxy.turn import Shown, Turn
from app.upstream.overflow import Overflow
from app.upstream.request_words import RequestWords

# A prompt beyond this share of a known window may be what an unexplained refusal means: by the time that
# we count 0.9 of it there is a compaction anyway, and another tokenizer may count twice what we do.
NEAR_WINDOW = 0.5
# Where the window is a guess, any prompt beyond the smallest windows in use may be too long (tokens).
SMALLEST_WINDOW = 4_000
# The Responses API says "too long" within a stream that has begun; windows are known worse than by half.
WORTH_WAITING = 0.5
_log = structlog.get_logger("palimpsest.upstream")


@dataclass(frozen=True, slots=True)
class RefusedView:
    """One refusal of a turn: what was shown to the model, and what its server said of it."""

    shown: Shown
    overflow: Overflow

    @property
    def window(self) -> int | None:
        """The window that was named, None for none or one that no model has."""
        named = self.overflow.window
        return named if named is not None and named >= LEAST_TOKENS else None


class Recovery:
    """One for the application; a turn is recovered at most `retries` times."""

    def __init__(
        self,
        viewing: Viewing,
        windows: Windows,
        calibrations: Calibrations,
        chronicle: Chronicle,
        retries: int,
    ) -> None:
        self._viewing = viewing
        self._windows = windows
        self._calibrations = calibrations
        self._chronicle = chronicle
        self._retries = retries

    def is_near_window(self, turn: Turn, shown: Shown) -> bool:
        """True when the prompt is so long that an unexplained refusal may mean its length."""
        window = self._windows.known(turn.model, turn.namespace)
        least = NEAR_WINDOW * window.tokens
        return shown.tokens >= (least if window.is_known else min(least, SMALLEST_WINDOW))

    def may_fail_late(self, turn: Turn, shown: Shown) -> bool:
        """True when a stream that has begun may still say that the prompt is too long."""
        if turn.request.wire == "chat":
            return False
        return shown.tokens >= WORTH_WAITING * self._windows.known(turn.model, turn.namespace).tokens

    async def smaller(self, turn: Turn, refused: Sequence[RefusedView]) -> Shown | None:
        """A smaller view after these refusals, the last one just met; None where none would be answered.

        The window that it named counts for this one view, whatever else is known.
        """
        attempt, last = len(refused), refused[-1]
        if last.overflow.kind != "prompt" or self._retries == 0:
            return None
        if attempt > self._retries:
            await self._chronicle.recovery_failed(turn, attempt - 1, "still_too_long")
            return None
        await self._chronicle.recovery_started(
            turn, attempt, self._retries, last.shown.for_model(last.shown.tokens)
        )
        self._windows.doubt(turn.model)
        try:
            smaller = await self._viewing.recovered(turn, last.shown, last.window)
        except RequestError as failed:
            await self._chronicle.recovery_failed(turn, attempt, failed.code)
            return None
        if smaller is None:
            await self._chronicle.recovery_failed(turn, attempt, "no_smaller_view")
        return smaller

    async def succeeded(self, turn: Turn, shown: Shown, refused: Sequence[RefusedView]) -> None:
        """The upstream took the smaller view: the window that it named is believed, if it can be."""
        named = next((one for one in reversed(refused) if one.window is not None), None)
        if named is not None and named.window is not None:
            await self._learn(turn, named.shown, named.window)
        compaction = shown.view.compaction
        await self._chronicle.recovery_completed(
            turn, len(refused), compaction.id if compaction else "", shown.for_model(shown.tokens)
        )

    async def _learn(self, turn: Turn, shown: Shown, window: int) -> None:
        if self._windows.is_configured(turn.model):
            known = self._windows.known(turn.model, turn.namespace).tokens
            _log.warning("window_below_configured", session=turn.session, said=window, configured=known)
            return
        counted = shown.tokens * self._calibrations.ratio_of(turn.namespace, turn.model)
        answered = self._windows.largest_answered(turn.model)
        if not is_credible(window, counted + (turn.max_output_tokens or 0), answered):
            _log.info("window_not_believed", session=turn.session, said=window, answered=answered)
            return
        try:
            await self._windows.overflowed(turn.model, turn.namespace, window)
        except StoreError as error:
            _log.warning("window_not_stored", error=type(error).__name__, session=turn.session)


def words_sent(turn: Turn, shown: Shown) -> RequestWords:
    """All that an upstream may quote from a request: what of its error stands there is not its own."""
    return RequestWords(_sent(turn, shown))


def _sent(turn: Turn, shown: Shown) -> Iterator[bytes]:
    yield turn.request.body
    yield turn.incoming.target.encode()
    yield unquote_to_bytes(turn.incoming.target)
    yield from (value for _, value in turn.incoming.headers)
    if turn.is_delta:
        yield from (message.raw for message in turn.conversation.messages)
    yield from (part.raw for part in shown.view.parts if part.index is None)
    if shown.has_our_tools:
        yield from shown.replayed
