"""What follows an upstream's "too long": its window is learned, a smaller view made (A29).

Knows nothing of how requests travel. Each step leaves an event in the session's journal.
"""

from __future__ import annotations

from app.errors import RequestError
from app.proxy.chronicle.chronicle import Chronicle
from app.proxy.compacting.viewing import Viewing
from app.proxy.compacting.windows import Windows
from app.proxy.turn import Shown, Turn
from app.upstream.overflow import Overflow

# A prompt beyond this share of what we think the window is may be what an unexplained refusal means.
NEAR_WINDOW = 0.9


class Recovery:
    """One for the application; a turn is recovered at most `retries` times."""

    def __init__(self, viewing: Viewing, windows: Windows, chronicle: Chronicle, retries: int) -> None:
        self._viewing = viewing
        self._windows = windows
        self._chronicle = chronicle
        self._retries = retries

    def is_near_window(self, turn: Turn, shown: Shown) -> bool:
        """True when the prompt is so long that an unexplained refusal may mean its length."""
        return shown.tokens >= NEAR_WINDOW * self._windows.known(turn.model).tokens

    async def smaller(
        self, turn: Turn, shown: Shown, overflow: Overflow | None, attempt: int
    ) -> Shown | None:
        """A smaller view after the refusal number `attempt`; None where none would be answered."""
        if overflow is None or overflow.kind != "prompt" or self._retries == 0:
            return None
        if attempt > self._retries:
            await self._chronicle.recovery_failed(turn, attempt - 1, "still_too_long")
            return None
        await self._chronicle.recovery_started(turn, attempt, self._retries, shown.tokens)
        if overflow.window is not None:
            await self._windows.overflowed(turn.model, overflow.window)
        try:
            smaller = await self._viewing.recovered(turn, shown)
        except RequestError as refused:
            await self._chronicle.recovery_failed(turn, attempt, refused.code)
            return None
        if smaller is None:
            await self._chronicle.recovery_failed(turn, attempt, "no_smaller_view")
        return smaller

    async def succeeded(self, turn: Turn, shown: Shown, attempts: int) -> None:
        """The upstream took the smaller view."""
        compaction = shown.view.compaction
        await self._chronicle.recovery_completed(
            turn, attempts, compaction.id if compaction else "", shown.tokens
        )
