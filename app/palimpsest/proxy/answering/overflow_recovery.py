"""Recovery when a prompt exceeds the upstream's window: sends a smaller view, and detects silent cuts.

Each step leaves an event in the session's journal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import structlog

from palimpsest.core.budget.upstream_counts import Counted, PromptGrowth, is_cut, window_of
from palimpsest.core.budget.window import LEAST_TOKENS, is_credible
from palimpsest.core.runtime.events import Event
from palimpsest.errors import RequestError
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.jobs import Jobs, logged
from palimpsest.proxy.model_facts import Calibrations, Windows
from palimpsest.proxy.session_journal import SessionJournal
from palimpsest.proxy.turn import ForwardedView, Outcome, Turn
from palimpsest.upstream.overflow import Overflow, SentRequest

# Beyond this share of a known window an unexplained refusal may mean that the prompt is too long: at 0.9 of
# it by our count a compaction is due anyway, and another tokenizer may count twice as much.
NEAR_WINDOW = 0.5
# Where the window is a guess, any prompt beyond the smallest windows in use may be too long (tokens).
SMALLEST_WINDOW = 4_000
# The Responses API reports "too long" within a stream that has begun. From this share of the window on the
# opening events are held back: what is known of windows may be off by half.
WORTH_WAITING = 0.5
_log = structlog.get_logger("palimpsest.upstream")


@dataclass(frozen=True, slots=True)
class RefusedView:
    """A view that the upstream refused as too long, and its error."""

    shown: ForwardedView
    overflow: Overflow

    @property
    def window(self) -> int | None:
        """The window stated in the error; None for none, or one too small for any model."""
        named = self.overflow.window
        return named if named is not None and named >= LEAST_TOKENS else None


@dataclass(frozen=True, slots=True)
class Recovery:
    """Makes smaller views after refusals, at most `retries` for a turn."""

    viewing: ViewPlanner
    windows: Windows
    calibrations: Calibrations
    journal: SessionJournal
    retries: int

    def sent(self, turn: Turn, shown: ForwardedView) -> SentRequest:
        """What an upstream may quote from the request, and the counts that its error may state."""
        window = self.windows.known(turn.model, turn.namespace)
        least = NEAR_WINDOW * window.tokens
        return SentRequest(
            _sent(turn, shown),
            tokens=shown.for_model(shown.tokens),
            answer_tokens=turn.max_output_tokens or 0,
            is_near=shown.tokens >= (least if window.is_known else min(least, SMALLEST_WINDOW)),
        )

    def may_fail_late(self, turn: Turn, shown: ForwardedView) -> bool:
        """True when a stream that has begun may still report that the prompt is too long."""
        if not turn.wire.fails_late:
            return False
        return shown.tokens >= WORTH_WAITING * self.windows.known(turn.model, turn.namespace).tokens

    async def smaller(self, turn: Turn, refused: Sequence[RefusedView]) -> ForwardedView | None:
        """A smaller view after these refusals, oldest first; None when there is none, or no retry is left.

        The window stated in the last refusal bounds this view, whatever else is known.
        """
        attempt, last = len(refused), refused[-1]
        if last.overflow.kind != "prompt" or self.retries == 0:
            return None
        rooms = [self._room_beside_answer(turn, one) for one in refused]
        # Where only the sum of prompt and max_tokens is too long, one fold is tried (rule 40).
        if attempt > self.retries or (rooms[-1] is not None and any(room is not None for room in rooms[:-1])):
            await self._failed(turn, attempt - 1, "still_too_long")
            return None
        tokens = last.shown.for_model(last.shown.tokens)
        started = {"attempt": attempt, "most": self.retries, "tokens": tokens}
        await self.journal.tell(turn, Event("overflow_recovery_started", started))
        self.windows.doubt(turn.model)
        try:
            smaller = await self.viewing.recovered(turn, last.shown, last.window, rooms[-1])
        except RequestError as failed:
            await self._failed(turn, attempt, failed.code)
            return None
        if smaller is None:
            await self._failed(turn, attempt, "no_smaller_view")
        return smaller

    def _room_beside_answer(self, turn: Turn, refused: RefusedView) -> int | None:
        """The largest prompt (our count) beside which `max_tokens` fits; None where the prompt is too long.

        Told by the numbers of the error: an upstream that counts the answer into the window states them.
        """
        known = self.windows.known(turn.model, turn.namespace)
        window = refused.window or (known.tokens if known.is_known else None)
        prompt, answer = refused.overflow.prompt_tokens, turn.max_output_tokens
        if not (window and prompt and answer) or prompt > window or prompt + answer <= window:
            return None
        return refused.shown.tokens * max(0, window - answer) // prompt

    async def succeeded(self, turn: Turn, shown: ForwardedView, refused: Sequence[RefusedView]) -> None:
        """The upstream answered the smaller view: learn the stated window, if it is credible."""
        for one in reversed(refused):
            if one.window is not None:
                await self._learn(turn, one.shown, one.window)
                break
        compaction = shown.view.compaction
        completed = {
            "attempts": len(refused),
            "compactionId": compaction.id if compaction else "",
            "tokens": shown.for_model(shown.tokens),
        }
        await self.journal.tell(turn, Event("overflow_recovery_completed", completed))

    async def _failed(self, turn: Turn, attempts: int, code: str) -> None:
        """The client gets an error with this `code`."""
        failed = Event("overflow_recovery_failed", {"attempts": attempts, "code": code})
        await self.journal.tell(turn, failed)

    async def _learn(self, turn: Turn, shown: ForwardedView, window: int) -> None:
        if self.windows.is_configured(turn.model):
            known = self.windows.known(turn.model, turn.namespace).tokens
            _log.warning("window_below_configured", session=turn.session, said=window, configured=known)
            return
        counted = shown.tokens * self.calibrations.ratio_of(turn.namespace, turn.model)
        answered = self.windows.largest_answered(turn.model)
        if not is_credible(window, counted + (turn.max_output_tokens or 0), answered):
            _log.info("window_not_believed", session=turn.session, said=window, answered=answered)
            return
        with logged(_log, "window_not_stored", session=turn.session):
            await self.windows.overflowed(turn.model, turn.namespace, window)


def _sent(turn: Turn, shown: ForwardedView) -> Iterator[bytes]:
    yield turn.request.body
    yield turn.incoming.target.encode()
    yield unquote_to_bytes(turn.incoming.target)
    yield from (value for _, value in turn.incoming.headers)
    if turn.is_delta:
        yield from (message.raw for message in turn.conversation.messages)
    yield from (part.raw for part in shown.view.parts if part.index is None)
    if shown.has_our_tools:
        yield from shown.replayed


# Callers choose sessions and models, so that what is kept of them is bounded.
REMEMBERED = 1_000
# The fields that every server counts. Others (reasoning of earlier turns, unknown fields, pictures) may be
# ignored or counted differently, so that with them a lower count does not prove a cut.
_READ = frozenset({"role", "content", "tool_calls", "tool_call_id"})


T = TypeVar("T")


class _Remembered(OrderedDict[str, T]):
    """The newest values by name, bounded."""

    def keep(self, name: str, counted: T) -> None:
        self[name] = counted
        self.move_to_end(name)
        if len(self) > REMEMBERED:
            self.popitem(last=False)


class CutPrompts:
    """Detects upstreams that cut prompts silently, from the prompt tokens that they report."""

    def __init__(
        self, windows: Windows, calibrations: Calibrations, journal: SessionJournal, jobs: Jobs
    ) -> None:
        self._windows = windows
        self._calibrations = calibrations
        self._journal = journal
        self._jobs = jobs
        self._growths: _Remembered[PromptGrowth] = _Remembered()
        self._most: _Remembered[Counted] = _Remembered()
        self._cuts: _Remembered[Counted] = _Remembered()
        self._reported: _Remembered[None] = _Remembered()

    def check(self, turn: Turn, shown: ForwardedView, outcome: Outcome) -> None:
        """Report a prompt that was cut; use the count of any other one for calibration.

        Each cut is logged and leaves one event in the session. From the second one on the caller's window is
        learned from the counts, unless one is configured.
        """
        usage, namespace, model = outcome.usage, turn.namespace, turn.model
        now = Counted(
            shown.tokens - turn.fixed_tokens,
            usage.prompt_tokens or 0,
            usage.cached_tokens or 0,
            self._calibrations.uncalibrated(turn.request),
        )
        sent = shown.for_model(shown.tokens)
        place, of_caller = f"{namespace}\0{turn.session}\0{model}", f"{namespace}\0{model}"
        most, growth = self._most.get(of_caller, Counted(0, 0)), self._growths.get(place)
        measures = self._calibrations.measures_of(namespace, model)
        self._growths.keep(place, growth.after(now) if growth else PromptGrowth(now))
        if now.theirs > most.theirs:
            self._most.keep(of_caller, now)
        if not is_cut(now, growth.last if growth else None, most.theirs, measures):
            self._calibrations.observe(namespace, model, now, growth)
        elif _is_read_whole(turn, shown):
            window = window_of(now, self._cuts.get(of_caller))
            self._cuts.keep(of_caller, now)
            self._jobs.start(self._report(turn, place, sent, now.theirs, window))

    async def _report(self, turn: Turn, place: str, sent: int, counted: int, window: int | None) -> None:
        learned = window is not None and await self._windows.observed(turn.model, turn.namespace, window)
        cut = {"tokens": sent, "counted": counted, "window": window if learned else None}
        _log.warning("prompt_cut", session=turn.session, exchange=turn.exchange, **cut)
        if place not in self._reported or learned:
            self._reported.keep(place, None)
            await self._journal.tell(turn, Event("prompt_cut", cut))


def _is_read_whole(turn: Turn, shown: ForwardedView) -> bool:
    """True when every server counts all of the client's own messages in the forwarded view."""
    talk, messages = turn.conversation, turn.conversation.messages
    if not shown.is_original:
        messages = tuple(messages[part.index] for part in shown.view.parts if part.index is not None)
    for message in (*talk.preamble, *messages):
        content = message.fields.get("content")
        parts = content if isinstance(content, list) else ()
        if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in parts):
            return False
        if any(value and key not in _READ for key, value in message.fields.items()):
            return False
    return True
