"""What follows an upstream's "too long": its window is learned, a smaller view made (A29).

Knows nothing of how requests travel. Each step leaves an event in the session's journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from app.errors import RequestError
from app.proxy.chronicle.chronicle import Chronicle
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


class Recovery:
    """One for the application; a turn is recovered at most `retries` times."""

    def __init__(self, viewing: Viewing, windows: Windows, chronicle: Chronicle, retries: int) -> None:
        self._viewing = viewing
        self._windows = windows
        self._chronicle = chronicle
        self._retries = retries

    def is_near_window(self, turn: Turn, shown: Shown) -> bool:
        """True when the prompt is so long that an unexplained refusal may mean its length."""
        window = self._windows.known(turn.model)
        least = NEAR_WINDOW * window.tokens
        return shown.tokens >= (least if window.is_known else min(least, SMALLEST_WINDOW))

    def may_fail_late(self, turn: Turn, shown: Shown) -> bool:
        """True when a stream that has begun may still say that the prompt is too long."""
        if turn.request.wire == "chat":
            return False
        return shown.tokens >= WORTH_WAITING * self._windows.known(turn.model).tokens

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
