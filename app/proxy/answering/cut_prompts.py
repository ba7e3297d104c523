"""Notices upstreams that cut prompts to their window without saying so, and says so in their place.

The verdict is `app.core.budget.cut`. Knows nothing of how answers travel.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeVar

import structlog

from app.core.budget.cut import Counted, Growth, is_cut, window_of
from app.core.history.message import Message
from app.core.runtime.events import prompt_cut
from app.proxy.chronicle.chronicle import Chronicle
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.windows import Windows
from app.proxy.jobs import Jobs
from app.proxy.sessions.recorder import Outcome
from app.proxy.turn import Shown, Turn

# Sessions and models come from callers, so what is kept of them is bounded.
REMEMBERED = 1_000
# What every server reads of a message. Of all else (thoughts of earlier turns, fields that it does not know,
# pictures) it may count nothing, or something else than was estimated: a count that is lower says nothing.
_READ = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_log = structlog.get_logger("palimpsest.upstream")


T = TypeVar("T")


class _Remembered(OrderedDict[str, T]):
    """The newest counts by name, bounded."""

    def keep(self, name: str, counted: T) -> None:
        self[name] = counted
        self.move_to_end(name)
        if len(self) > REMEMBERED:
            self.popitem(last=False)


class CutPrompts:
    """One for the application."""

    def __init__(
        self, windows: Windows, calibrations: Calibrations, chronicle: Chronicle, jobs: Jobs
    ) -> None:
        self._windows = windows
        self._calibrations = calibrations
        self._chronicle = chronicle
        self._jobs = jobs
        self._growths: _Remembered[Growth] = _Remembered()
        self._most: _Remembered[Counted] = _Remembered()
        self._cuts: _Remembered[Counted] = _Remembered()
        self._told: OrderedDict[str, None] = OrderedDict()

    def heard(self, turn: Turn, shown: Shown, outcome: Outcome) -> None:
        """A prompt that was cut is told of; the count of any other teaches how the model counts.

        Of a cut the log says so, the session's events once, and from the second time on the caller's window
        is assumed where none is configured.
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
        self._growths.keep(place, growth.after(now) if growth else Growth(now))
        if now.theirs > most.theirs:
            self._most.keep(of_caller, now)
        if not is_cut(now, growth.last if growth else None, most.theirs, measures):
            self._calibrations.observe(namespace, model, now, growth)
        elif all(map(_is_read_whole, _messages_of(turn, shown))):
            window = window_of(now, self._cuts.get(of_caller))
            self._cuts.keep(of_caller, now)
            self._jobs.start(self._tell(turn, place, (sent, now.theirs), window))

    async def _tell(self, turn: Turn, place: str, counts: tuple[int, int], window: int | None) -> None:
        sent, read = counts
        learned = window is not None and await self._windows.observed(turn.model, turn.namespace, window)
        _log.warning(
            "prompt_cut",
            session=turn.session,
            exchange=turn.exchange,
            tokens=sent,
            counted=read,
            window=window if learned else None,
        )
        if place in self._told and not learned:
            return
        self._told[place] = None
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        await self._chronicle.tell(turn, prompt_cut(sent, read, window if learned else None))


def _messages_of(turn: Turn, shown: Shown) -> Iterator[Message]:
    """The client's own messages in what went out."""
    talk = turn.conversation
    if shown.is_original:
        return iter((*talk.preamble, *talk.messages))
    shows = (talk.messages[part.index] for part in shown.view.parts if part.index is not None)
    return chain(talk.preamble, shows)


def _is_read_whole(message: Message) -> bool:
    """True where a server that cuts nothing counts all of a message."""
    content = message.fields.get("content")
    parts = content if isinstance(content, list) else ()
    is_text = all(isinstance(part, Mapping) and part.get("type") == "text" for part in parts)
    return is_text and not any(value and key not in _READ for key, value in message.fields.items())
