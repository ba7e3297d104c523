"""How an upstream's answer is recorded: from what was read of it to the outcome that is stored.

Pure but for reading the answer's messages. Knows nothing of how the answer is relayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from app.core.history.message import Message
from app.core.wire.answered import AnsweredChoice, Usage
from app.core.wire.chat_answer import Answer
from app.core.wire.wires import Sum, answer_of
from app.errors import RequestError
from app.proxy.answering.gate import Gate
from app.proxy.offload import offload
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.recorder import Outcome
from app.proxy.turn import Turn
from app.storage.contract import ExchangeState

# Statuses that a client is meant to try again: the request was not at fault (OpenAI's SDKs retry these).
RETRIED = frozenset({408, 409, 425, 429})


def state_of_status(status: int) -> ExchangeState:
    """A 4xx takes the exchange's messages off the path (rule 11), except those that only mean "later"."""
    return "rejected" if 400 <= status < 500 and status not in RETRIED else "failed"


class Outcomes:
    """Makes outcomes; the answers in them are counted like any other message."""

    def __init__(self, reader: MessageReader) -> None:
        self._reader = reader

    def of_stream(self, turn: Turn, gate: Gate) -> Outcome:
        """A streamed answer as it stands."""
        assembly = gate.assembly
        ended = assembly.is_finished or assembly.is_done
        state: Literal["live", "incomplete"] = "live"
        if not ended or assembly.error is not None or not gate.is_readable:
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
        """A whole answer; one that is none counts as a failure and stays out of the transcript."""
        read = await offload(len(body), answer_of, turn.request.wire, body)
        if not isinstance(read, Answer):
            return Outcome(state="failed", status=status)
        try:
            bodies = [choice.message_body for choice in read.choices]
            answers = await self._reader.read_long_answers(bodies, turn.request.model)
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
        """The answers as messages; of a cut one only what can be gone on from: text, no open calls."""
        try:
            messages = self._reader.read_answers([c.message_body for c in choices], turn.request.model)
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
