"""Outcomes of upstream answers, and what happens after one: token counts, windows, checkpoints, indexing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.history.message import Message
from palimpsest.core.wire.chat_answers import AnsweredChoice, Sum, Usage, WholeAnswer
from palimpsest.errors import RequestError
from palimpsest.proxy.answering.holdback import Holdback
from palimpsest.proxy.answering.overflow_recovery import CutPrompts
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.proxy.jobs import offload
from palimpsest.proxy.journal.session_journal import Remembers, SessionJournal
from palimpsest.proxy.recall.indexing import Indexer
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.turn import ForwardedView, Outcome, Turn
from palimpsest.storage.exchange_units import ExchangeState


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Makes outcomes from answers, whose messages are counted like any other."""

    reader: MessageReader

    def of_stream(self, turn: Turn, holdback: Holdback) -> Outcome:
        """The outcome of a streamed answer as received so far."""
        assembly = holdback.assembly
        ended = assembly.is_finished or assembly.is_done
        state: Literal["live", "incomplete"] = "live"
        if not ended or assembly.error is not None or not holdback.is_readable:
            state = "incomplete"
        answers = self._messages(turn, assembly.choices(), state)
        return Outcome(
            state=_exchange_state(state, assembly, answers),
            status=200,
            answers=answers,
            answer_state=state,
            finish_reason=_finish_reason(assembly.choices()),
            usage=assembly.usage or Usage(),
            response_id=assembly.response_id,
        )

    async def of_body(self, turn: Turn, status: int, body: bytes) -> Outcome:
        """The outcome of a whole answer; a body that is no answer is a failure, not in the transcript."""
        read = await offload(len(body), turn.wire.read_answer, body)
        if not isinstance(read, WholeAnswer):
            return Outcome(state="failed", status=status)
        try:
            bodies = [choice.message_body for choice in read.choices]
            answers = await self.reader.read_long_answers(bodies, turn.request.model)
        except RequestError:
            answers = ()
        return Outcome(
            state="done" if answers else "failed",
            status=status,
            answers=answers,
            finish_reason=_finish_reason(read.choices),
            usage=read.usage,
            response_id=read.response_id,
        )

    def _messages(
        self, turn: Turn, choices: Sequence[AnsweredChoice], state: Literal["live", "incomplete"]
    ) -> tuple[Message, ...]:
        """The answers as messages; incomplete ones only if they can be continued: text without open calls."""
        try:
            messages = self.reader.read_answers([c.message_body for c in choices], turn.request.model)
        except RequestError:
            return ()
        if state == "live":
            return messages
        return tuple(message for message in messages if message.can_stand_cut)


def _exchange_state(state: str, assembly: Sum, answers: Sequence[Message]) -> ExchangeState:
    if state == "live":
        return "done" if answers else "failed"
    return "incomplete" if answers or assembly.choices() else "failed"


def _finish_reason(choices: Sequence[AnsweredChoice]) -> str | None:
    return choices[0].finish_reason if choices else None


@dataclass(frozen=True, slots=True)
class Answered:
    """Called with every answer that has ended, right after it was stored."""

    viewing: ViewPlanner
    windows: Windows
    journal: SessionJournal
    indexing: Indexer
    cuts: CutPrompts
    remembers: Remembers

    def __call__(self, turn: Turn, shown: ForwardedView, outcome: Outcome) -> None:
        """Update journal, index, windows and calibration; these influence later plans only (rule 14)."""
        self.journal.answered(turn, outcome, self.remembers)
        self.journal.placed(turn)
        self.viewing.answer_stored(turn, shown, outcome)
        self.indexing.later(turn.namespace, turn.session)
        theirs = outcome.usage.prompt_tokens
        if theirs is None or outcome.state != "done":
            return
        self.windows.answered(turn.model, theirs)
        if not shown.has_our_tools:
            self.cuts.check(turn, shown, outcome)
